# SPDX-License-Identifier: Apache-2.0
"""JAX functions in groups. One program computes every function of its group from the same two arrays.

A group costs one compilation; separate functions would cost one compilation each. Each function has a name, a JAX
program and a NumPy definition. The definition gives the shapes of the results. A result is sharded like the first
argument, along each dimension that the mesh axes divide. Each function takes whole arrays, so manual mode gathers both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.layout import Spec, axes_of
from meshmark.core.values import whole as every
from meshmark.operations.base import Argument, Missing, Request, Result, Variant
from meshmark.operations.functions.wholes import MAIN, Form, WholeFunction

Member = tuple[Callable[..., Any], Callable[..., Any]]
"""(JAX function, NumPy definition), both of two arrays. Each returns an array or a tuple of arrays."""

Groups = Mapping[str, Mapping[str, Member]]


def both(function: Callable[..., Any]) -> Member:
    """A member from one function that works with jax.numpy and NumPy. The function's first argument is the module."""
    return lambda x, y: function(jnp, x, y), lambda x, y: function(np, x, y)


class Catalogue(WholeFunction):
    """The base of function groups. A subclass sets `groups` and `fill`, the values of its arguments. It defines `whole`
    with `in_jax` and `reference` with `in_numpy`. Both name their module's groups, so that `meshmark repro` can copy
    them."""

    groups: ClassVar[Groups] = {}
    rare: ClassVar[tuple[str, ...]] = ()
    """The groups that are not in the standard profile."""
    verdict: ClassVar[Any] = "exact"
    fill: ClassVar[tuple[Callable[..., np.ndarray], Mapping[str, Any]]]

    def choices(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for group, members in self.groups.items():
            yield int(group in self.rare), {"group": group}
            for function in members:
                yield 3, {"group": group, "function": function}

    def dims(self) -> tuple[int | None, ...]:
        return (None,)

    def differentiable(self, options: Mapping[str, Any]) -> bool:
        """Only whole groups have gradients: a single function may not use both arrays."""
        return "function" not in options

    def mode_weight(self, mode: str, variant: Variant) -> int | None:
        """The standard profile runs each group in one of the modes `MAIN`; the groups rotate through them."""
        if mode not in MAIN:
            return None
        turn = [*self.groups].index(variant["group"]) + self.differentiated
        return int(mode != MAIN[turn % len(MAIN)])

    def form(self, request: Request, x: Argument) -> Form:
        group, function = request.variant["group"], request.variant.get("function")
        names = (function,) if function else tuple(self.groups[group])
        fill, options = self.fill
        x = Argument(x.shape, x.dtype, x.spec, fill, dict(options))
        results, counts = [], []
        for name in names:
            shapes = shapes_of(type(self), group, name, x.shape, x.dtype)  # type: ignore[arg-type]
            counts.append(len(shapes))
            results += [Result(s, kind, spread(s, x, request.mesh.sizes)) for s, kind in shapes]
        return Form(
            (x, x),
            tuple(results),
            {"group": group, "names": names, "kinds": tuple(r.dtype for r in results)},
            mixed=((0, 1), (0, 1)),
            kept=tuple(tuple(range(len(r.shape))) for r in results),
            judge=self.verdict,
            wrt=(0, 1) if self.moves else (),
            terms=1 << 12,
        )

    def traffic(self, *args: Any) -> None:
        """None (not stated): a group may need only part of both arrays, and the compiler combines the sums of many
        results."""


def spread(shape: tuple[int, ...], x: Argument, sizes: Mapping[str, int]) -> Spec:
    """The spec of x, without the entries of dimensions that are empty or that the mesh axes do not divide."""
    entries = (*x.spec, *(None,) * len(shape))
    return tuple(
        e if n and n % int(np.prod([sizes[a] for a in axes_of(e)], dtype=int)) == 0 else None
        for n, e in zip(shape, entries, strict=False)
    )


def outputs(value: Any) -> tuple[Any, ...]:
    """One array or several, as a tuple."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


@lru_cache(maxsize=4096)
def shapes_of(
    cls: Any, group: str, name: str, shape: tuple[int, ...], dtype: str
) -> tuple[tuple[Any, str], ...]:
    """(shape, dtype) of each result of one function of a Catalogue subclass."""
    fill, options = cls.fill
    block = Argument(shape, dtype, (), fill, dict(options)).block(0, every(shape))
    if cls.verdict != "bits":
        block = block.astype(np.int64 if dtype_of(dtype).kind in ("int", "uint") else np.float64)
    with np.errstate(all="ignore"):
        found = outputs(cls.groups[group][name][1](block, block))
    return tuple((np.shape(a), kind_of(np.asarray(a).dtype, dtype)) for a in found)


def kind_of(kind: np.dtype, dtype: str) -> str:
    """The dtype of the JAX result, given the dtype of NumPy's wider result and the argument's dtype."""
    if kind.kind == "b":
        return "bool"
    if kind.kind in "iu" and kind.itemsize > 4:
        return "int32"
    if kind == np.float64:
        return dtype if dtype_of(dtype).kind == "float" else "float32"
    return dtype if dtype_of(dtype).numpy == kind else str(kind)


def newer(module: Any, name: str) -> Any:
    """`module.name`, a public function that older JAX releases lack. Raises Missing if it is absent."""
    if not hasattr(module, name):
        raise Missing(f"this release has no {module.__name__}.{name}")
    return getattr(module, name)


def in_jax(members: Mapping[str, Member], x: Any, y: Any, names: Sequence[str], kinds: Sequence[str]) -> Any:
    """The results of the named functions in JAX, cast to `kinds`."""
    found: list[Any] = []
    for name in names:
        found += outputs(members[name][0](x, y))
    done = tuple(a.astype(k) for a, k in zip(found, kinds, strict=True))
    return done if len(done) > 1 else done[0]


def in_numpy(members: Mapping[str, Member], x: Any, y: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """The results of the named functions by their NumPy definitions."""
    found: list[Any] = []
    for name in names:
        found += outputs(members[name][1](x, y))
    return tuple(found) if len(found) > 1 else found[0]
