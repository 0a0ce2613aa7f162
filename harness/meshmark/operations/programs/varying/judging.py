# SPDX-License-Identifier: Apache-2.0
"""How functions of varying inputs are judged: their types, the refusal of P(), their values and their gradients.

A function takes an array that is the same on all devices, and a number that each device makes for itself. Its
definition takes the same array in NumPy, and the number of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import reason_of

GIVEN = np.array([0.25, 0.875, 1.625, 2.75])
"""The argument that is the same on all devices. No number is one at which a function of the tables jumps."""

KINDS = 4
"""A device's number is its index over the axis, modulo this."""

STEP = 1e-5
"""The step of the central differences, in float64: its error is far below FAR."""

FAR = 2e-3
"""The largest difference, relative and as a share of the largest number. The gradients are of float32."""

Own = Callable[[], Any]
"""Gives the number of a device. Inside of a shard_map it varies over the axis."""

Pairs = Mapping[str, tuple[Callable[[Any, Own], Any], Callable[[Any, Own], Any]]]
"""Name -> a function of an array and an `Own`, and its definition. Both give one array."""


def both(function: Callable[[Any, Any, Own], Any]) -> tuple[Any, Any]:
    """A function and its definition from one function of a namespace (jnp or np), an array and an `Own`."""
    return partial(function, jnp), partial(function, np)


def weights(shape: tuple[int, ...], device: Any) -> Any:
    """Weights of a result's elements on a device. Neighbours and devices have different weights."""
    count = int(np.prod(shape, dtype=int))
    return ((np.arange(count).reshape(shape) * 5 + 3 * device) % 7 + 1) / 4.0


def varying_axes(value: Any) -> set[str]:
    """The mesh axes over which a value varies, by its type."""
    kind = jax.typeof(value)
    return set(kind.mat.varying if hasattr(kind, "mat") else kind.vma)


class Definitions:
    """The values of definitions for each number of a device, and their derivatives by central differences."""

    def __init__(self, pairs: Pairs) -> None:
        self.values: dict[str, list[np.ndarray]] = {}
        self.slopes: dict[str, list[list[np.ndarray]]] = {}
        moves = np.eye(GIVEN.size) * STEP
        for name, (_, define) in pairs.items():
            self.values[name], self.slopes[name] = [], []
            for k in range(KINDS):
                given = (GIVEN, *(GIVEN + moves), *(GIVEN - moves))
                at, *moved = [np.asarray(define(y, partial(int, k)), np.float64) for y in given]
                up, down = moved[: GIVEN.size], moved[GIVEN.size :]
                self.values[name].append(at)
                self.slopes[name].append([(u - d) / (2 * STEP) for u, d in zip(up, down, strict=True)])

    def rows(self, count: int) -> dict[str, np.ndarray]:
        """The values of each definition on so many devices."""
        return {name: np.stack([at[d % KINDS] for d in range(count)]) for name, at in self.values.items()}

    def gradients(self, count: int) -> dict[str, np.ndarray]:
        """The gradient of the losses of so many devices."""

        def of_device(slopes: list[np.ndarray], d: int) -> np.ndarray:
            return np.array([(slope * weights(slope.shape, d)).sum() for slope in slopes])

        return {
            name: np.sum([of_device(slopes[d % KINDS], d) for d in range(count)], axis=0)
            for name, slopes in self.slopes.items()
        }


Arrays = Mapping[str, Any]
"""One array for each function."""

Run = Callable[[Pairs], Arrays]
"""Runs functions and gives one result for each."""


class Judged:
    """The outcome of a table of functions: for each function that is wrong, in what it is."""

    def __init__(self) -> None:
        self.wrong: dict[str, list[str]] = {}
        self.first = ""

    def add(self, name: str, what: str, detail: str) -> None:
        """Write down that a function is wrong."""
        self.wrong.setdefault(name, []).append(what)
        self.first = self.first or f"{name}: {detail}"

    def step(self, what: str, pairs: Pairs, run: Run, right: Arrays) -> None:
        """Run all functions in one program, and compare. Where that raises, run each alone to find which it is."""
        try:
            found = dict(run(pairs) if pairs else {})
        except Exception as error:
            found, before = {}, len(self.wrong)
            for name, pair in pairs.items():
                try:
                    found |= run({name: pair})
                except Exception as own:
                    self.add(name, f"{what} raises {type(own).__name__}", reason_of(own)[:200])
            # Each function is right alone, so the cause is in the program of all.
            if len(self.wrong) == before and len(found) == len(pairs):
                raise error
        for name, seen in found.items():
            seen, expected = np.asarray(seen, np.float64), right[name]
            most = FAR * max(1.0, np.abs(expected).max(initial=0))
            if seen.shape != expected.shape or not np.allclose(seen, expected, rtol=FAR, atol=most):
                self.add(name, what, f"{what} {seen.tolist()}, not {expected.tolist()}"[:300])

    def refusal(self, name: str, what: str, call: Callable[[], Any]) -> None:
        """Write down if a result that varies is taken by out_specs=P()."""
        try:
            call()
        except Exception as error:
            reason = f"{type(error).__name__}: {reason_of(error)}"
            if "out_specs" not in reason:
                self.add(name, f"{what} refused for another reason", reason[:200])
        else:
            self.add(name, what, "out_specs=P() is taken")

    def end(self) -> None:
        """RuntimeError if a function is wrong: each set of kinds with its functions, and the first difference."""
        groups: dict[str, list[str]] = {}
        for name, kinds in self.wrong.items():
            groups.setdefault(", ".join(kinds), []).append(name)
        what = "; ".join(f"({kinds}) of {', '.join(names)}" for kinds, names in groups.items())
        wrong(bool(what), f"wrong: {what}. First, {self.first}")


