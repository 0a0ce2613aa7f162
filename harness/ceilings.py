"""What this machine was seen to do at best, on all of its devices at once: a yardstick where no peak is published.

Two ceilings. *copy bandwidth*: bytes read and written a second by a loop that negates an array, of the size for which
that is fastest. *largest matmul*: FLOP/s of the fastest product of square matrices, one pair a device, per dtype.
Each is the rate of the fastest of its samples, over all devices together. Virtual devices share the cores: theirs is
the whole machine's, and small arrays stay in its caches, as those of a collective do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from harness.dtypes import dtype as dtype_of
from harness.meshes import MeshShape
from harness.programs import mesh_over, sharding

COPY_BYTES = (2**18, 2**20, 2**22, 2**25)
"""Bytes of one device's array that is copied: from what caches hold to what they don't."""

COPIES = 16
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

    best: dict[str, Any] = {"value": 0.0}
    for nbytes in COPY_BYTES:
        x = filled((len(devices), nbytes // 4), "float32")
        samples = _samples(jax.jit(_copies), x)
        moved = 2 * COPIES * x.nbytes
        if moved / min(samples) > best["value"]:
            best = {"value": moved / min(samples), "nbytes": nbytes, "samples_s": samples}
        del x
    yield {"name": "copy bandwidth", "dtype": "float32", "unit": "B/s", "devices": len(devices), **best}
    for dtype in dtypes:
        best = {"value": 0.0}
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


def _copies(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, COPIES, lambda _, x: -lax.optimization_barrier(x), x)


def _samples(called: Callable[[jax.Array], jax.Array], x: jax.Array) -> list[float]:
    jax.block_until_ready(called(x))
    samples: list[float] = []
    while len(samples) < SAMPLES or (sum(samples) < SAMPLING and len(samples) < MOST_SAMPLES):
        start = perf_counter()
        outputs = jax.block_until_ready(called(x))
        samples.append(perf_counter() - start)
        del outputs
    return samples
