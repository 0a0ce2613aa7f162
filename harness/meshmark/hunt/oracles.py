# SPDX-License-Identifier: Apache-2.0
"""Judges one program in this process: sharding must never change a program's results.

The truth is the same program without any sharding, compiled for one device. A `Difference` describes a deviation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from meshmark.hunt import accelerators, definitions, derivatives
from meshmark.hunt.building import Builder, make_spec, mesh_of
from meshmark.hunt.drawing import HALVED, LOOPS, ROUNDING, TIED
from meshmark.hunt.program import Program, walk_nodes
from meshmark.hunt.rules import find_types
from meshmark.hunt.spellings import Inapplicable, spell_manually, turn_mesh
from meshmark.hunt.values import make_inputs
from meshmark.interpreter.faults import Fault, Hang

MODES = ("auto", "explicit", "eager", "permuted", "turned", "donated", "manual")
"""The ways to run a program over its mesh: jit with automatic or explicit axes; operation by operation; over devices in
another order; over a mesh with the axis sizes rotated; with every second argument donated; and inside shard_map
(`meshmark.hunt.spellings.spell_manually`)."""

MANUAL = "manual"
"""The mode whose program is another one, with its own right results."""

NUMPY = "numpy"
"""Not a way to run: the unsharded program is compared with NumPy."""

HOST = "host"
"""Not a way to run: the unsharded program on an accelerator is compared with the one on a CPU."""

ALONE = "alone"
"""Not a way to run: the unsharded program on one CPU device is compared with its operations run one by one."""

DEVICE_IS_WRONG = "differs from one of a CPU and from each operation alone"
"""What a difference says of an accelerator whose unsharded program is the wrong one."""

DERIVATIVE = "derivative"
"""Not a way to run: the unsharded derivative is compared with float64, and with differences of the function."""

RELEASE = "release"
"""Not a way to run: the unsharded program is compared with itself under another release of JAX
(`meshmark.hunt.another_release`)."""


@dataclass
class Difference:
    """A deviation of one mode of a program from the plain program.

    kind: "numbers", "refused" (an exception of JAX), "internal" (one of the compiler), "crash", "hang", or "oracles"
    (the plain program differs from NumPy, from a CPU, from its operations run one by one, from its derivative in
    float64 or by differences, or from another release).
    """

    mode: str
    kind: str
    what: str
    """For wrong numbers their kind of wrongness, else the first line of the message without its numbers."""
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values."""
        return asdict(self)


class Invalid(Exception):
    """The plain program can't be run or judged; the message is the reason."""


class ChangedArgument(Exception):
    """A program changed or deleted an argument that was not donated."""


class NotRun(Exception):
    """A mode that can't be run here, or has something that the interpreter does not know; the message names it."""


Runner = Callable[[Program, str], Sequence[Any]]
"""A function that gives the results of a program in a mode."""


@dataclass
class Truth:
    """The right results of a program."""

    results: list[np.ndarray]
    largest: float
    """The largest absolute value of all floats in the program; of the finite ones if it has special values."""


LIGHT = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
"""Options of XLA's CPU compiler. All passes over HLO stay the same, including partitioning and fusion, but LLVM does
less. LLVM takes more than half of a program's time."""

_options: Mapping[str, Any] = {}
_without = ""


@contextmanager
def compile_by(light: bool, without: str = "", shardy: bool = True) -> Iterator[None]:
    """A context that compiles programs with the backend's LIGHT options, if `light`, without this pass of XLA, and with
    the partitioner Shardy or the one before it."""
    global _options, _without
    lights = {"cpu": LIGHT, "gpu": accelerators.LIGHT}
    before, left_out = _options, _without
    _options, _without = lights.get(accelerators.find_backend(), {}) if light else {}, without
    if not shardy:
        jax.config.update("jax_use_shardy_partitioner", False)
    try:
        yield
    finally:
        _options, _without = before, left_out
        if not shardy:
            jax.config.update("jax_use_shardy_partitioner", True)


