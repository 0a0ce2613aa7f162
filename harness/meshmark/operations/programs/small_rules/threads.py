# SPDX-License-Identifier: Apache-2.0
"""Small rules of threads: what runs in another thread than the main one is the same, and a setting belongs to its
thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.cuts.running import mixed
from meshmark.operations.programs.refusals import mapped, placed
from meshmark.operations.programs.small_rules.comparing import expect


def _spec(array: Any) -> Any:
    return getattr(array.sharding, "spec", array.sharding)


def _in_threads(line, grid):
    """Transfers, programs and regions in four threads at once have the values and places that they have in the main
    thread."""
    host = mixed((2 * grid.size, 2 * grid.size), 97, 7).astype(np.float32)
    shardings = [NamedSharding(grid, s) for s in (P("x"), P(None, "y"), P("y", "x"), P(("x", "y")), P())]
    works: dict[str, Callable[[int], tuple[Any, np.ndarray, Any]]] = {
        "device_put": lambda k: (jax.device_put(host + k, shardings[k]), host + k, shardings[k]),
        "device_put of an array": lambda k: (
            jax.device_put(placed(grid, host + k, "x", "y"), shardings[k]),
            host + k,
            shardings[k],
        ),
        "device_put of a tree": lambda k: (
            jax.device_put({"a": host + k}, {"a": shardings[k]})["a"],
            host + k,
            shardings[k],
        ),
        "make_array_from_callback": lambda k: (
            jax.make_array_from_callback(host.shape, shardings[k], lambda at: (host + k)[at]),
            host + k,
            shardings[k],
        ),
        "jit with out_shardings": lambda k: (
            jax.jit(lambda v: 2 * v + k, out_shardings=shardings[k])(host),
            2 * host + k,
            shardings[k],
        ),
        "jit with a constraint": lambda k: (
            jax.jit(lambda v: lax.with_sharding_constraint(v.T + k, shardings[k]))(host),
            host.T + k,
            shardings[k],
        ),
        "shard_map": lambda k: (
            mapped(lambda b: lax.psum(b, "d") + k, line, P("d"), P())(host),
            host.reshape(line.size, -1, host.shape[1]).sum(0) + k,
            NamedSharding(line, P()),
        ),
        "a gradient": lambda k: (
            jax.jit(jax.grad(lambda v: (v * v * k).sum()), out_shardings=shardings[k])(host),
            2 * k * host,
            shardings[k],
        ),
        "jnp.zeros with a place": lambda k: (
            jnp.zeros(host.shape, device=shardings[k]) + k,
            np.full_like(host, k),
            None,
        ),
    }
    with ThreadPoolExecutor(4) as pool:
        for name, work in works.items():
            for k, (found, right, place) in enumerate(pool.map(work, range(len(shardings)))):
                what = f"{name}, in a thread, for {shardings[k].spec}"
                expect(np.asarray(found), right, what)
                if place is not None:
                    expect(
                        found.sharding.is_equivalent_to(place, found.ndim),
                        True,
                        f"whether the place is right of {what}",
                    )


def _settings_of_threads(line, grid):
    """A mesh or a setting of one thread is not that of another one."""
    host = np.arange(2 * line.size, dtype=np.float32)
    with ThreadPoolExecutor(1) as pool:
        with jax.set_mesh(line):
            inside = pool.submit(lambda: jax.sharding.get_abstract_mesh().axis_names).result()
            expect(tuple(inside), (), "the axes of the mesh of a thread while another one has set a mesh")
            expect(_spec(jax.jit(lambda v: lax.with_sharding_constraint(v, P("d")))(host)), P("d"), "a spec")
        with jax.enable_x64(True):
            expect(
                pool.submit(lambda: jnp.arange(3.0).dtype.name).result(),
                "float32",
                "a dtype in another thread",
            )
            expect(jnp.arange(3.0).dtype.name, "float64", "a dtype with x64")

        def with_mesh():
            with jax.set_mesh(line):
                return jax.jit(lambda v: lax.with_sharding_constraint(2 * v, P("d")))(host)

        found = pool.submit(with_mesh).result()
        expect(_spec(found), P("d"), "the spec of a result of another thread that sets a mesh")
        expect(np.asarray(found), 2 * host, "a result of another thread that sets a mesh")
        expect(
            tuple(jax.sharding.get_abstract_mesh().axis_names),
            (),
            "the axes of the mesh after another thread's",
        )


RULES_OF_THREADS = {"in_threads": _in_threads, "settings_of_threads": _settings_of_threads}
