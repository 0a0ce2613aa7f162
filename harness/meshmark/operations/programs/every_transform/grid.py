# SPDX-License-Identifier: Apache-2.0
"""One example under every transform: values, tangents, cotangents, batches, and what is stored or only described.

An example is a function of a few arrays and its definition in NumPy. As a function of its arrays of floats it is a
polynomial of a degree of at most four with whole coefficients. The derivative of such a polynomial in one direction
follows from four values (Abramowitz and Stegun, 25.3.6). So NumPy gives every derivative exactly, and JAX must give the
same numbers: no bound is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshmark.operations.programs.forms.base import at
from meshmark.operations.programs.forms.collective_options import parts_same_as, same_as

Arrays = tuple[np.ndarray, ...]
Check = tuple[Callable[..., Any], Sequence[np.ndarray], Sequence[Any], Any]
"""A function, its arrays, their specs, and the expected leaves."""


@dataclass(frozen=True)
class Example:
    """A function of arrays with its definition.

    function: takes the arrays and returns a tuple of arrays.
    define: the same in NumPy, for float64. Its keyword `still` has the arrays in whose place no derivative is taken
    (what `stop_gradient` holds).
    arguments: whole numbers. Arrays of integers are places: they have no derivative.
    specs: one for each argument.
    """

    function: Callable[..., tuple[Any, ...]]
    define: Callable[..., Arrays]
    arguments: Arrays
    specs: tuple[tuple[Any, ...], ...]
    reverse: bool = True
    """Whether it has cotangents. A loop of unknown length has none."""
    kinds: tuple[Any, ...] = (np.float32, jnp.bfloat16)
    spread: bool = False
    """Whether a batch can lie along another mesh axis (`spmd_axis_name`)."""

    @property
    def floats(self) -> list[int]:
        """The positions of the arguments that have derivatives."""
        return [i for i, argument in enumerate(self.arguments) if argument.dtype.kind == "f"]


def values(example: Example, arrays: Sequence[np.ndarray], still: Sequence[np.ndarray] = ()) -> Arrays:
    """The results by definition."""
    return example.define(*arrays, still=still or arrays)


def tangent(example: Example, arrays: Sequence[np.ndarray], directions: dict[int, np.ndarray]) -> Arrays:
    """The derivative of the results in these directions, exact up to the fourth degree."""

    def moved(step: int) -> Arrays:
        places = [a + step * directions[i] if i in directions else a for i, a in enumerate(arrays)]
        return values(example, places, arrays)

    one, two = zip(moved(1), moved(-1), strict=True), zip(moved(2), moved(-2), strict=True)
    return tuple((8 * (p - m) - (pp - mm)) / 12 for (p, m), (pp, mm) in zip(one, two, strict=True))


def cotangent(
    example: Example, arrays: Sequence[np.ndarray], position: int, weights: Sequence[np.ndarray]
) -> np.ndarray:
    """The gradient of the weighted sum of the results by one argument."""
    found = np.zeros(arrays[position].shape)
    for place in np.ndindex(found.shape):
        unit = np.zeros(found.shape)
        unit[place] = 1
        moved = tangent(example, arrays, {position: unit})
        found[place] = sum((w * m).sum() for w, m in zip(weights, moved, strict=True))
    return found


def whole(*shape: int, start: int = 0, low: int = -1, high: int = 2) -> np.ndarray:
    """Whole numbers without a pattern, from -1 to 2, so that a few products and sums of them fit bfloat16."""
    return np.random.default_rng([start, *shape]).integers(low, high, shape, endpoint=True).astype(np.float64)


def directions(example: Example) -> dict[int, np.ndarray]:
    """A tangent of -1, 0 and 1 for each argument of floats."""
    return {i: whole(*example.arguments[i].shape, start=10 + i, high=1) for i in example.floats}


def weights_of(results: Arrays) -> Arrays:
    """Whole weights of each result."""
    return tuple(whole(*r.shape, start=20 + k) for k, r in enumerate(results))


def derivatives(example: Example, kind: Any) -> Iterator[tuple[str, Check]]:
    """Checks of tangents and cotangents, by some and by all arguments."""
    given, f, floats = example.arguments, example.function, example.floats
    steps, results = directions(example), values(example, given)

    def by(arrays: Sequence[Any], positions: Sequence[int]) -> Callable[..., Any]:
        """The function of the arguments at these positions; the others are what they are."""
        return lambda *some: f(
            *[some[positions.index(i)] if i in positions else a for i, a in enumerate(arrays)]
        )

    for size in range(1, len(floats) + 1):
        for some in combinations(floats, size):

            def pushed(*arrays: Any, some: Any = some) -> Any:
                moves = [jnp.asarray(steps[i], kind) for i in some]
                return jax.jvp(by(arrays, some), [arrays[i] for i in some], moves)[1]

            right = tangent(example, given, {i: steps[i] for i in some})
            yield f"the tangent by arguments {some}", (pushed, given, example.specs, right)
    if not example.reverse:
        return

    def linearized(*arrays: Any) -> Any:
        moves = [jnp.asarray(steps[i], kind) for i in floats]
        return jax.linearize(by(arrays, floats), *[arrays[i] for i in floats])[1](*moves)

    yield "the linearized function", (linearized, given, example.specs, tangent(example, given, steps))
    weights = weights_of(results)
    slopes = {i: cotangent(example, given, i, weights) for i in floats}

    def loss(*arrays: Any, g: Any = f) -> Any:
        return sum((jnp.asarray(w, kind) * r).sum() for w, r in zip(weights, g(*arrays), strict=True))

    backwards = tuple(floats[::-1])
    yield (
        "the gradient by all arguments, the last first",
        (
            lambda *arrays: jax.grad(loss, argnums=backwards)(*arrays),
            given,
            example.specs,
            [slopes[i] for i in backwards],
        ),
    )

    def again(*arrays: Any) -> Any:
        return jax.grad(lambda *p: loss(*p, g=jax.checkpoint(f)), argnums=tuple(floats))(*arrays)

    yield "the gradient with nothing kept", (again, given, example.specs, [slopes[i] for i in floats])
    for k, weight in [*enumerate(weights)][:: max(1, len(weights) - 1)]:  # the first result and the last one

        def pulled(*arrays: Any, k: int = k, weight: Any = weight) -> Any:
            back = jax.vjp(lambda *some: by(arrays, floats)(*some)[k], *[arrays[i] for i in floats])[1]
            return back(jnp.asarray(weight, kind))

        alone = tuple(w if j == k else 0 * w for j, w in enumerate(weights))
        right = tuple(cotangent(example, given, i, alone) for i in floats)
        yield f"the cotangents of result {k} alone", (pulled, given, example.specs, right)
    first = floats[0]

    def bent(*arrays: Any) -> Any:
        slope = jax.grad(lambda v: loss(*arrays[:first], v, *arrays[first + 1 :]))
        return (jax.jvp(slope, (arrays[first],), (jnp.asarray(steps[first], kind),))[1],)

    def slope_at(step: int) -> np.ndarray:
        # What no derivative is taken of moves with the first derivative's point.
        moved = [a + step * steps[i] if i == first else a for i, a in enumerate(given)]
        return cotangent(example, moved, first, weights)

    right = (8 * (slope_at(1) - slope_at(-1)) - (slope_at(2) - slope_at(-2))) / 12
    yield "the tangent of the gradient", (bent, given, example.specs, (right,))


def stacked(array: np.ndarray, size: int, axis: int) -> np.ndarray:
    """A batch of an array: turned by one place for each member. Places go on by one."""
    members = [array + b if array.dtype.kind == "i" else np.roll(array, b) for b in range(size)]
    return np.stack(members, axis)


def inserted(spec: Sequence[Any], axis: int, ndim: int, name: Any = None) -> tuple[Any, ...]:
    """The spec of a batch of arrays of these dimensions along an axis."""
    full = [*spec, *(None,) * (ndim - len(spec))]
    full.insert(axis % (ndim + 1), name)
    return tuple(full)


def batches(example: Example, mesh: Any, kind: Any) -> Iterator[tuple[str, Check]]:
    """Checks of batches of all and of some arguments, along several dimensions, and of gradients of them."""
    given = example.arguments
    alike = max(a.shape[0] if a.ndim else 1 for a in given)  # a batch as long as a dimension
    ways: dict[str, tuple[int, list[int | None], int]] = {
        "of all arguments along the first dimension": (alike, [0] * len(given), 0),
        "of all arguments along the last dimension": (3, [-1] * len(given), -1),
        "of the first argument along its second dimension": (
            alike,
            [min(1, given[0].ndim), *(None,) * (len(given) - 1)],
            0,
        ),
    }
    if len(given) > 1:
        ways["of all arguments but the first"] = (3, [None, *(0,) * (len(given) - 1)], 0)
    for way, (size, axes, out) in ways.items():
        arrays = [
            a if axis is None else stacked(a, size, axis % (a.ndim + 1))
            for a, axis in zip(given, axes, strict=True)
        ]
        specs = [
            s if axis is None else inserted(s, axis, a.ndim)
            for s, a, axis in zip(example.specs, given, axes, strict=True)
        ]
        members = [
            [a if axis is None else np.take(a, b, axis) for a, axis in zip(arrays, axes, strict=True)]
            for b in range(size)
        ]
        right = [
            np.stack(r, 0 if out == 0 else r[0].ndim)
            for r in zip(*(values(example, m) for m in members), strict=True)
        ]
        mapped = jax.vmap(example.function, in_axes=tuple(axes), out_axes=out)
        yield f"a batch {way}", (mapped, arrays, specs, right)
        if way != next(iter(ways)) or not example.reverse:
            continue
        weights, floats = weights_of(values(example, given)), example.floats

        def slopes(*arrays: Any, mapped: Any = mapped, weights: Any = weights, floats: Any = floats) -> Any:
            def loss(*some: Any) -> Any:
                whole = [some[floats.index(i)] if i in floats else a for i, a in enumerate(arrays)]
                return sum(
                    (jnp.asarray(w, kind) * r).sum() for w, r in zip(weights, mapped(*whole), strict=True)
                )

            return jax.grad(loss, argnums=tuple(range(len(floats))))(*[arrays[i] for i in floats])

        right = [np.stack([cotangent(example, m, i, weights) for m in members[:2]]) for i in floats]

        def first_two(*arrays: Any, slopes: Any = slopes) -> Any:
            return [s[:2] for s in slopes(*arrays)]

        yield f"the gradient of a batch {way}", (first_two, arrays, specs, right)
    if example.spread and len(mesh.axis_names) > 1:
        name = mesh.axis_names[0]
        size = 2 * mesh.shape[name]
        arrays = [stacked(a, size, min(1, a.ndim)) for a in given]
        specs = [inserted(s, min(1, a.ndim), a.ndim, name) for s, a in zip(example.specs, given, strict=True)]
        members = [
            [np.take(a, b, min(1, g.ndim)) for a, g in zip(arrays, given, strict=True)] for b in range(size)
        ]
        right = [np.stack(r, 1) for r in zip(*(values(example, m) for m in members), strict=True)]
        mapped = jax.vmap(
            example.function, in_axes=tuple(min(1, g.ndim) for g in given), out_axes=1, spmd_axis_name=name
        )
        yield f"a batch over the mesh axis {name}", (mapped, arrays, specs, right)


def alone(example: Example) -> Iterator[tuple[str, Check]]:
    """Checks of the function with one of its results alone, which leaves the others unused."""
    for k, right in enumerate(values(example, example.arguments)):
        yield (
            f"result {k} alone",
            (
                lambda *arrays, k=k: (example.function(*arrays)[k],),
                example.arguments,
                example.specs,
                (right,),
            ),
        )


def described(example: Example, placed: Sequence[Any], kind: Any, what: str) -> None:
    """Compare the function that is compiled ahead of time, with keywords in another order, and its described results,
    with the definition."""
    results = values(example, example.arguments)
    names = "qpsrt"[: len(placed)]  # JAX sorts keywords, and these are not in that order
    function = jax.jit(lambda **named: example.function(*[named[n] for n in names]))
    named = dict(zip(names, placed, strict=True))
    backwards = dict(reversed(named.items()))
    compiled = function.lower(**named).compile()
    for one, right in zip(compiled(**backwards), results, strict=True):
        same_as(np.asarray(one), right.astype(kind), f"{what}, compiled ahead of time,")
    for one, right in zip(jax.eval_shape(function, **named), results, strict=True):
        shape = np.broadcast_to(np.zeros((), one.dtype), one.shape)
        same_as(shape, np.zeros(right.shape, kind), f"{what}, described by eval_shape,")


IN_EACH_DTYPE = (
    "result 0 alone",
    "a batch of all arguments along the first dimension",
    "the linearized function",
    "the gradient by all arguments, the last first",
)
"""The checks of the dtypes after the first. They compile one program each, which takes its time."""


MOST_DEVICES = 16
"""The number of devices up to which all numbers fit bfloat16, and up to which definitions take little time."""


def few(devices: np.ndarray) -> np.ndarray:
    """At most sixteen of the devices of a mesh, along the same axes: the longest axis is halved until they are."""
    while devices.size > MOST_DEVICES:
        longest = int(np.argmax(devices.shape))
        devices = np.take(devices, range(devices.shape[longest] // 2), longest)
    return devices


def compare(mesh: Any, example: Example, name: str) -> None:
    """Compare an example under every transform with its definition, in each of its dtypes. RuntimeError for the first
    difference."""
    for kind in example.kinds:
        checks = dict(alone(example)) | dict(batches(example, mesh, kind)) | dict(derivatives(example, kind))
        if kind != example.kinds[0]:
            checks = {way: check for way, check in checks.items() if way in IN_EACH_DTYPE}
        placed = {
            way: [
                jax.device_put(a.astype(kind if a.dtype.kind == "f" else np.int32), at(mesh, *spec))
                for a, spec in zip(arrays, specs, strict=True)
            ]
            for way, (_, arrays, specs, _) in checks.items()
        }
        with jax.default_matmul_precision("highest"):
            found = jax.jit(lambda arrays, checks=checks: {w: c[0](*arrays[w]) for w, c in checks.items()})(
                placed
            )
            what = f"{name} of {np.dtype(kind)}"
            for way, (_, _, _, right) in checks.items():
                for k, (one, other) in enumerate(zip(found[way], right, strict=True)):
                    parts_same_as(one, np.asarray(other).astype(kind), f"{way} of {what}, {k},")
            arrays = placed["result 0 alone"]
            for one, other in zip(example.function(*arrays), values(example, example.arguments), strict=True):
                same_as(np.asarray(one), other.astype(kind), f"the eager result of {what}")
            described(example, arrays, kind, what)