class ProgramMaker:
    """Makes programs of many functions over one axis of a mesh.

    by: "index", where a device's number is its index over the axis, or "data", where it is in an array that is sharded
    over the axis. options: of `jax.shard_map`."""

    def __init__(self, mesh: Any, axis: str, by: Literal["index", "data"], **options: Any) -> None:
        self.mesh, self.axis, self.options = mesh, axis, options
        numbers = np.arange(mesh.shape[axis], dtype=np.int32)
        self.rest = () if by == "index" else (numbers,)
        self.types: dict[str, set[str]] = {}

    def device(self, *rest: Any) -> Any:
        """The number of the device, inside of a shard_map."""
        return rest[0][0] if rest else lax.axis_index(self.axis)

    def own(self, *rest: Any) -> Own:
        """The `Own` of the device."""
        return lambda: self.device(*rest) % KINDS

    def mapped(self, function: Callable[..., Any], out_specs: Any = None) -> Callable[[Any], Any]:
        """The shard_map of a function of arrays that are the same on all devices, and of the rest."""
        specs = (P(), *(P(self.axis) for _ in self.rest))
        out_specs = P(self.axis) if out_specs is None else out_specs
        over = jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out_specs, **self.options)
        return lambda arrays: over(arrays, *self.rest)

    def values(self, pairs: Pairs) -> Callable[[Arrays], Arrays]:
        """The results of all functions, with a row for each device. Their types are kept in `types`."""

        def local(arrays: Arrays, *rest: Any) -> Arrays:
            found = {name: function(arrays[name], self.own(*rest)) for name, (function, _) in pairs.items()}
            self.types.update({name: varying_axes(y) for name, y in found.items()})
            return {name: y[None] for name, y in found.items()}

        return self.mapped(local)

    def replicated(self, function: Callable[[Any, Own], Any]) -> Callable[[Any], Any]:
        """One function whose result is taken for the same on all devices."""
        return self.mapped(lambda x, *rest: function(x, self.own(*rest)), P())

    def loss(self, pairs: Pairs, arrays: Arrays, *rest: Any) -> Any:
        """The sum of all results of one device, each element times its weight."""
        found = [function(arrays[name], self.own(*rest)) for name, (function, _) in pairs.items()]
        device = self.device(*rest)
        return sum((y.astype(jnp.float32) * weights(y.shape, device)).sum() for y in found)

    def gradient(self, pairs: Pairs) -> Callable[[Arrays], Arrays]:
        """The gradient of all losses by the arrays, from outside of the shard_map."""
        over = self.mapped(lambda *given: self.loss(pairs, *given)[None])
        return jax.grad(lambda arrays: over(arrays).sum())

    def gradient_inside(self, pairs: Pairs) -> Callable[[Arrays], Arrays]:
        """The gradient of the sum of all losses, inside of the shard_map."""

        def local(arrays: Arrays, *rest: Any) -> Arrays:
            return jax.grad(lambda z: lax.psum(self.loss(pairs, z, *rest), self.axis))(arrays)

        return self.mapped(local, P())


def _jitted(make: Callable[[Pairs], Callable[[Arrays], Arrays]]) -> Run:
    return lambda pairs: jax.jit(make(pairs))({name: GIVEN.astype(np.float32) for name in pairs})


def judge(line: Any, grid: Any, pairs: Pairs, eagerly: bool = True) -> None:
    """Judge functions over the axis "d" of a mesh `line`, and over the axis "x" of a mesh `grid` over "x" and "y".

    eagerly: whether the first function is run without jit too. RuntimeError names each function that is wrong, with
    - type: `jax.typeof` does not say that the result varies over "d"; type over x: over "x" and not over "y";
    - P(): `out_specs=P()` is taken; eager P(): without jit;
    - values, values over x: the results of all devices are wrong;
    - gradient (by the array that is the same on all devices): from outside of the shard_map, inside (of a psum),
      unchecked (check_vma=False), over x, and eager (without jit);
    - and where one of these raises, the error. A function whose values are wrong or raise is run no further."""
    judged = Judged()
    by_index, by_data = ProgramMaker(line, "d", "index"), ProgramMaker(grid, "x", "data")
    unchecked = ProgramMaker(line, "d", "data", check_vma=False)
    given = GIVEN.astype(np.float32)
    definitions = Definitions(pairs)
    gradients = definitions.gradients(line.size)
    judged.step("values", pairs, _jitted(by_index.values), definitions.rows(line.size))
    pairs = {name: pair for name, pair in pairs.items() if name not in judged.wrong}
    for name, axes in by_index.types.items():
        if axes != {"d"}:
            judged.add(name, "type", f"varies over {sorted(axes)}")
    for name, (function, _) in pairs.items():
        judged.refusal(name, "P()", partial(jax.eval_shape, by_index.replicated(function), given))
    judged.step("gradient", pairs, _jitted(by_index.gradient), gradients)
    judged.step("gradient inside", pairs, _jitted(by_index.gradient_inside), gradients)
    judged.step("gradient unchecked", pairs, _jitted(unchecked.gradient), gradients)
    if eagerly and pairs:
        name, pair = next(iter(pairs.items()))
        judged.step(
            "eager gradient", {name: pair}, lambda some: by_index.gradient(some)({name: given}), gradients
        )
        judged.refusal(name, "eager P()", partial(by_index.replicated(pair[0]), given))
    rows = grid.shape["x"]
    judged.step("values over x", pairs, _jitted(by_data.values), definitions.rows(rows))
    for name, axes in by_data.types.items():
        if axes != {"x"}:
            judged.add(name, "type over x", f"varies over {sorted(axes)}")
    judged.step("gradient over x", pairs, _jitted(by_data.gradient), definitions.gradients(rows))
    judged.end()
