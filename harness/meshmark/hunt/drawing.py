# SPDX-License-Identifier: Apache-2.0
"""The state that draws one operation: the values so far, with their types, and seeded random choices."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from meshmark.hunt.functions import ALWAYS_ROUNDED
from meshmark.program_data.program import Input, Node

T = TypeVar("T")

REALS = ("float32", "bfloat16", "float16", "float64")
INTS = ("int32", "uint8", "int8", "int16", "uint16", "uint32", "int64")


class Miss(Exception):
    """No value has the type that an operation needs, so the generator draws another operation."""


@dataclass(frozen=True)
class Value:
    """A value of the program that is being drawn."""

    expression: Any
    shape: tuple[int, ...]
    dtype: str
    below: int = 0
    """If positive: the values are integers from 0 to `below` - 1, so they may be indices."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether it is a real float."""
        return self.dtype in REALS

    @property
    def is_number(self) -> bool:
        """Whether it is a real float or an integer."""
        return self.is_float or self.dtype in INTS


MOST = 3000
"""The largest number of elements of a value."""


@dataclass
class Draw:
    """Choices for one operation. It may read `values`. `fresh` makes a new input of a wanted shape and dtype."""

    random: random.Random
    values: list[Value]
    fresh: Callable[[tuple[int, ...], str, dict[str, Any] | None], Value] | None = None
    axes: tuple[tuple[str, int], ...] = ()
    manual: tuple[tuple[str, int], ...] = ()
    """The (name, size) of the axes that collectives may name, inside shard_map."""
    made: list[Input] = field(default_factory=list)

    def integer(self, low: int, high: int) -> int:
        """A random integer from low to high, both included; low if high is smaller."""
        return self.random.randint(low, max(low, high))

    def choice(self, items: Sequence[T]) -> T:
        """One of these items; Miss if there are none."""
        if not items:
            raise Miss
        return self.random.choice(list(items))

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self.random.random() < share

    def value(
        self,
        of: Callable[[Value], bool] | None = None,
        ndim: int = 0,
        size: int = MOST,
    ) -> Value:
        """A nonempty value with at least `ndim` dimensions and at most `size` elements; the last one with 60 percent
        probability or more. of: a condition that it meets. Miss if there is none."""
        fit = [
            v
            for v in self.values
            if v.ndim >= ndim and 0 < v.size <= size and (of is None or of(v)) and v.dtype != "tuple"
        ]
        if not fit:
            raise Miss
        if self.chance(0.6):
            return fit[-1]
        return self.choice(fit)

    def number(self, ndim: int = 0, size: int = MOST) -> Value:
        """A value of real floats or integers, not of booleans."""
        return self.value(lambda v: v.is_number, ndim, size)

    def floating(self, ndim: int = 0, size: int = MOST) -> Value:
        """A value of real floats."""
        return self.value(lambda v: v.is_float, ndim, size)

    def like(self, shape: tuple[int, ...], dtype: str, fill: dict[str, Any] | None = None) -> Value:
        """A value of exactly this shape and dtype: an existing one, or a new input. Miss if neither is possible.

        fill: the content of a new input; then existing values do not fit."""
        fit = [v for v in self.values if v.shape == shape and v.dtype == dtype]
        if fill is None and fit and self.chance(0.6):
            return self.choice(fit)
        if self.fresh is None or math.prod(shape) > MOST or 0 in shape:
            return self.choice(fit if fill is None else [])
        return self.fresh(shape, dtype, fill)

    def axis(self, v: Value, least: int = 1) -> int:
        """The index of a dimension of `v` whose size is at least `least`."""
        return self.choice([d for d in range(v.ndim) if v.shape[d] >= least])

    def permutation(self, n: int) -> list[int]:
        """The numbers from 0 to n - 1 in random order."""
        return self.random.sample(range(n), n)


Generator = Callable[[Draw], Node | None]