def compiler_options(beside: bool = False) -> dict[str, Any] | None:
    """The compiler options of the context, as jax.jit takes them. beside: for a CPU beside an accelerator, without the
    LIGHT options, which are the accelerator's."""
    passes = {"xla_disable_hlo_passes": _without} if _without else {}
    return (passes if beside else {**_options, **passes}) or None


EXACT = 2.0**20
"""Programs of integers below this size are exact in float32: a result has at most 16 terms of this size."""


def compute_truth(program: Program, device: Any = None) -> Truth:
    """The results of the plain program, without sharding, on one device (default: the first one).

    Raises Invalid if the program raises, or can't be judged because a value in it is not finite."""
    given = make_inputs(program)
    options = compiler_options(beside=device is not None)
    device = device or jax.local_devices()[0]
    builder = Builder(program, "plain", None)
    watched, function = builder.function(keep=True), builder.function()

    def both(*arrays: Any) -> Any:
        results, largest = watched(*arrays)
        return function(*arrays) if program.transform.kind else results, largest

    try:
        with jax.default_device(device), jax.enable_x64(program.x64), accelerators.exact_products():
            found, top = jax.jit(both, compiler_options=options)(*given)
            results = [np.asarray(r) for r in found]
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {str(error)[:300]}") from None
    if not np.isfinite(top):
        raise Invalid("a value on the way is not finite")
    for r in results:
        if r.dtype.kind in "fc" and not program.special and not np.isfinite(r).all():
            raise Invalid("a result is not finite")
    return Truth(results, float(top))


def run_alone(program: Program) -> list[np.ndarray] | None:
    """The results of the plain program on one CPU device, with each operation compiled alone: a third opinion if two
    runs differ. The bodies of scans and other forms run operation by operation too. None if JAX can't run it so."""
    device = accelerators.find_host_device() or jax.local_devices()[0]
    function = Builder(program, "plain", None).function()
    try:
        with jax.default_device(device), jax.enable_x64(program.x64), jax.disable_jit():
            return [np.asarray(r) for r in function(*map(jax.numpy.asarray, make_inputs(program)))]
    except Exception:
        return None


def compute_expected(program: Program, mode: str) -> list[np.ndarray]:
    """The right results, one whole array per output.

    They are the unsharded program's. But in the modes NUMPY, HOST and ALONE that program is wrong itself. There they
    come from NumPy, or from the operations run one by one on a CPU (the whole program on a CPU if that fails). Raises
    Invalid if the program can't be run."""
    if mode in (HOST, ALONE):
        opinion = run_alone(program)
        return compute_truth(program, accelerators.find_host_device()).results if opinion is None else opinion
    if mode == NUMPY:
        with jax.enable_x64(program.x64):
            return definitions.compute_results(program, find_types(program))
    return compute_truth(program).results


def write_result(result: np.ndarray) -> dict[str, Any]:
    """A result as JSON values: dtype, shape and flat data, with NaN and infinities as text.

    A complex number becomes two numbers."""
    data = result.astype(np.float64) if result.dtype.kind in "fV" else result
    if result.dtype.kind == "c":
        data = np.ascontiguousarray(result, np.complex128).reshape(-1).view(np.float64)
    items = [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in data.ravel().tolist()]
    return {"dtype": result.dtype.name, "shape": list(result.shape), "data": items}


def place_inputs(program: Program, mode: str, devices: Sequence[Any]) -> tuple[Mesh, list[NamedSharding]]:
    """(the mesh over the first of these devices, the sharding of each input)."""
    mesh = mesh_of(program, devices, mode == "explicit")
    return mesh, [NamedSharding(mesh, make_spec(i.spec)) for i in program.inputs]


def apply_jit(
    program: Program, mode: str, mesh: Mesh, use: Callable[[Any], Any], donate: tuple[int, ...] = ()
) -> Any:
    """Call `use` with the program under jax.jit, in the context of its mode, and give its result.

    donate: the numbers of the arguments to donate; ignored in explicit mode. Raises JAX's own errors."""
    explicit = mode == "explicit"
    function = Builder(program, "explicit" if explicit else "auto", mesh).function()
    if explicit:
        with jax.set_mesh(mesh):
            return use(jax.jit(function, compiler_options=compiler_options()))
    shardings: Any = None
    if not program.transform.kind and any(s is not None for s in program.out_specs):
        shardings = tuple(None if s is None else NamedSharding(mesh, make_spec(s)) for s in program.out_specs)
    options = compiler_options()
    return use(jax.jit(function, out_shardings=shardings, donate_argnums=donate, compiler_options=options))


