# SPDX-License-Identifier: Apache-2.0
"""Small rules of narrow types: rows chosen by short integers, packed numbers that are joined, ranges that are rounded,
casts to every float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect

FLOATS = (
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float16",
    "bfloat16",
    "float32",
)


def _rows_by(line: Any, kinds: tuple[str, ...], rows: int) -> None:
    """Rows of a cut table, chosen and written by indices of some integer types."""
    n = line.size
    host = mixed((rows * n, 2), 97, 7).astype(np.float32)
    table = placed(line, host, "d")
    chosen = np.array([0, 5, rows - 1, rows, 5, rows + 1]) % (rows * n)
    written = host.copy()
    np.add.at(written, chosen, 1)
    calls: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
        "x[i]": (lambda v, i: v[i], host[chosen]),
        "take": (lambda v, i: jnp.take(v, i, axis=0), host[chosen]),
        "take_along_axis": (lambda v, i: jnp.take_along_axis(v, i[:, None], 0), host[chosen]),
        "at[i].add": (lambda v, i: v.at[i].add(1), written),
        "dynamic_slice": (lambda v, i: lax.dynamic_slice_in_dim(v, i[1], 2), host[5:7]),
    }
    for kind in kinds:
        for name, (call, right) in calls.items():
            found = np.asarray(jax.jit(call)(table, chosen.astype(kind)))
            expect(found, right, f"{name} of {rows * n} rows with indices of {kind}")


def _rows_by_wide_indices(line, grid):
    """Rows of a cut table by indices of 32 bits with a sign and without, and of 16 bits without a sign."""
    _rows_by(line, ("int32", "uint32", "uint16"), 40)


def _rows_by_narrow_indices(line, grid):
    """Rows of a cut table by indices of 8 bits, and of 16 bits with a sign."""
    _rows_by(line, ("int16", "uint8", "int8"), 15)


def _rows_clipped_by_narrow_indices(line, grid):
    """`take` that clips, by indices of 8 and 16 bits."""
    host = mixed((15 * line.size, 2), 97, 7).astype(np.float32)
    table = placed(line, host, "d")
    for kind in ("uint8", "int8", "uint16", "int16"):
        chosen = np.array([0, 5, 14, 100], kind)
        found = jax.jit(lambda v, i: jnp.take(v, i, axis=0, mode="clip"))(table, chosen)
        right = host[np.minimum(chosen.astype(int), len(host) - 1)]
        expect(np.asarray(found), right, f"rows of a cut table, clipped, by indices of {kind}")


def _joined_packed_numbers(line, grid):
    """Joining arrays of 4 bits, cut and whole, of even and odd lengths."""
    n = line.size
    for kind in ("int4", "uint4"):  # 2 bits over devices write past a buffer on CPU: docs/findings.md
        dtype = np.dtype(getattr(ml_dtypes, kind))
        for length in (2 * n, 3 * n):
            host = (np.arange(length) % 2).astype(dtype)
            for spec in (P("d"), P()):
                x = jax.device_put(host, NamedSharding(line, spec))
                found = np.asarray(jax.jit(lambda v: jnp.concatenate([v, v[::-1]]))(x))
                right = np.concatenate([host, host[::-1]])
                what = f"two arrays of {kind} over {spec} of {length} elements, joined"
                expect(found.astype(np.int32), right.astype(np.int32), what)


def _hold_ranges(line: Any, kind: str, length: int) -> None:
    spread = NamedSharding(line, P("d"))
    dtype = jnp.dtype(kind)
    right = np.arange(length).astype(np.float32).astype(dtype).astype(np.float32)
    for name, made in (
        ("arange", lambda: jnp.arange(length, dtype=dtype)),
        ("iota", lambda: lax.iota(dtype, length)),
    ):
        found = np.asarray(jax.jit(made, out_shardings=spread)())
        expect(found.dtype, dtype, f"the dtype of {name} of {kind}")
        seen = found.astype(np.float32)
        bad = np.flatnonzero(seen != right)
        some = ", ".join(f"{k}: {seen[k]} instead of {right[k]}" for k in bad[:4])
        wrong(bad.size > 0, f"{name} of {length} numbers of {kind} over the devices is wrong at {some}")


def _rounded_ranges(line, grid):
    """A range over devices of 16-bit numbers that can't hold each of its numbers: each is rounded once."""
    _hold_ranges(line, "float16", 512 * line.size)


def _rounded_ranges_of_8_bits(line, grid):
    """The same with 8 bits."""
    for kind in ("float8_e5m2", "float8_e4m3fn"):
        _hold_ranges(line, kind, 32 * line.size)


def _casts_of_floats(line, grid):
    """Casts between all floats, of numbers in range and out of it, of infinities and NaN, cut and whole."""
    n = line.size
    wide = np.array(
        [0, -0.0, 1.5, -3, 0.3, 17, 447, 449, 500, 6e4, 1e6, -1e6, 3e38, np.inf, -np.inf, np.nan], np.float32
    )
    for old in FLOATS:
        with np.errstate(all="ignore"):
            given = np.tile(wide.astype(jnp.dtype(old)), n)
        x = placed(line, given, "d")
        whole = jax.device_put(given, NamedSharding(line, P()))
        for new in FLOATS:
            with np.errstate(all="ignore"):
                right = given.astype(np.float32).astype(jnp.dtype(new)).astype(np.float32)
            cast = jax.jit(lambda v, new=new: v.astype(new))
            for place, array in (("cut", x), ("whole", whole)):
                found = np.asarray(cast(array)).astype(np.float32)
                expect(found, right, f"a {place} array of {old} cast to {new}")
                same = np.array_equal(np.signbit(found[:2]), np.signbit(right[:2]))
                expect(same, True, f"whether zeros of a {place} array of {old} keep their signs as {new}")


RULES_OF_NARROW_TYPES = {
    "rows_by_wide_indices": _rows_by_wide_indices,
    "rows_by_narrow_indices": _rows_by_narrow_indices,
    "rows_clipped_by_narrow_indices": _rows_clipped_by_narrow_indices,
    "joined_packed_numbers": _joined_packed_numbers,
    "rounded_ranges": _rounded_ranges,
    "rounded_ranges_of_8_bits": _rounded_ranges_of_8_bits,
    "casts_of_floats": _casts_of_floats,
}
