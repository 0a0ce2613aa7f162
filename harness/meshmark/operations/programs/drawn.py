# SPDX-License-Identifier: Apache-2.0
"""Programs that the generator of the hunt drew, judged by their definitions in NumPy.

Each line of `data/drawn_programs.jsonl` and `data/drawn_operations.jsonl` has one program, as
`{"program", "way", "dtypes", "right"}`:

- "way" says how it runs: "auto" and "explicit" by `jax.jit` with such axes, "eager" operation by operation, "permuted"
  over the devices in another order, and "donated" with every second argument donated.
- "dtypes" are those that JAX states for the operations.
- "right" has the results of a program with a derivative, which take too long to compute each time. Other results are
  computed from the definitions.

`tests/studies/drawn_programs.py` draws and chooses them.
A case judges one batch of programs. Its own program is that of `programs.forms.base`.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding

from meshmark.core.meshes import MeshShape
from meshmark.operations.base import Missing, Variant
from meshmark.operations.programs.forms.base import ProgramForm, at, over
from meshmark.operations.programs.small_rules.comparing import may_leave_out_devices
from meshmark.program_data import definitions, values
from meshmark.program_data.building import Builder, make_spec, permute_devices
from meshmark.program_data.program import Program, from_json

REST = "rest"
"""The name of the mesh axis over the devices that a program leaves over. Nothing is sharded over it."""


@dataclass(frozen=True)
class Drawn:
    """One program, how it runs, and what defines its results."""

    program: Program
    way: str
    dtypes: Any
    right: Any = None

    def compute(self) -> list[np.ndarray]:
        """The right results, whole."""
        if self.right is None:
            with np.errstate(all="ignore"):
                return definitions.compute_results(self.program, self.dtypes)
        return [
            np.array(r["data"], np.float64).reshape(r["shape"]).astype(values.dtype_of(r["dtype"]))
            for r in self.right
        ]


def from_line(line: str) -> Drawn:
    """A program from its line."""
    data = json.loads(line)
    return Drawn(from_json(data["program"]), data["way"], data["dtypes"], data.get("right"))


@dataclass(frozen=True)
class Store:
    """A file of programs."""

    path: Path
    batch: int
    """The number of programs that one case judges. Those over one mesh are compiled as one."""

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines of the file."""
        return tuple(self.path.read_text(encoding="utf-8").splitlines())

    @property
    def batches(self) -> dict[str, tuple[str, ...]]:
        """The lines of each batch, by its name."""
        parts = range(0, len(self.lines), self.batch)
        return {f"batch_{k // self.batch:02}": self.lines[k : k + self.batch] for k in parts}


DATA = Path(__file__).resolve().parents[1] / "data"

PROGRAMS = Store(DATA / "drawn_programs.jsonl", 8)
"""Programs of several operations."""

OPERATIONS = Store(DATA / "drawn_operations.jsonl", 48)
"""Programs of one kind of operation each."""


def fit(program: Program, count: int) -> Program | None:
    """The program over a mesh of `count` devices or fewer, with axis sizes that divide those that it was drawn with.
    None for a program with a `shard_map` whose mesh would be another one: its blocks would have other shapes."""
    sizes, left = [], count
    for _, size in program.axes:
        sizes.append(math.gcd(size, left))
        left //= sizes[-1]
    axes = tuple((name, size) for (name, _), size in zip(program.axes, sizes, strict=True))
    if "shard_map" in program.operations and (
        axes != program.axes or not (left == 1 or may_leave_out_devices())
    ):
        return None
    return replace(program, axes=axes)


