# SPDX-License-Identifier: Apache-2.0
"""Lists the options of public functions that no case of the standard profile sets: their faults can't be found.

    python -m tests.studies.options [--only TEXT]

Every function of the public modules notes the options of its calls, while one case of each variant and mode is traced,
or run in mode host. It prints each called function, the number of its calls, and its options that have their default
value in every call. Without --only it takes some minutes of one processor.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import multihost_utils

from meshmark.judge.checks import Judge
from meshmark.judge.programs import Program, x64
from meshmark.operations import FAMILIES, cases
from meshmark.operations.cases import Case
from meshmark.operations.selection import Selection

MODULES = {
    "jax": jax,
    "lax": lax,
    "jnp": jnp,
    "jnp.linalg": jnp.linalg,
    "jnp.fft": jnp.fft,
    "nn": jax.nn,
    "ops": jax.ops,
    "random": jax.random,
    "multihost_utils": multihost_utils,
}

LABELS = re.compile(r"(of|axes|axis|to|batch|model)=[^,]*")
"""What tells variants of one program apart that spell the same calls."""


class Noted:
    """A function that notes the options of its calls. All its other attributes are those of the real function."""

    def __init__(
        self, real: Callable[..., Any], options: dict[str, Any], calls: Counter[str], seen: set[str]
    ) -> None:
        functools.update_wrapper(self, real)
        self._real, self._options, self._calls, self._seen = real, options, calls, seen
        self._signature = inspect.signature(real)

    def __call__(self, *a: Any, **k: Any) -> Any:
        self._calls["calls"] += 1
        try:
            given = self._signature.bind(*a, **k).arguments
        except TypeError:  # the call is refused
            given = {}
        self._seen.update(
            name for name, value in given.items() if name in self._options and self._other(name, value)
        )
        return self._real(*a, **k)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _other(self, name: str, value: Any) -> bool:
        """Whether an option has another value than its default."""
        try:
            return value is not self._options[name] and not bool(value == self._options[name])
        except (TypeError, ValueError):  # an array, or a traced one, has no one truth
            return True


def note_all() -> dict[str, tuple[dict[str, Any], Counter[str], set[str]]]:
    """Replace every public function by one that notes its options, and return (defaults, calls, options seen) by
    name."""
    found: dict[str, tuple[dict[str, Any], Counter[str], set[str]]] = {}
    for label, module in MODULES.items():
        for name, real in (
            vars(module).items() if label != "jax" else [(n, getattr(jax, n)) for n in dir(jax)]
        ):
            if name.startswith("_") or inspect.isclass(real) or inspect.ismodule(real) or not callable(real):
                continue
            try:
                parameters = inspect.signature(real).parameters.values()
            except (TypeError, ValueError):
                continue
            options = {p.name: p.default for p in parameters if p.default is not p.empty}
            found[f"{label}.{name}"] = options, Counter(), set()
    for label, noted in found.items():
        module, name = MODULES[label.rpartition(".")[0]], label.rpartition(".")[2]
        real = getattr(module, name)
        wrapped = Noted(real, *noted)
        setattr(module, name, wrapped)
        for family in FAMILIES:
            if getattr(family, name, None) is real:
                setattr(family, name, wrapped)
    return found


def chosen(only: str) -> list[Case]:
    """One case of each variant and mode whose id contains `only`."""
    first: dict[tuple[str, str, str], Case] = {}
    for case in cases.cases(Selection("standard"), jax.device_count()):
        variant = LABELS.sub("", case.id.split("/")[1])
        if only in case.id:
            first.setdefault((case.operation.name, variant, case.mode), case)
    return list(first.values())


def main() -> int:
    """Trace the cases and print the options that none of them sets."""
    parser = argparse.ArgumentParser(description="List the options that no case sets.")
    parser.add_argument("--only", default="", help="cases whose id has this text")
    options = parser.parse_args()
    noted, judge = note_all(), Judge(tuple(jax.devices()))
    for case in chosen(options.only):
        if case.mode == "host":
            judge.run(case)
            continue
        program = Program(case, tuple(jax.devices()))
        try:
            with x64(case.cell), program.context():
                program.jitted().trace(*program.structs())
        except Exception as error:
            print(f"not traced: {case.id}: {type(error).__name__}")
    for label, (usual, calls, seen) in sorted(noted.items()):
        left = [name for name in usual if name not in seen]
        if calls and left:
            print(f"{label} ({calls['calls']} calls): {', '.join(left)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
