# SPDX-License-Identifier: Apache-2.0
"""Compares where a result lies, and its type while tracing, with what the case promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from meshmark.core import layout
from meshmark.judge.numbers import show
from meshmark.operations.base import Argument, Result
from meshmark.operations.cases import Case


def placement(case: Case, places: Sequence[Any], result: Argument | Result, output: jax.Array) -> str:
    """The difference between the output's placement and the spec; "" if there is none."""
    want = dict(zip(places, layout.indices(result.shape, result.spec, case.mesh.sizes), strict=True))
    for shard in output.addressable_shards:
        index = tuple(slice(*i.indices(n)[:2]) for i, n in zip(shard.index, result.shape, strict=True))
        if want.get(shard.device) != index:
            return f"{shard.device} holds {show(index)} instead of {show(want.get(shard.device))} ({output.sharding})"
    if len(output.sharding.device_set) != case.mesh.size:
        return f"on {len(output.sharding.device_set)} devices instead of {case.mesh.size}"
    return ""


def typed(case: Case, result: Argument | Result, seen: Any) -> str:
    """The difference between the type at trace time (explicit mode) and the expected spec; "" if there is none."""
    sizes, ndim = case.mesh.sizes, len(result.shape)
    got = layout.normal(tuple(seen.sharding.spec), sizes, ndim)
    want = layout.normal(result.spec, sizes, ndim)
    return "" if got == want else f"typed {seen} while tracing: spec {got} instead of {want}"