def mesh_of(program: Program, devices: Sequence[Any], way: str) -> Mesh:
    """The mesh of a program. Devices that it does not need are left out, or are along an axis of their own."""
    shape = [size for _, size in program.axes]
    labels = [name for name, _ in program.axes]
    if may_leave_out_devices():
        devices = devices[: program.mesh_size]
    elif len(devices) > program.mesh_size:
        shape.append(len(devices) // program.mesh_size)
        labels.append(REST)
        devices = devices[: math.prod(shape)]
    if way == "permuted":
        devices = permute_devices(devices)
    kind = AxisType.Explicit if way == "explicit" else AxisType.Auto
    return Mesh(np.array(devices).reshape(shape), labels, axis_types=(kind,) * len(labels))


def put(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """A whole array on its devices, also on those of other processes."""
    return jax.make_array_from_callback(array.shape, sharding, lambda window: array[window])


class Ready:
    """A program with its mesh, its arguments and its function."""

    def __init__(self, drawn: Drawn, program: Program, devices: Sequence[Any]) -> None:
        self.drawn, self.program = drawn, program
        self.mesh = mesh_of(program, devices, drawn.way)
        self.host = values.make_inputs(program)
        with jax.enable_x64(program.x64):
            self.given = [
                put(x, NamedSharding(self.mesh, make_spec(i.spec)))
                for x, i in zip(self.host, program.inputs, strict=True)
            ]
        style = "explicit" if drawn.way == "explicit" else "auto"
        self.function = Builder(program, style, self.mesh).function()
        self.shardings = [
            None if spec is None else NamedSharding(self.mesh, make_spec(spec)) for spec in program.out_specs
        ]
        if program.transform.kind or drawn.way in ("eager", "explicit"):
            self.shardings = []

    def run(self) -> Sequence[Any]:
        """The results, by this program's way."""
        way = self.drawn.way
        with jax.enable_x64(self.program.x64):
            if way == "eager":
                return self.function(*self.given)
            if way == "explicit":
                with jax.set_mesh(self.mesh):
                    return jax.jit(self.function)(*self.given)
            donated = tuple(range(0, len(self.given), 2)) if way == "donated" else ()
            shardings = tuple(self.shardings) if self.shardings else None
            compiled = jax.jit(self.function, out_shardings=shardings, donate_argnums=donated)
            with warnings.catch_warnings():  # many results have no use for what is donated
                warnings.filterwarnings("ignore", "Some donated buffers were not usable")
                return compiled(*self.given)

    def find_wrong(self, found: Sequence[Any]) -> str:
        """What is wrong with the results, or with an argument that no call may change; "" if nothing is."""
        for k, (want, seen) in enumerate(zip(self.drawn.compute(), found, strict=True)):
            if seen.shape != want.shape or seen.dtype != want.dtype:
                return f"result {k} is {seen.dtype}{seen.shape} instead of {want.dtype}{want.shape}"
            place = self.shardings[k] if self.shardings else None
            if place is not None and not seen.sharding.is_equivalent_to(place, seen.ndim):
                return f"result {k} lies as {seen.sharding} instead of {place}"
            for shard in seen.addressable_shards:
                if said := compare(np.asarray(shard.data), want[shard.index]):
                    return f"result {k} on {shard.device}, {said}"
        for k, (x, host) in enumerate(zip(self.given, self.host, strict=True)):
            if x.is_deleted():
                if self.drawn.way != "donated" or k % 2:
                    return f"argument {k} is deleted"
                continue
            for shard in x.addressable_shards:
                if said := compare(np.asarray(shard.data), host[shard.index]):
                    return f"argument {k} changed on {shard.device}, {said}"
        return ""


def compare(seen: np.ndarray, want: np.ndarray) -> str:
    """How a block differs from the right one; "" if it does not. A NaN equals a NaN, and 0.0 equals -0.0."""
    if seen.shape != want.shape:
        return f"a block of {seen.shape} instead of {want.shape}"
    wide = np.complex128 if want.dtype.kind == "c" else np.float64 if want.dtype.kind in "fV" else want.dtype
    a, b = seen.astype(wide), want.astype(wide)
    with np.errstate(invalid="ignore"):
        wrong = (a != b) & ~((a != a) & (b != b))
    if not wrong.any():
        return ""
    place = tuple(np.argwhere(wrong)[0].tolist())
    return f"{np.count_nonzero(wrong)} of {want.size} elements: at {list(place)} expected {b[place]}, seen {a[place]}"


def name(drawn: Drawn) -> str:
    """A program's name, way and operations, for a message."""
    operations = ", ".join(dict.fromkeys(drawn.program.operations))
    return f"program {drawn.program.name} ({drawn.way}: {operations})"[:400]


def prepare(lines: Sequence[str], devices: Sequence[Any]) -> Iterator[Ready]:
    """The programs of these lines that these devices can run. Over several processes none runs operation by operation,
    or over devices in another order."""
    for line in lines:
        drawn = from_line(line)
        if jax.process_count() > 1 and drawn.way in ("eager", "permuted"):
            continue
        if program := fit(drawn.program, len(devices)):
            yield Ready(drawn, program, devices)


def judge(lines: Sequence[str], devices: Sequence[Any]) -> None:
    """Judge the programs of these lines. RuntimeError for the first one that is wrong or raises; its message names the
    program. Missing if these devices can run none of them: then nothing was judged."""
    together: dict[Any, list[Ready]] = {}
    others: list[Ready] = []
    ready = [*prepare(lines, devices)]
    if not ready:
        raise Missing(f"{len(devices)} devices can run none of these programs, which are drawn for 8")
    for one in ready:
        if one.drawn.way == "auto" and not one.program.x64:
            together.setdefault(one.program.axes, []).append(one)
        else:
            others.append(one)
    with jax.default_matmul_precision("highest"):
        for alike in together.values():
            for one, results in _run_together(alike):
                _refuse(one, one.find_wrong(results))
        for one in others:
            _refuse(one, one.find_wrong(_call(one)))


def _run_together(every: Sequence[Ready]) -> Iterator[tuple[Ready, Sequence[Any]]]:
    """The results of programs over one mesh that are compiled as one. If that raises, each runs alone, so that the
    message can name the program. JAX can't compile every program over two meshes (`programs.meshes.two`)."""

    def whole(arrays: Sequence[Sequence[Any]]) -> list[Any]:
        return [one.function(*given) for one, given in zip(every, arrays, strict=True)]

    shardings = [tuple(one.shardings) if one.shardings else None for one in every]
    try:
        found = jax.jit(whole, out_shardings=shardings)([one.given for one in every])
        jax.block_until_ready(found)
    except Exception as error:
        for one in every:
            _call(one)
        together = ", ".join(one.program.name for one in every)
        raise RuntimeError(
            f"programs {together} raise {type(error).__name__} if they are compiled as one, and none alone:"
            f" {str(error)[:300]}"
        ) from None
    yield from zip(every, found, strict=True)


def _call(ready: Ready) -> Sequence[Any]:
    """The results of one program. RuntimeError, with the name of the program, for what it raises."""
    try:
        return jax.block_until_ready(ready.run())
    except Exception as error:
        raise RuntimeError(f"{name(ready.drawn)} raises {type(error).__name__}: {str(error)[:300]}") from None


def _refuse(ready: Ready, said: str) -> None:
    """RuntimeError if something is said against a program."""
    if said:
        raise RuntimeError(f"{name(ready.drawn)}: {said}")


def judges_of(store: Store) -> dict[str, Callable[..., None]]:
    """By batch: a function that takes the devices and judges its programs."""
    return {name: partial(judge, lines) for name, lines in store.batches.items()}


class DrawnPrograms(ProgramForm):
    """Programs that a generator drew, of any operations, forms and shardings, against their definitions in NumPy."""

    name = "drawn_programs"
    store: ClassVar[Store] = PROGRAMS
    two_axes: ClassVar[tuple[str, ...]] = ()
    forms: ClassVar[dict[str, Callable[..., Any]]] = judges_of(PROGRAMS)

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return None

    @staticmethod
    def host(mesh, x, *, form, axis):
        DrawnPrograms.forms[form]([*mesh.devices.ravel()])
        return jax.jit(over(mesh, axis))(put(np.asarray(x), at(mesh, axis)))


class DrawnOperations(DrawnPrograms):
    """Each kind of operation of the generator, several times: other arguments, dtypes, shardings, forms around it."""

    name = "drawn_operations"
    store: ClassVar[Store] = OPERATIONS
    forms: ClassVar[dict[str, Callable[..., Any]]] = judges_of(OPERATIONS)

    @staticmethod
    def host(mesh, x, *, form, axis):
        DrawnOperations.forms[form]([*mesh.devices.ravel()])
        return jax.jit(over(mesh, axis))(put(np.asarray(x), at(mesh, axis)))
