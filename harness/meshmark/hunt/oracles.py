# SPDX-License-Identifier: Apache-2.0
"""Judges one program in this process: sharding must never change a program's results.

The truth is the same program without any sharding, compiled for one device. A `Difference` describes a deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from meshmark.hunt import accelerators, derivatives
from meshmark.hunt.differences import (
    EXACT,
    Difference,
    Truth,
    derive_tolerance,
    find_difference,
    first_difference,
    first_wrongness,
    make_difference,
    mark_wrong,
    normalize,
)
from meshmark.hunt.drawing import HALVED, LOOPS, ROUNDING, TIED
from meshmark.hunt.spellings import Inapplicable, spell_manually, turn_mesh
from meshmark.interpreter.faults import Fault, Hang
from meshmark.program_data import definitions
from meshmark.program_data.building import Builder, find_dtypes, make_spec, mesh_of, permute_devices
from meshmark.program_data.program import Program, walk_nodes
from meshmark.program_data.values import make_inputs

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


class Invalid(Exception):
    """The plain program can't be run or judged; the message is the reason."""


class ChangedArgument(Exception):
    """A program changed or deleted an argument that was not donated."""


class NotRun(Exception):
    """A mode that can't be run here, or has something that the interpreter does not know; the message names it."""


Runner = Callable[[Program, str], Sequence[Any]]
"""A function that gives the results of a program in a mode."""


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
            return definitions.compute_results(program, find_dtypes(program))
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
        if given[k].is_deleted() or mark_wrong(np.asarray(given[k]), arrays[k], 0.0).any():
            raise ChangedArgument(f"argument {k} was not donated, and is changed")
    return found


def compare_with_definition(program: Program, known: Truth, rounded: bool) -> Difference | None:
    """The difference between the unsharded program and NumPy; None if there is none. Inapplicable if the program has
    too large numbers, or an operation without a definition."""
    if known.largest >= EXACT:
        raise Inapplicable("no exact numbers")
    try:
        with jax.enable_x64(program.x64), np.errstate(all="ignore"):
            found = definitions.compute_results(program, find_dtypes(program))
    except (definitions.Undefined, OverflowError) as error:  # NumPy refuses -1 as an unsigned integer
        raise Inapplicable(str(error)) from None
    for k, (want, seen) in enumerate(zip(found, known.results, strict=True)):
        if (
            want.shape != seen.shape
            or (wrong := mark_wrong(seen, want, derive_tolerance(known, want, rounded))).any()
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


NOT_IN_FLOAT64 = "a derivative in float64"
"""The start of the reason of a comparison that was not made, because the derivative raised an error in float64."""


def compare_with_slope(program: Program, known: Truth, rounded: bool) -> Difference | None:
    """The difference between the unsharded derivative and one in float64, or between that and differences of the
    function (`meshmark.hunt.derivatives`); None if there is none. Inapplicable to a program without a derivative, to
    one with special values, and to one that stops a derivative. NotRun if JAX can't run it in float64."""
    if not program.transform.kind or program.special or "stop_gradient" in str(program.nodes):
        raise Inapplicable("no derivative, or another one than the function's")
    try:
        wide, slope = derivatives.compute_wide(program), derivatives.find_wrong_slope(program)
    except Exception as error:
        raise NotRun(f"{NOT_IN_FLOAT64} ({type(error).__name__})") from None
    # Between float64 and narrower floats everything rounds, so the bound is that of a program that does.
    right = [w.astype(r.dtype) for w, r in zip(wide, known.results, strict=True)]
    said = slope or first_difference(
        known.results, right, known, True, "one device differs from the derivative in float64"
    )
    return Difference(DERIVATIVE, "oracles", "derivative", said) if said else None


BESIDE = {
    NUMPY: compare_with_definition,
    HOST: compare_with_host,
    ALONE: compare_with_alone,
    DERIVATIVE: compare_with_slope,
}
"""The modes that compare the unsharded program with another oracle, with their functions."""


BY_RULE = ("Make sure that the axis_name passed to jax.lax",)
"""The start of JAX's message if it refuses a program by a documented rule: from 0.11 on `ppermute` over axes in another
order than the mesh's. Such a refusal is not a finding."""


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