def run_program(program: Program, mode: str) -> list[Any]:
    """Run a program over its mesh on the devices of this process; gives one finished jax.Array per output.

    Raises JAX's own errors, also those that come only while a program runs, Inapplicable if the program does not have
    this mode, and ChangedArgument."""
    devices = jax.devices()
    if mode == "permuted":
        devices = permute_devices(devices[: program.mesh_size])
    if mode == "turned":
        program = turn_mesh(program)
    mesh, places = place_inputs(program, mode, devices)
    with jax.enable_x64(program.x64):
        arrays = make_inputs(program)
        given = [jax.device_put(x, place) for x, place in zip(arrays, places, strict=True)]
        donate = tuple(range(0, len(given), 2)) if mode == "donated" else ()
        if mode == "eager":
            found = list(Builder(program, "auto", mesh).function()(*given))
        else:
            found = list(apply_jit(program, mode, mesh, lambda function: function(*given), donate))
        # An error of the running program must come here, and not where the results are compared.
        jax.block_until_ready(found)
    for k in range(1, len(given), 2) if donate else ():
        if given[k].is_deleted() or not np.array_equal(
            arrays[k], given[k], equal_nan=arrays[k].dtype.kind == "f"
        ):
            raise ChangedArgument(f"argument {k} was not donated, and is changed")
    return found


def permute_devices(devices: Sequence[Any]) -> list[Any]:
    """The devices in another order."""
    backwards = [*reversed(devices)]
    return [*backwards[1:], backwards[0]]


def compare_with_definition(program: Program, known: Truth, rounded: bool) -> Difference | None:
    """The difference between the unsharded program and NumPy; None if there is none. Inapplicable if the program has
    special values, integers that may wrap or too large numbers, or an operation without a definition."""
    if program.special or program.whole_range or known.largest >= EXACT:
        raise Inapplicable("no exact numbers")
    try:
        with jax.enable_x64(program.x64), np.errstate(all="ignore"):
            found = definitions.compute_results(program, find_types(program))
    except (definitions.Undefined, OverflowError) as error:  # NumPy refuses -1 as an unsigned integer
        raise Inapplicable(str(error)) from None
    for k, (want, seen) in enumerate(zip(found, known.results, strict=True)):
        if (
            want.shape != seen.shape
            or (wrong := _wrong(seen, want, derive_tolerance(known, want, rounded))).any()
        ):
            text = f"result {k} of one device differs from NumPy"
            if want.shape == seen.shape:
                at = tuple(np.argwhere(wrong)[0].tolist())
                text += f": {wrong.sum()} of {want.size}, at {at} expected {want[at]}, seen {seen[at]}"
            return Difference(NUMPY, "oracles", "NumPy", text)
    return None


def compare_with_host(program: Program, known: Truth, rounded: bool) -> Difference | None:
    """The difference between the unsharded program on an accelerator and on a CPU; None if there is none.

    Its operations run one by one decide which of the two is wrong: the CPU if the accelerator agrees with them.
    Inapplicable if this process has no accelerator or no CPU."""
    device = accelerators.find_host_device()
    if device is None:
        raise Inapplicable("no accelerator, or no CPU beside it")
    try:
        right = compute_truth(program, device)
    except Invalid as error:
        return Difference(HOST, "oracles", normalize(str(error)), f"a CPU can't run what runs here: {error}")
    here = accelerators.find_backend()
    said = first_difference(
        known.results, right.results, right, rounded, f"one {here} device differs from one of a CPU"
    )
    if not said:
        return None
    opinion = run_alone(program)
    if opinion is None:
        return Difference(HOST, "oracles", "undecided", f"{said}; which is wrong is not known")
    if not first_difference(known.results, opinion, right, rounded, ""):
        told = f"one CPU device differs from each operation alone, and from one {here} device"
        return Difference(
            ALONE, "oracles", "CPU", first_difference(right.results, opinion, right, rounded, told) or said
        )
    told = f"one {here} device {DEVICE_IS_WRONG}"
    text = first_difference(known.results, opinion, right, rounded, told)
    return Difference(HOST, "oracles", here, text, {"wrongness": first_wrongness(known, opinion)})


