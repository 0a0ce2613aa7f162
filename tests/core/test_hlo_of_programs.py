# SPDX-License-Identifier: Apache-2.0
"""The reader of compiled communication is tested with real programs, compiled in the tests."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from meshmark.core.hlo import Collective, collectives, wire_bytes

AXES = [("x",), ("y",), ("x", "y"), ("y", "x")]
ORDERS = [range(8), [3, 1, 4, 0, 5, 7, 2, 6]]


def only(text: str) -> Collective:
    (found,) = collectives(text)
    return found


def make_mesh(order: Sequence[int] = range(8)) -> Any:
    return jax.sharding.Mesh(np.array(jax.devices("cpu"))[list(order)].reshape(2, 4), ("x", "y"))


def compiled(f: Callable[..., Any], spec_in: Any, spec_out: Any, x: Any, mesh: Any = None) -> Any:
    """The program of f, mapped over the mesh 2x4."""
    mapped = jax.shard_map(f, mesh=mesh or make_mesh(), in_specs=spec_in, out_specs=spec_out, check_vma=False)
    return jax.jit(mapped).lower(x).compile()


def expected_groups(axes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Positions in the mesh 2x4 that differ along `axes` alone, in the order of `axes`."""
    positions = np.arange(8).reshape(2, 4)
    last = [("x", "y").index(axis) for axis in axes]
    first = [axis for axis in range(2) if axis not in last]
    rows = positions.transpose(first + last).reshape(-1, math.prod(positions.shape[axis] for axis in last))
    return tuple(map(tuple, rows.tolist()))


@pytest.mark.parametrize("axes", AXES, ids="".join)
def test_live_psum(axes: tuple[str, ...]) -> None:
    program = compiled(lambda x: lax.psum(x, axes), P(axes), P(), np.ones((16, 8), np.float32))
    nbytes = 16 * 8 * 4 // len(expected_groups(axes)[0])
    expected = Collective("all-reduce", nbytes, "f32", expected_groups(axes), (), reduction="add")
    assert only(program.as_text()) == expected


@pytest.mark.parametrize("order", ORDERS, ids=["ordered", "permuted"])
@pytest.mark.parametrize("axes", AXES, ids="".join)
def test_live_all_gather(axes: tuple[str, ...], order: Sequence[int]) -> None:
    """The program itself tells its groups too: each device gathers the positions of its group's members."""
    position = np.arange(8, dtype=np.int32)
    mesh = make_mesh(order)
    program = compiled(
        lambda x: lax.all_gather(x, axes, tiled=True), P(("x", "y")), P(("x", "y")), position, mesh
    )
    n = len(expected_groups(axes)[0])
    expected = Collective("all-gather", 4 * n, "s32", expected_groups(axes), (), dimensions=(0,))
    found = only(program.as_text())
    assert found == expected
    sharding = jax.sharding.NamedSharding(mesh, P(("x", "y")))
    gathered = np.asarray(program(jax.device_put(position, sharding))).reshape(8, n)
    assert {tuple(row) for row in gathered.tolist()} == set(found.groups)


@pytest.mark.parametrize("axes", AXES, ids="".join)
def test_live_psum_scatter(axes: tuple[str, ...]) -> None:
    program = compiled(
        lambda x: lax.psum_scatter(x, axes, tiled=True), P(), P(axes), np.ones((16, 8), np.float32)
    )
    expected = Collective(
        "reduce-scatter", 512, "f32", expected_groups(axes), (), dimensions=(0,), reduction="add"
    )
    assert only(program.as_text()) == expected


@pytest.mark.parametrize("axes", AXES, ids="".join)
def test_live_all_to_all(axes: tuple[str, ...]) -> None:
    x = np.ones((64, 64), np.float32)
    found = only(
        compiled(lambda x: lax.all_to_all(x, axes, 0, 1, tiled=True), P(axes), P(None, axes), x).as_text()
    )
    n = len(expected_groups(axes)[0])
    assert (found.kind, found.nbytes, found.groups) == ("all-to-all", x.nbytes // n, expected_groups(axes))


def test_live_ppermute() -> None:
    program = compiled(
        lambda x: lax.ppermute(x, "y", [(0, 1), (1, 2)]), P("y"), P("y"), np.ones((16, 8), np.float32)
    )
    expected = Collective("collective-permute", 128, "f32", (), ((0, 1), (1, 2), (4, 5), (5, 6)))
    assert only(program.as_text()) == expected


@pytest.mark.parametrize(
    ("f", "kind", "trips"),
    [
        (lambda x: lax.fori_loop(0, 5, lambda i, v: lax.psum(v, "y") / 2, x), "all-reduce", 5),
        (
            lambda x: lax.scan(lambda v, _: (lax.all_gather(v, "y").sum(0) / 2, None), x, None, length=7)[0],
            "all-gather",
            7,
        ),
        (
            lambda x: lax.fori_loop(
                0,
                5,
                lambda i, v: lax.fori_loop(0, 3, lambda j, w: lax.ppermute(w, "y", [(0, 1), (1, 0)]) + 1, v),
                x,
            ),
            "collective-permute",
            15,
        ),
        (
            lambda x: lax.while_loop(lambda v: v.sum() < 1e4, lambda v: lax.psum(v, "y"), x),
            "all-reduce",
            None,
        ),
        (lambda x: lax.cond(x[0, 0] > 0, lambda v: lax.psum(v, "x"), lambda v: v, x), "all-reduce", 1),
    ],
    ids=["fori", "scan", "nested", "while", "cond"],
)
def test_live_loops(f: Callable[[Any], Any], kind: str, trips: int | None) -> None:
    found = only(compiled(f, P("y"), P("y"), np.ones((16, 8), np.float32)).as_text())
    assert (found.kind, found.trips) == (kind, trips)


def test_live_groups_of_the_user() -> None:
    def f(x: Any) -> Any:
        return lax.all_gather(x, "y", axis_index_groups=[[0, 3], [2, 1]], tiled=True)

    found = only(compiled(f, P("y"), P("y"), np.ones((16, 8), np.float32)).as_text())
    assert found.groups == ((0, 3), (2, 1), (4, 7), (6, 5))
    assert wire_bytes(found) == found.nbytes / 2 == 128


def test_live_nothing() -> None:
    assert (
        collectives(compiled(lambda x: x + 1, P("y"), P("y"), np.ones((16, 8), np.float32)).as_text()) == ()
    )
