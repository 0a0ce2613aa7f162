"""What this machine was seen to do at best, on all of its devices at once: a yardstick where no peak is published.

Two ceilings. *copy bandwidth*: bytes read and written a second by a loop that negates arrays which no cache holds.
*largest matmul*: FLOP/s of the fastest product of square matrices, one pair a device, per dtype. Each is the rate of
the fastest of its samples, over all devices together. Virtual devices share the cores: theirs is the whole machine's.
(With arrays that caches hold the rate is that of a release's loop, not of the machine: 40 to 293 GB/s were seen of
256 KiB a device on the same two cores, and 39 to 53 of 32 MiB.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.meshes import MeshShape
from meshmark.judge.programs import mesh_over, sharding

COPY_BYTES = 2**25
"""Bytes of one device's array that is copied."""

COPIES = 4
"""Copies in one call, which amortize its dispatch."""

LONGEST = 0.1
"""Seconds of a product after which no larger one is tried."""

SAMPLES, MOST_SAMPLES, SAMPLING = 5, 50, 0.25
"""At least so many samples of each size, and more until so many, or until so many seconds are spent: the fastest
counts, and it takes some tries to see it on a machine that does other things too."""


def measured(
    devices: Sequence[Any], dtypes: Sequence[str] = ("float32", "bfloat16")
) -> Iterator[dict[str, Any]]:
    """The ceilings as the fields of their record lines: name, dtype, value, unit, and how each came about."""
    mesh = mesh_over(tuple(devices), MeshShape((len(devices),)))
    over = sharding(mesh, ("x",))

    def filled(shape: tuple[int, ...], dtype: str) -> jax.Array:
        return jax.jit(lambda: jnp.full(shape, 0.5, dtype_of(dtype).numpy), out_shardings=over)()

    x = filled((len(devices), COPY_BYTES // 4), "float32")
    samples = _samples(jax.jit(_copies), x, jnp.int32(COPIES))
    yield {
        "name": "copy bandwidth", "dtype": "float32", "unit": "B/s", "devices": len(devices),
        "value": 2 * COPIES * x.nbytes / min(samples), "nbytes": COPY_BYTES, "copies": COPIES, "samples_s": samples,
    }  # fmt: skip
    del x
    for dtype in dtypes:
        best: dict[str, Any] = {"value": 0.0}
        for n in (256, 512, 1024, 2048, 4096, 8192):
            a = filled((len(devices), n, n), dtype)
            samples = _samples(jax.jit(lambda a: jnp.matmul(a, a)), a)
            flops = 2 * len(devices) * n**3
            if flops / min(samples) > best["value"]:
                best = {"value": flops / min(samples), "n": n, "flops": flops, "samples_s": samples}
            if min(samples) > LONGEST:
                break
        yield {
            "name": "largest matmul", "dtype": dtype, "unit": "FLOP/s", "devices": len(devices), **best
        }  # fmt: skip


def _copies(x: jax.Array, count: jax.Array) -> jax.Array:
    """x after so many negations. The count is an argument: of a loop whose trips it knows, XLA unrolls the body and
    makes one pass over memory of several (seen in 0.12 on CPU, where the rate came out seven times too high)."""
    return lax.fori_loop(0, count, lambda _, x: -lax.optimization_barrier(x), x)


def _samples(called: Callable[..., jax.Array], *arrays: jax.Array) -> list[float]:
    jax.block_until_ready(called(*arrays))
    samples: list[float] = []
    while len(samples) < SAMPLES or (sum(samples) < SAMPLING and len(samples) < MOST_SAMPLES):
        start = perf_counter()
        outputs = jax.block_until_ready(called(*arrays))
        samples.append(perf_counter() - start)
        del outputs
    return samples
