# SPDX-License-Identifier: Apache-2.0
"""Measures ceilings: the best rates of all devices of this machine, for shares without a published peak.

There are two ceilings. *copy bandwidth*: bytes read and written per second by a loop that negates arrays larger than
any cache. *largest matmul*: FLOP/s of the fastest product of square matrices, one pair per device, per dtype. Each is
the rate of the fastest sample, over all devices together. Virtual devices share the cores: their ceiling is that of
the whole machine. (With arrays that fit in caches the rate depends on the release's loop and not on the machine: 40 to
293 GB/s for 256 KiB per device on the same two cores, and 39 to 53 for 32 MiB.)
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
"""Bytes of the array that each virtual device copies: more than the caches of a processor's core."""

LARGE_COPY_BYTES = 2**29
"""The same on a real device, whose cache may have 100 MB: at 32 MiB an H100 with 50 MB of it showed 0.9 TB/s, a third
of its memory's rate, since the dispatch took longer than the copies."""

COPIES, MANY_COPIES = 4, 32
"""Copies per call on virtual and on real devices: many, to amortize the dispatch. With four of 512 MiB an H100 showed
2.0 TB/s; a single copy took 355 us of the device (3.0 TB/s), and 790 us with its dispatch."""

SIZES, DTYPES = (256, 512, 1024, 2048, 4096, 8192), ("float32", "bfloat16")
"""The sizes n of the products, from small to large, and their dtypes."""

LONGEST = 0.1
"""No larger product is tried after one that takes this many seconds."""

SAMPLES, MOST_SAMPLES, SAMPLING = 5, 50, 0.25
"""The least samples per size, the most samples, and the seconds after which sampling stops. The fastest sample counts,
and on a busy machine it takes several tries to see it."""


def measure_ceilings(devices: Sequence[Any], dtypes: Sequence[str] = DTYPES) -> Iterator[dict[str, Any]]:
    """The ceilings as fields of their record lines: name, dtype, value, unit, and the samples behind each."""
    mesh = mesh_over(tuple(devices), MeshShape((len(devices),)))
    over = sharding(mesh, ("x",))

    def filled(shape: tuple[int, ...], dtype: str) -> jax.Array:
        """Numbers without a pattern: on an H100 products of equal factors were 14 % faster than of random ones."""

        def made() -> jax.Array:
            # Every device has the same numbers: its own place in a large array may be beyond 32 bits.
            mixed = jnp.zeros(shape, jnp.uint32)
            for dim in range(1, len(shape)):
                mixed = mixed * jnp.uint32(shape[dim]) + lax.broadcasted_iota(jnp.uint32, shape, dim)
            for shift, odd in ((16, 0x7FEB352D), (15, 0x846CA68B)):  # a mixing function of 32 bits
                mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(odd)
            return ((mixed >> 8).astype(jnp.float32) / 2**24 - 0.5).astype(dtype_of(dtype).numpy)

        return jax.jit(made, out_shardings=over)()

    on_cpu = devices[0].platform == "cpu"
    nbytes, copies = (COPY_BYTES, COPIES) if on_cpu else (LARGE_COPY_BYTES, MANY_COPIES)
    x = filled((len(devices), nbytes // 4), "float32")
    samples = _samples(jax.jit(_copies), x, jnp.int32(copies))
    yield {
        "name": "copy bandwidth", "dtype": "float32", "unit": "B/s", "devices": len(devices),
        "value": 2 * copies * x.nbytes / min(samples), "nbytes": nbytes, "copies": copies, "samples_s": samples,
    }  # fmt: skip
    del x
    for dtype in dtypes:
        best: dict[str, Any] = {"value": 0.0}
        for n in SIZES:
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
    """Negate x `count` times. The count is an argument: if XLA knows the trip count it unrolls the body, and several
    passes over memory become one (seen in 0.12 on CPU, where the rate was seven times too high)."""
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
