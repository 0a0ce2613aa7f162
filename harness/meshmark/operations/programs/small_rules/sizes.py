# SPDX-License-Identifier: Apache-2.0
"""Small rules: results whose size is stated and whose rest is filled, functions of masked numbers, and arrays that are
made, drawn or multiplied at a place."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import hold, hold_near, mixed
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.comparing import expect


def _filled(found: np.ndarray, size: int, fill: int) -> np.ndarray:
    """The first numbers of a result, and after its end the filling."""
    kept = found[:size]
    rest = np.full((size - len(kept), *kept.shape[1:]), fill, kept.dtype)
    return np.concatenate([kept, rest])


def _sized_results(line, grid):
    """Results of data-dependent size, shorter and longer than the stated one, with every filling."""
    host = (mixed((4 * line.size,), 7, 5) - 3).astype(np.int32)
    table = host.reshape(-1, 2)
    long, short = len(host) + 5, 3
    members = {}
    for size, fill in itertools.product((short, long), (-9, 4)):
        said = f"of {size}, filled by {fill}"
        values, inverse, counts = np.unique(host, return_inverse=True, return_counts=True)
        members[f"unique {said}"] = (
            lambda x, s=size, f=fill: jnp.unique(x, size=s, fill_value=f),
            _filled(values, size, fill),
        )
        if size == long:
            members[f"unique with places {said}"] = (
                lambda x, s=size, f=fill: jnp.unique(
                    x, return_inverse=True, return_counts=True, size=s, fill_value=f
                )[1:],
                (inverse.astype(np.int32), _filled(counts.astype(np.int32), size, 0)),
            )
        rows, columns = (a.astype(np.int32) for a in np.nonzero(table > 0))
        members[f"nonzero {said} and 7"] = (
            lambda x, s=size, f=fill: jnp.nonzero(x.reshape(-1, 2) > 0, size=s, fill_value=(f, 7)),
            (_filled(rows, size, fill), _filled(columns, size, 7)),
        )
        members[f"flatnonzero {said}"] = (
            lambda x, s=size, f=fill: jnp.flatnonzero(x < 1, size=s, fill_value=f),
            _filled(np.flatnonzero(host < 1).astype(np.int32), size, fill),
        )
        members[f"argwhere {said}"] = (
            lambda x, s=size, f=fill: jnp.argwhere(x.reshape(-1, 2) == 2, size=s, fill_value=f),
            _filled(np.argwhere(table == 2).astype(np.int32), size, fill),
        )
        members[f"union1d {said}"] = (
            lambda x, s=size, f=fill: jnp.union1d(x, 2 * x, size=s, fill_value=f),
            _filled(np.union1d(host, 2 * host), size, fill),
        )
        members[f"setdiff1d {said}"] = (
            lambda x, s=size, f=fill: jnp.setdiff1d(x, x[:3], size=s, fill_value=f),
            _filled(np.setdiff1d(host, host[:3]), size, fill),
        )
    repeats = np.append(np.arange(len(host) - 1) % 3, 2)
    whole = np.repeat(host, repeats)
    for size in (len(whole) - 2, len(whole), len(whole) + 4):
        members[f"repeat to {size}"] = (
            lambda x, size=size: jnp.repeat(x, repeats, total_repeat_length=size),
            np.concatenate([whole, np.full(max(size - len(whole), 0), whole[-1])])[:size].astype(np.int32),
        )
    for size in (4, 12):
        members[f"bincount of length {size}"] = (
            lambda x, size=size: jnp.bincount(x + 3, length=size),
            np.bincount(host + 3, minlength=size)[:size].astype(np.int32),
        )
    hold(line, grid, members, host)


def _masked_functions(line, grid):
    """Softmax and its relatives where a mask leaves all, some or none of a row; maps in batches that leave a rest;
    ranks and trends by every rule."""
    from scipy import signal, stats  # here, since importing them takes long

    host = (mixed((2 * line.size, 5), 19, 7) / 4 - 2).astype(np.float32)
    mask = mixed(host.shape, 3, 2) > 0
    mask[0], mask[1] = False, True
    with np.errstate(all="ignore"):
        weights = np.where(mask, np.exp(host.astype(np.float64)), 0)
        total = weights.sum(1, keepdims=True)
        shares = np.where(total > 0, weights / np.where(total > 0, total, 1), 0)
        logs = np.where(mask, host - np.log(total), -np.inf)
        sums = np.log(total[:, 0])
    line_of = signal.detrend(host.astype(np.float64), axis=1)
    members = {
        "softmax": (lambda x: jax.nn.softmax(x, where=mask), shares),
        "log_softmax": (lambda x: jnp.where(mask, jax.nn.log_softmax(x, where=mask), -jnp.inf), logs),
        "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=1, where=mask), sums),
        "detrend": (lambda x: jax.scipy.signal.detrend(x, axis=1), line_of),
        "detrend of a constant": (
            lambda x: jax.scipy.signal.detrend(x, axis=0, type="constant"),
            host - host.mean(0, keepdims=True),
        ),
        "cummax of masked": (
            lambda x: lax.cummax(jnp.where(mask, x, -jnp.inf), 1),
            np.maximum.accumulate(np.where(mask, host, -np.inf), 1),
        ),
    }
    for method in ("average", "min", "max", "dense", "ordinal"):
        members[f"ranks, {method}"] = (
            lambda x, method=method: jax.scipy.stats.rankdata(jnp.round(x), method, axis=1),
            stats.rankdata(np.round(host), method, axis=1),
        )
    for size in (3, 4, 2 * line.size):
        members[f"map in batches of {size}"] = (
            lambda x, size=size: lax.map(lambda row: row * jnp.arange(5) + row[0], x, batch_size=size),
            host * np.arange(5) + host[:, :1],
        )
    hold_near(line, grid, members, host)


def _drawn_once(line, grid):
    """Draws without replacement: no number twice, none without a chance, and the same in parts."""
    key, count = jax.random.key(5), 2 * line.size + 3
    chances = np.where(np.arange(count) % 3 == 1, 0.0, 1.0 + np.arange(count)).astype(np.float32)
    may = np.flatnonzero(chances)
    draws = {
        "choice": lambda key, p: jax.random.choice(key, count, (len(may),), replace=False, p=p / p.sum()),
        "choice of rows": lambda key, p: jax.random.choice(
            key, jnp.arange(count) + 0 * p.astype(int), (3,), replace=False, p=p / p.sum()
        ),
        "categorical": lambda key, p: jax.random.categorical(
            key, jnp.log(p), shape=(len(may),), replace=False
        ),
        "permutation": lambda key, p: jax.random.permutation(key, may),
    }
    place = jax.sharding.NamedSharding(line, P())
    for name, draw in draws.items():
        alone = np.asarray(jax.jit(draw)(key, chances))
        parts = np.asarray(jax.jit(draw, out_shardings=place)(key, jax.device_put(chances, place)))
        expect(parts, alone, f"{name} over all devices")
        wrong(len(set(alone.tolist())) != len(alone), f"{name} gives a number twice: {alone.tolist()}")
        wrong(
            not set(alone.tolist()) <= set(may.tolist()),
            f"{name} gives a number without a chance: {alone.tolist()}",
        )


def _made_at_a_place(line, grid):
    """Draws of every dtype, counts by steps and products of three arrays have the values that they have anywhere, and
    lie where `out_sharding` says."""
    mesh = Mesh(grid.devices, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    key, rows = jax.random.key(3), 2 * line.size
    a = (mixed((rows, rows), 7, 5) - 3).astype(np.float32)
    made = {}
    for kind in (np.int8, np.uint8, np.int16, np.uint32, np.int32):
        made[f"randint of {np.dtype(kind).name}"] = lambda kind=kind, **place: jax.random.randint(
            key, (rows, rows), 0, 99, kind, **place
        )
    for kind in (jnp.float32, jnp.bfloat16, jnp.float16):
        made[f"uniform of {np.dtype(kind).name}"] = lambda kind=kind, **place: jax.random.uniform(
            key, (rows, rows), kind, **place
        )
    for said in ("ij,jk,kl->il", "ij,jk,kl->li", "ij,jk,ki->ik"):
        made[f"einsum {said}"] = lambda said=said, **place: jnp.einsum(
            said, a, a, a, precision="highest", **place
        )
    with jax.set_mesh(mesh):
        alone = jax.device_get(jax.jit(lambda: {name: make() for name, make in made.items()})())
        for spec in (P("x", "y"), P(None, "x")):
            cut = jax.jit(lambda spec=spec: {name: make(out_sharding=spec) for name, make in made.items()})()
            for name, placed in cut.items():
                expect(jax.typeof(placed).sharding.spec, spec, f"the type of {name} at {spec}")
                expect(np.asarray(placed), alone[name], f"{name} at {spec}")
    steps = {"by 3": (-5, 3 * rows - 5, 3), "by -2": (2 * rows, 0, -2), "by a half": (0, rows / 2, 0.5)}
    for said, bounds in steps.items():
        with jax.set_mesh(mesh):
            placed = jnp.arange(*bounds, out_sharding=P("x"))
        expect(jax.typeof(placed).sharding.spec, P("x"), f"the type of a count {said}")
        expect(np.asarray(placed), np.arange(*bounds).astype(placed.dtype), f"a count {said}")


RULES_OF_SIZES = {
    "sized_results": _sized_results,
    "masked_functions": _masked_functions,
    "drawn_once": _drawn_once,
    "made_at_a_place": _made_at_a_place,
}