@dataclass(frozen=True)
class Kind:
    """One kind of operation that can be drawn."""

    name: str
    draw: Callable[[Draw], Node]
    family: str
    rounds: bool = False
    """Whether its results are not integers, or depend on the order of computation."""
    continuous: bool = True
    """Whether a small change of its inputs changes its results only a little. Only such kinds may follow a rounding."""
    weight: float = 1.0


KINDS: dict[str, Kind] = {}
"""All kinds, by name. The modules that define kinds fill it on import."""


def start_sum(a: Value) -> Any:
    """The start of a sum over windows or dimensions: 0.0 for float32, and a zero of its own dtype for the others.

    JAX has the derivative of such a sum only if the start is a constant, and an array is none under jit."""
    return 0.0 if a.dtype == "float32" else {"call": "jnp.array", "kwargs": {"object": 0, "dtype": a.dtype}}


def kind(
    family: str, *, rounds: bool = False, continuous: bool = True, weight: float = 1.0
) -> Callable[[Callable[[Draw], Node]], Callable[[Draw], Node]]:
    """A decorator that registers a function as a kind, under the function's name."""

    def register(draw: Callable[[Draw], Node]) -> Callable[[Draw], Node]:
        name = draw.__name__.strip("_")
        KINDS[name] = Kind(name, draw, family, rounds, continuous, weight)
        return draw

    return register


ROUNDING = ALWAYS_ROUNDED | frozenset(
    (
        *("jnp.mean", "jnp.var", "lax.cumlogsumexp"),
        *(
            f"nn.{name}"
            for name in ("softmax", "logsumexp", "log_softmax", "standardize", "logmeanexp", "glu")
        ),
        *(
            f"jnp.fft.{name}"
            for name in (
                *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn"),
                *("fft2", "ifft2", "rfft2", "irfft2", "fftfreq", "rfftfreq"),
            )
        ),
        "lax.fft",
        *(
            f"jnp.linalg.{name}"
            for name in (
                *("inv", "det", "slogdet", "solve", "svdvals", "cholesky", "eigvalsh", "norm", "vector_norm"),
                *("matrix_norm", "cond", "pinv", "tensorinv", "tensorsolve", "lstsq", "matrix_rank", "qr"),
                *("svd", "eigh"),
            )
        ),
        *(
            f"lax.linalg.{name}"
            for name in (
                *("lu", "cholesky", "svd", "eigh", "qr", "qdwh", "tridiagonal_solve", "cholesky_update"),
            )
        ),
        *(
            f"jnp.{name}"
            for name in (
                *("std", "nanstd", "nanvar", "nanmean", "average", "cov", "corrcoef", "interp", "unwrap"),
                *("quantile", "percentile", "nanquantile", "nanpercentile", "nanmedian", "polyint", "poly"),
                *("bartlett", "blackman", "hamming", "hanning", "kaiser", "geomspace", "logspace"),
            )
        ),
        *("lax.polygamma", "lax.polynomial", "lax.pmean", "nn.dot_product_attention"),
    )
)
"""The operations whose results are not integers, or depend on the order of computation."""

TIED = frozenset(
    (
        *("jnp.max", "jnp.min", "at.max", "at.min", "lax.scatter_max", "lax.scatter_min"),
        *("jax.ops.segment_max", "jax.ops.segment_min", "jnp.amax", "jnp.amin", "jnp.nanmax", "jnp.nanmin"),
        *("jnp.ptp", "jnp.minmax", "lax.reduce_max", "lax.reduce_min", "lax.reduce"),
        *("jnp.apply_along_axis", "jnp.apply_over_axes"),
    )
)
"""The operations whose derivative is split among equal elements: it is divided by their number, and so rounded."""

HALVED = frozenset({"jnp.gradient", "jnp.trapezoid"})
"""The operations that halve numbers. A loop that repeats one soon needs more bits than float32 has."""

LOOPS = frozenset({"scan", "fori", "while"})
"""The forms whose body reads what its last turn gave."""
