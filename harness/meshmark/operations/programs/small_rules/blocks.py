# SPDX-License-Identifier: Apache-2.0
"""Small rules of what collectives send: blocks without elements, long blocks that no chunk divides, blocks of many
dimensions, and groups of any number of devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect, may_leave_out_devices


def _every_collective(n):
    """Name -> the collective over the axis "d" of n devices; its result from all blocks, stacked by device."""

    def everywhere(block):
        return np.broadcast_to(block, (n, *block.shape))

    turn = [(k, (k + 1) % n) for k in range(n)]
    return {
        "psum": (lambda b: lax.psum(b, "d"), lambda host: everywhere(host.sum(0, dtype=host.dtype))),
        "pmax": (lambda b: lax.pmax(b, "d"), lambda host: everywhere(host.max(0))),
        "pmin": (lambda b: lax.pmin(b, "d"), lambda host: everywhere(host.min(0))),
        "all_gather": (lambda b: lax.all_gather(b, "d"), everywhere),
        "tiled all_gather": (
            lambda b: lax.all_gather(b, "d", tiled=True),
            lambda host: everywhere(host.reshape(n * host.shape[1], *host.shape[2:])),
        ),
        "ppermute": (lambda b: lax.ppermute(b, "d", turn), lambda host: np.roll(host, 1, 0)),
    }


def _over(line, collective, host, **options):
    """The results on all devices, stacked, of a collective of blocks: row k of `host` is device k's block."""
    run = mapped(lambda b: collective(b[0])[None], line, P("d"), P("d"), check_vma=False, **options)
    return np.asarray(run(placed(line, host, "d")))


def _collectives_of_nothing(n):
    """(what it is, the collective, its answer, the blocks) for every collective of blocks without elements. StableHLO
    refuses a tiled all_gather along a dimension of size zero, so these are along the others."""
    for shape in ((0,), (3, 0), (0, 3), (2, 0, 3)):
        for kind in (np.float32, np.int32):
            for name, (collective, answer) in _every_collective(n).items():
                if name != "tiled all_gather" or shape[0]:
                    what = f"{name} of {np.dtype(kind).name} blocks of shape {shape}"
                    yield what, collective, answer, np.zeros((n, *shape), kind)


def _empty_blocks(line, grid):
    """Collectives of blocks without elements."""
    n = line.size
    for what, collective, answer, host in _collectives_of_nothing(n):
        expect(_over(line, collective, host), answer(host), what)
    exchange = mapped(
        lambda b: lax.all_to_all(b, "d", 0, 1, tiled=True), line, P(None, "d"), P("d"), check_vma=False
    )
    expect(exchange(np.zeros((n, n, 0), np.float32)).shape, (n, n, 0), "the shape of an exchange of nothing")


def _empty_beside_full_blocks(line, grid):
    """Collectives of a tree of two blocks, one of them without elements."""
    full = mixed((line.size, 2, 3), 9, 7).astype(np.float32)
    for what, collective, answer, host in _collectives_of_nothing(line.size):
        pair = mapped(
            lambda t, f=collective: jax.tree.map(lambda b: f(b[0])[None], t),
            line,
            P("d"),
            P("d"),
            check_vma=False,
        )({"none": placed(line, host, "d"), "some": placed(line, full, "d")})
        expect(np.asarray(pair["none"]), answer(host), f"{what} beside a full block")
        expect(np.asarray(pair["some"]), answer(full), f"a full block beside {what}")


def _long_blocks(line, grid):
    """Collectives of blocks of a quarter to half of a million elements, and some more that no chunk holds."""
    n = line.size
    for count, kind in (
        (2**18 + 5, np.float32),
        (2**19 + 3, np.int32),
        (2**18 + 5, "bfloat16"),
        (2**18 + 9, np.int8),
    ):
        host = (mixed((n, count), 11, 7) - 5 + np.arange(n)[:, None] % 3).astype(jnp.dtype(kind))
        wide = host.astype(np.int64)
        named = f"{jnp.dtype(kind).name} blocks of {count} elements"
        for name, (collective, answer) in _every_collective(n).items():
            if "all_gather" in name:
                continue
            right = answer(wide).astype(host.dtype)
            found = _over(line, collective, host)
            same = np.array_equal(found.astype(np.int64), right.astype(np.int64))
            expect(same, True, f"whether {name} of {named} is right")
        total = np.asarray(jax.jit(lambda v: v.sum(0, dtype=v.dtype))(placed(line, host, "d")))
        same = np.array_equal(total.astype(np.int64), wide.sum(0))
        expect(same, True, f"whether a sum over the rows, {named}, is right")
    count = 2**15 + 1
    host = mixed((n * n, count), 97, 7).astype(np.float32)
    blocks = host.reshape(n, n, count)
    exchanged = blocks.swapaxes(0, 1).reshape(n * n, count)
    run = {
        "all_gather": (lambda b: lax.all_gather(b, "d", tiled=True), P(None), host),
        "psum_scatter": (lambda b: lax.psum_scatter(b, "d", tiled=True), P("d"), blocks.sum(0)),
        "all_to_all": (lambda b: lax.all_to_all(b, "d", 0, 0, tiled=True), P("d"), exchanged),
    }
    for name, (collective, out, right) in run.items():
        found = np.asarray(mapped(collective, line, P("d"), out, check_vma=False)(placed(line, host, "d")))
        expect(np.array_equal(found, right), True, f"whether {name} of {n} rows of {count} numbers is right")


