# SPDX-License-Identifier: Apache-2.0
"""Defines planted faults: what a fault is, the catalogue of faults, and the two ways to activate one.

A fault is a small patch to JAX's public functions (`patched`), or to the results of a compiled program (`results`). It
is active while cases are judged. The modules faults_of_*.py register their faults here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from meshmark.judge import programs
from meshmark.operations import FAMILIES
from meshmark.operations.cases import Case

Shards = list[np.ndarray]


@dataclass
class Fault:
    """One fault: its context manager, and the cases that are likely to show it."""

    name: str
    put_in: Callable[[], Any]
    """Makes the context manager that puts it in."""
    likely: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields of a Selection that narrow the table to where it can show."""
    core: bool = False
    """Whether the smoke profile must catch it too."""
    only: Callable[[Case], bool] = lambda case: True
    """Which of those cases can show it, where a Selection can't say so."""


CATALOGUE: dict[str, Fault] = {}


def fault(
    core: bool = False, only: Callable[[Case], bool] = lambda case: True, **likely: tuple[str, ...]
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function, which makes a context manager, as a fault with its name."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        name = make.__name__.replace("_", " ")
        CATALOGUE[name] = Fault(name, make, likely, core, only)
        return make

    return register


# What a compiled program returns, edited.


class Mangled:
    """A compiled program whose results are edited by `edit`."""

    def __init__(self, compiled: Any, edit: Callable[[Shards], Shards]) -> None:
        self._compiled, self._edit = compiled, edit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *arguments: Any) -> Any:
        return jax.tree.map(self._mangle, self._compiled(*arguments))

    def _mangle(self, array: jax.Array) -> jax.Array:
        shards = sorted(array.addressable_shards, key=lambda s: s.device.id)
        edited = self._edit([np.array(s.data) for s in shards])
        placed = [jax.device_put(e, s.device) for e, s in zip(edited, shards, strict=True)]
        return jax.make_array_from_single_device_arrays(array.shape, array.sharding, placed)


@contextmanager
def results(
    edit: Callable[[Shards], Shards], where: Callable[[Case], bool] = lambda case: True
) -> Iterator[None]:
    """Edit the results of every program in this context, in the cases that `where` accepts."""
    real = programs.Program.compile

    def compile_(program: programs.Program) -> Any:
        compiled = real(program)
        return Mangled(compiled, edit) if where(program.case) else compiled

    with patch.object(programs.Program, "compile", compile_):
        yield


def each(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Shards], Shards]:
    """An edit that changes every shard in the same way."""
    return lambda shards: [change(s).astype(s.dtype) for s in shards]


def last(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Shards], Shards]:
    """An edit that changes the last device's shard."""
    return lambda shards: [*shards[:-1], change(shards[-1]).astype(shards[-1].dtype)]


def nudged(shard: np.ndarray) -> np.ndarray:
    """A copy of the shard with the lowest bit of its last element flipped."""
    out = shard.copy()
    if out.size:
        bits = out.reshape(-1).view(
            f"u{1 if out.dtype.kind == 'b' else out.dtype.itemsize // (2 if out.dtype.kind == 'c' else 1)}"
        )
        bits[-1] ^= 1
    return out


def through(kind: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A change that rounds floats of more than 16 bits to a narrower type and back."""

    def rounded(s: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return s.astype(kind).astype(s.dtype) if s.dtype.kind in "fV" and s.dtype.itemsize > 2 else s

    return rounded


def of_dtype(name: str) -> Callable[[Case], bool]:
    """Whether a case has this dtype, as a function of cases."""
    return lambda case: case.cell.request.dtype == name


def on_mesh(label: str) -> Callable[[Case], bool]:
    """Whether a case is on this mesh, as a function of cases."""
    return lambda case: case.mesh.label == label


def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """A context in which make(the real function) replaces `owner.name`, also in operations modules that have imported
    it by name."""
    real = getattr(owner, name)
    wrong = make(real)
    stack = ExitStack()

    @contextmanager
    def enter() -> Iterator[None]:
        with stack:
            stack.enter_context(patch.object(owner, name, wrong))
            for module in FAMILIES:
                if getattr(module, name, None) is real:
                    stack.enter_context(patch.object(module, name, wrong))
            yield

    return enter()


def axes_of(axis_name: Any) -> tuple[str, ...]:
    """Axis names as a tuple, from one name or several."""
    return (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