def compare_with_alone(program: Program, known: Truth, rounded: bool) -> Difference | None:
    """The difference between the unsharded program on one CPU device and its operations run one by one, or None.

    Inapplicable if JAX can't run them so."""
    device, opinion = accelerators.find_host_device(), run_alone(program)
    if opinion is None:
        raise Inapplicable("its operations do not run alone")
    whole = compute_truth(program, device) if device else known
    said = first_difference(
        whole.results, opinion, whole, rounded, "one CPU device differs from each operation alone"
    )
    return Difference(ALONE, "oracles", "CPU", said) if said else None


def compare_with_slope(program: Program, known: Truth, rounded: bool) -> Difference | None:
    """The difference between the unsharded derivative and one in float64, or between that and differences of the
    function (`meshmark.hunt.derivatives`); None if there is none. Inapplicable to a program without a derivative, to
    one with special values, to one that stops a derivative, and if JAX can't run it in float64."""
    if not program.transform.kind or program.special or "stop_gradient" in str(program.nodes):
        raise Inapplicable("no derivative, or another one than the function's")
    try:
        wide, slope = derivatives.compute_wide(program), derivatives.find_wrong_slope(program)
    except Exception as error:
        raise Inapplicable(f"not in float64: {error}") from None
    # Between float64 and narrower floats everything rounds, so the bound is that of a program that does.
    right = [w.astype(r.dtype) for w, r in zip(wide, known.results, strict=True)]
    said = slope or first_difference(
        known.results, right, known, True, "one device differs from the derivative in float64"
    )
    return Difference(DERIVATIVE, "oracles", "derivative", said) if said else None


def first_difference(
    found: Sequence[np.ndarray], right: Sequence[np.ndarray], known: Truth, rounded: bool, said: str
) -> str:
    """A description of the first result that differs; "" if none does."""
    for k, (want, seen) in enumerate(zip(right, found, strict=True)):
        text = f"result {k} of {said}"
        if want.shape != seen.shape:
            return text
        wrong = _wrong(seen, want, derive_tolerance(known, want, rounded))
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            return f"{text}: {wrong.sum()} of {want.size}, at {at} expected {want[at]}, seen {seen[at]}"
    return ""


def first_wrongness(known: Truth, right: Sequence[np.ndarray]) -> str:
    """The kind of wrongness of the first result that is not the right one, as `describe_wrongness` tells it."""
    for want, seen in zip(right, known.results, strict=True):
        if want.shape != seen.shape:
            return "shape"
        wrong = _wrong(seen, want, 0.0)
        if wrong.any():
            return describe_wrongness(want, seen, wrong, False)
    return ""


BESIDE = {
    NUMPY: compare_with_definition,
    HOST: compare_with_host,
    ALONE: compare_with_alone,
    DERIVATIVE: compare_with_slope,
}
"""The modes that compare the unsharded program with another oracle, with their functions."""


def derive_tolerance(known: Truth, want: np.ndarray, rounded: bool) -> float:
    """The largest absolute error that `want` may have.

    It is 0.0 if all values are integers that the dtype holds. Otherwise it is a share of the largest value in the
    program, because another order of additions, or another algorithm of a dot, may round differently. rounded: whether
    the program has operations that round.
    """
    if want.dtype.kind not in "fcV":
        return 0.0
    small = want.dtype.name in ("bfloat16", "float16")
    exact = not rounded and known.largest < (16 if small else EXACT)
    if exact:
        sizes = np.abs(want.astype(np.float64)) if want.dtype.kind != "c" else np.zeros(1)
        biggest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
        exact = biggest < (256 if small else EXACT)
    if exact:
        return 0.0
    scale = max(known.largest, float(np.abs(want.astype(np.complex128)).max(initial=0.0)), 1.0)
    return scale * (0.1 if small else 2e-4)


