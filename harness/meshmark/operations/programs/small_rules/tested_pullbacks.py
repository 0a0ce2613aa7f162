# SPDX-License-Identifier: Apache-2.0
"""Small rules of pullbacks that add to references of the user: of rows, steps, gathers, dynamic parts and scans.

Each has conditions that the tests of JAX name and that no other rule, form or operation has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers
from meshmark.operations.programs.small_rules.tested_references import is_kept


def _adds_to_references(line: Any, parts: dict[str, tuple[Callable[[Any], Any], Any]], ways: Any) -> None:
    """RuntimeError unless pullbacks of parts of a cut array, run in each way and in a program, add to references."""
    vjp: Any = jax.vjp  # its types do not tell of with_refs
    if not hasattr(vjp(lambda v: v, np.float32(1))[1], "with_refs"):
        raise Missing("the pullbacks of this release take no references")
    host = numbers(6, 2 * line.size)
    place = NamedSharding(line, P(None, "d"))
    x = jax.device_put(host, place)
    for name, (call, where) in parts.items():
        ct = numbers(*host[where].shape, step=7)
        slope = np.zeros_like(host)
        np.add.at(slope, where, ct)
        for way, run in ways.items():
            what = f"the gradient by {name} in a reference, {way},"
            ref = jax.new_ref(jax.device_put(host * 2, place))  # the pullback adds to what is there
            _, pull = vjp(run(call), x)
            pull.with_refs(ref)(ct)
            is_kept(ref, host * 2 + slope, place, what)

        def inside(v: Any, ct: Any, call: Any = call) -> Any:
            ref = jax.new_ref(jnp.zeros_like(v))
            _, pull = vjp(lambda w: call(w) * 3, v)
            pull.with_refs(ref)(ct)
            return jax.freeze(ref)

        on_each_device(
            jax.jit(inside)(x, ct), 3 * slope, f"the gradient by {name} in a reference of a program"
        )


def _pullbacks_into_parts(line, grid):
    """Pullbacks of gathers and steps add to references of the user: repeated and clipped indices, of cut arrays."""
    index = np.array([3, 5, 3, 0], np.int32)
    far = np.array([1, 99, 4, 99], np.int32)
    parts: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "every other row": (lambda v: v[::2], slice(None, None, 2)),
        "repeated rows": (lambda v: v[index], index),
        "clipped rows": (lambda v: v.at[far].get(mode="clip"), np.minimum(far, 5)),
        "cells": (lambda v: v[index, np.arange(4) % 2], (index, np.arange(4) % 2)),
    }
    _adds_to_references(line, parts, WAYS)


def _pullbacks_into_rows(line, grid):
    """Pullbacks of rows and of slices without steps add to references of the user."""
    parts: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "a row": (lambda v: v[2], 2),
        "rows from the end": (lambda v: v[-3:-1], slice(-3, -1)),
        "columns": (lambda v: v[1:4, :1], np.s_[1:4, :1]),
    }
    _adds_to_references(line, parts, WAYS)


def _pullbacks_into_dynamic_parts(line, grid):
    """Pullbacks of dynamic parts add to references of the user: of compiled functions first: JAX breaks others."""

    def part(v: Any) -> Any:
        return lax.dynamic_slice_in_dim(v, jnp.int32(1), 3, 0)

    for way in reversed(WAYS.items()):
        _adds_to_references(line, {"a dynamic part": (part, slice(1, 4))}, dict([way]))


def _kinds_of_gradients_of_scans(line, grid):
    """A pullback of a scan adds some gradients to references, returns others and leaves out the rest, in any mix."""
    n = line.size
    ad: Any = getattr(jax, "ad", None)
    vjp: Any = jax.vjp  # its types do not tell of with_refs
    if not hasattr(vjp(lambda v: v, np.float32(1))[1], "with_refs") or not hasattr(ad, "DontWant"):
        raise Missing("the pullbacks of this release take no references")

    def chain(ws: Any, vs: Any, u: Any) -> Any:
        return lax.scan(lambda c, wv: (c * wv[0] + wv[1], None), u, (ws, vs))[0].sum()

    ws, vs, u = (numbers(3, 2 * n, step=step) % 4 - 1 for step in (5, 7, 3))
    u = u[0]
    tails = [ws[k + 1 :].prod(0) for k in range(3)]
    states = [u]
    for k in range(3):
        states.append(states[-1] * ws[k] + vs[k])
    right = [np.stack([states[k] * tails[k] for k in range(3)]), np.stack(tails), ws.prod(0)]
    given = [placed(line, ws, None, "d"), placed(line, vs, None, "d"), placed(line, u, "d")]
    for mix in ("vrv", "rdv", "drv", "vdr", "rrd", "dvr", "rvr"):
        for way, run in WAYS.items():

            def mixed_up(*a: Any, mix: str = mix) -> Any:
                refs: list[Any] = [
                    jax.new_ref(jnp.ones_like(v)) if k == "r" else None for k, v in zip(mix, a, strict=True)
                ]
                kinds = [
                    r if k == "r" else ad.GradValue() if k == "v" else ad.DontWant()
                    for r, k in zip(refs, mix, strict=True)
                ]
                out, pull = vjp(chain, *a)
                back = pull.with_refs(*kinds)(jnp.ones_like(out))
                return [
                    jax.freeze(r) if k == "r" else b
                    for r, k, b in zip(refs, mix, back, strict=True)
                    if k != "d"
                ]

            found = iter(run(mixed_up)(*given))
            for k, (kind, answer) in enumerate(zip(mix, right, strict=True)):
                if kind != "d":
                    what = f"gradient {k} of a scan of which the kinds are {mix}, {way}"
                    on_each_device(next(found), answer + (kind == "r"), what)


RULES_OF_TESTED_PULLBACKS: dict[str, Callable[..., None]] = {
    "pullbacks_into_parts": _pullbacks_into_parts,
    "pullbacks_into_rows": _pullbacks_into_rows,
    "pullbacks_into_dynamic_parts": _pullbacks_into_dynamic_parts,
    "kinds_of_gradients_of_scans": _kinds_of_gradients_of_scans,
}