def _blocks_of_rank_four(line, grid):
    """Collectives along each dimension, or pair of dimensions, of blocks of rank four and five, tiled and not."""
    n = line.size
    for rank in (4, 5):
        shape = (n, *(n * (1 + k % 2) if k < 2 else n for k in range(rank - 1)))
        if np.prod(shape) > 2**18:  # 16 devices or more: the dimensions that are not sent are small
            shape = (n, *(n,) * 2, *(n,) + (2,) * (rank - 4))[:rank]
        sizes = shape[1:]
        host = mixed(shape, 97, 7).astype(np.float32)
        calls = {}
        for into in range(len(sizes)):
            if sizes[into] % n:
                continue
            parts = np.stack(np.split(host, n, into + 1))  # [receiver, sender, *block]
            for tiled_out in range(len(sizes)):
                right = np.concatenate([*np.moveaxis(parts, 1, 0)], axis=tiled_out + 1)
                calls[f"all_to_all from {into} to {tiled_out}, tiled"] = (
                    lambda b, i=into, o=tiled_out: lax.all_to_all(b, "d", i, o, tiled=True),
                    right,
                )
            scattered = parts.sum(1)
            calls[f"psum_scatter along {into}, tiled"] = (
                lambda b, i=into: lax.psum_scatter(b, "d", scatter_dimension=i, tiled=True),
                scattered,
            )
        for along in range(len(sizes)):
            gathered = np.concatenate([*host], axis=along)
            calls[f"all_gather along {along}, tiled"] = (
                lambda b, a=along: lax.all_gather(b, "d", axis=a, tiled=True),
                np.broadcast_to(gathered, (n, *gathered.shape)),
            )
            stacked = np.stack([*host], axis=along)
            calls[f"all_gather at {along}"] = (
                lambda b, a=along: lax.all_gather(b, "d", axis=a),
                np.broadcast_to(stacked, (n, *stacked.shape)),
            )
        run = mapped(
            lambda b, calls=calls: {name: f(b[0])[None] for name, (f, _) in calls.items()},
            line,
            P("d"),
            P("d"),
            check_vma=False,
        )
        found = jax.device_get(run(placed(line, host, "d")))
        for name, (_, right) in calls.items():
            expect(np.array_equal(found[name], right), True, f"whether {name} of blocks {sizes} is right")


def _groups_of_any_size(line, grid):
    """Rings in both directions, sums and exchanges over the first devices: two of them, three, and so on."""
    if not may_leave_out_devices():
        return
    for count in range(2, line.size + 1):
        some = jax.sharding.Mesh(line.devices[:count], ("d",))
        host = mixed((count, count, 3), 97, 7).astype(np.float32)
        named = f"over {count} devices"
        for step in {1, -1, 2, count - 2} - {0}:
            turn = [(k, (k + step) % count) for k in range(count)]
            found = _over(some, lambda b, turn=turn: lax.ppermute(b, "d", turn), host)
            expect(found, np.roll(host, step, 0), f"a turn by {step} {named}")
        for name, (collective, answer) in _every_collective(count).items():
            expect(_over(some, collective, host), answer(host), f"{name} {named}")
        swapped = _over(some, lambda b: lax.all_to_all(b, "d", 0, 0, tiled=True), host)
        expect(swapped, host.swapaxes(0, 1), f"an exchange {named}")
        part = _over(some, lambda b: lax.psum_scatter(b, "d"), host)
        expect(part, host.sum(0), f"psum_scatter {named}")
        total = jax.jit(lambda v: (v.sum(0), v[::-1]))(placed(some, host, "d"))
        expect(np.asarray(total[0]), host.sum(0), f"a sum of rows {named}")
        expect(np.asarray(total[1]), host[::-1], f"rows in reverse {named}")


RULES_OF_BLOCKS = {
    "empty_blocks": _empty_blocks,
    "empty_beside_full_blocks": _empty_beside_full_blocks,
    "long_blocks": _long_blocks,
    "blocks_of_rank_four": _blocks_of_rank_four,
    "groups_of_any_size": _groups_of_any_size,
}