def find_difference(known: Truth, found: Sequence[Any], mode: str, rounded: bool) -> Difference | None:
    """The first result that differs from the truth on any device, with its first wrong element; None if none does.

    found: one jax.Array per output, or an object with its shape, dtype and addressable shards."""
    for k, (want, out) in enumerate(zip(known.results, found, strict=True)):
        if out.shape != want.shape or out.dtype != want.dtype:
            return Difference(
                mode, "numbers", "type", f"result {k}: {out.dtype}{out.shape} for {want.dtype}{want.shape}"
            )
        allowed = derive_tolerance(known, want, rounded)
        wrong_anywhere = np.zeros(want.shape, bool)
        first = None
        seen_whole = np.array(want)
        replicas: dict[str, np.ndarray] = {}
        differing_replicas = False
        for shard in out.addressable_shards:
            seen, right = np.asarray(shard.data), want[shard.index]
            if seen.shape != right.shape:
                return Difference(
                    mode, "numbers", "shape", f"result {k}: shard {seen.shape} for {right.shape}"
                )
            wrong = _wrong(seen, right, allowed)
            if wrong.any():
                wrong_anywhere[shard.index] |= wrong
                seen_whole[shard.index] = seen
                if first is None:
                    at = tuple(np.argwhere(wrong)[0].tolist())
                    first = (str(shard.device), at, right[at].item(), seen[at].item())
            key = str(shard.index)
            if key in replicas:
                differing_replicas |= bool(_wrong(seen, replicas[key], allowed).any())
            replicas.setdefault(key, seen)
        if first is not None:
            device, at, expected, seen_value = first
            text = (
                f"result {k}: {wrong_anywhere.sum()} of {want.size} elements differ, first on {device} at {at}:"
                f" expected {expected}, seen {seen_value}"
            )
            what = describe_wrongness(want, seen_whole, wrong_anywhere, differing_replicas)
            return Difference(
                mode, "numbers", what, text, {"result": k, "share": float(wrong_anywhere.mean())}
            )
    return None


def _wrong(seen: np.ndarray, right: np.ndarray, allowed: float) -> np.ndarray:
    wrong = np.asarray(seen != right)
    if right.dtype.kind not in "fcV":
        return wrong
    wrong &= ~(np.isnan(seen) & np.isnan(right))
    if allowed == 0.0:
        return wrong
    wide = np.complex128 if right.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        return wrong & ~(np.abs(seen.astype(wide) - right.astype(wide)) <= allowed)


LOST_NAN = "a NaN is lost"


def describe_wrongness(want: np.ndarray, seen: np.ndarray, wrong: np.ndarray, replicas: bool) -> str:
    """The kind of wrongness of a result: "a NaN is lost", "replicas differ", "factor F", "zeros", "not finite", "moved"
    or "values".

    want, seen: the whole result, right and as seen. wrong: a boolean array of that shape. replicas: whether two devices
    hold different numbers for one part."""
    if want.dtype.kind in "fV" and np.isnan(want[wrong]).all():
        return LOST_NAN
    if replicas:
        return "replicas differ"
    if want.dtype.kind in "b":
        return "values"
    w, s = want[wrong].astype(np.complex128), seen[wrong].astype(np.complex128)
    if len(w) and (w != 0).all():
        ratio = s / w
        if np.allclose(ratio, ratio[0], rtol=1e-3):
            factor = ratio[0].real
            return "zeros" if factor == 0 else f"factor {factor:.3g}"
    if not s.any():
        return "zeros"
    if not np.isfinite(s).all():
        return "not finite"
    if wrong.all() or set(np.round(s, 3).tolist()) <= set(
        np.round(want.astype(np.complex128), 3).ravel().tolist()
    ):
        return (
            "moved"
            if sorted(np.round(seen.astype(np.complex128), 3).ravel().tolist(), key=repr)
            == sorted(np.round(want.astype(np.complex128), 3).ravel().tolist(), key=repr)
            else "values"
        )
    return "values"


BY_RULE = ("Make sure that the axis_name passed to jax.lax",)
"""The start of JAX's message if it refuses a program by a documented rule: from 0.11 on `ppermute` over axes in another
order than the mesh's. Such a refusal is not a finding."""


INTERNAL = re.compile(
    r"INTERNAL|Internal|RET_CHECK|Check failed|verifier|Verif|Assertion|UNIMPLEMENTED", re.I
)


def make_difference(mode: str, error: BaseException) -> Difference:
    """The difference of an exception: "internal" if the compiler raised it, else "refused"."""
    text = f"{type(error).__name__}: {error}".partition("Suspected Python Code Location")[0].strip()
    kind = "internal" if INTERNAL.search(text) else "refused"
    return Difference(mode, kind, normalize(text), text[:2000])


def normalize(text: str) -> str:
    """The first line of a message without numbers, shapes and instruction names, so that similar messages are equal; at
    most 160 characters."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    line = re.sub(r"0x[0-9a-f]+|%[\w.-]+|\d+", "N", line)
    line = re.sub(r"\[[N,\s]*\]|\([N,\s]*\)|\{[N,\s]*\}", "[]", line)
    return line[:160]


def rounds(program: Program) -> bool:
    """Whether a program has operations whose results depend on roundings."""
    inexact = ROUNDING | TIED if program.transform.kind else ROUNDING
    if accelerators.has_accelerator():
        inexact |= accelerators.CONVOLUTIONS
    loops = (b for n in walk_nodes(program.nodes) if n.op in LOOPS for b in n.bodies)
    repeated = {n.op for b in loops for n in walk_nodes(b.nodes)}
    return not inexact.isdisjoint(program.operations) or not HALVED.isdisjoint(repeated)


def _judge_manually(program: Program, runner: Runner | None, left: list[str] | None) -> list[Difference]:
    try:
        differences = judge(spell_manually(program), ("auto",), runner, left)
    except Invalid as error:
        raise Inapplicable(str(error)) from None
    return [replace(difference, mode=MANUAL) for difference in differences]


# Explicit mode asks for the sharding of some results and refuses others by rule, so its refusals are not findings.
def judge(
    program: Program, modes: Sequence[str], runner: Runner | None = None, left: list[str] | None = None
) -> list[Difference]:
    """The differences of all modes; Invalid if the right results are not known.

    runner: runs a program in a mode (default: `run_program`). left: takes the reasons of modes that it can't run.
    """
    known = compute_truth(program)
    rounded = rounds(program)
    exact = not accelerators.survives(program, known.largest, rounded)
    found = []
    for mode in modes:
        try:
            if mode in BESIDE:
                if between := BESIDE[mode](program, known, rounded):
                    found.append(between)
                continue
            if mode == MANUAL:
                found += _judge_manually(program, runner, left)
                continue
            with accelerators.exact_products(exact):
                results = (runner or run_program)(program, mode)
        except Inapplicable:
            continue
        except ChangedArgument as error:
            found.append(Difference(mode, "numbers", "argument", str(error)))
            continue
        except NotRun as error:
            if left is not None:
                left.append(str(error))
            continue
        except Hang as error:
            found.append(Difference(mode, "hang", normalize(str(error)), str(error)))
            continue
        except Fault as error:
            found.append(Difference(mode, "numbers", "fault", str(error)))
            continue
        except Exception as error:
            raised = make_difference(mode, error)
            if accelerators.has_accelerator() and accelerators.OUT_OF_MEMORY.search(raised.text):
                if left is not None:
                    left.append("the memory of the device is full")
                continue
            if raised.text.partition(": ")[2].startswith(BY_RULE):
                continue
            if mode != "explicit" or raised.kind != "refused":
                found.append(raised)
            continue
        if difference := find_difference(known, results, mode, rounded):
            found.append(difference)
    return found
