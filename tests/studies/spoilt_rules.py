# SPDX-License-Identifier: Apache-2.0
"""Spoils what a small rule gets from JAX, one thing after the other: the rule must be broken each time.

    python -m tests.studies.spoilt_rules [--only RULE,...] [--reads 3]

A small rule runs programs and compares what it reads with written answers. Two things are spoiled:

- a read: one element of one array that NumPy reads is another one. `--reads` takes the first read, the last one, and
  some between them; 0 takes every read;
- a call: each result of one public function of `jax.lax`, `jax.numpy` or `jax.nn` that the rule calls by itself with
  arrays is twice its value and one more, so its slope is another one too.

A rule that holds all the same does not look there, and a fault there would pass. No fault of the rule's kind is needed,
so each rule that is added is studied too. The exit code is 1 if a rule holds and `tests/studies/spoilt_rules.tsv` does
not name it: one row per rule and thing spoiled, with the reason why nothing is lost.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")

import jax
import jax.numpy as jnp
import numpy as np

from meshmark.operations.base import Missing
from meshmark.operations.programs.small_rules.comparing import line_and_grid
from meshmark.operations.programs.small_rules.operation import SMALL_RULES

ALLOWED = Path(__file__).with_suffix(".tsv")
MODULES = (jax.lax, jax.numpy, jax.nn)


def changed(seen: np.ndarray) -> np.ndarray:
    """A copy with another last element: a bool flipped, an integer's lowest bit, a float by at least one."""
    out = np.array(seen, order="C")  # a layout may give another order, whose flat view is a copy
    if not out.size:
        return out
    flat = out.reshape(-1)
    if out.dtype.kind == "b":
        flat[-1] = not flat[-1]
    elif out.dtype.kind in "iu":
        flat[-1] ^= 1
    elif jnp.issubdtype(out.dtype, np.integer):  # int4 and its like have no operations on bits
        flat[-1] = 0 if flat[-1] else 1
    else:
        last = complex(flat[-1]) if out.dtype.kind == "c" else float(flat[-1])
        flat[-1] = last + max(1.0, abs(last)) if np.isfinite(last) else 1.0
    return out


@contextmanager
def spoilt_read(number: int | None) -> Iterator[list[int]]:
    """The array that NumPy reads as number `number` is changed; none, if it is None. Yields the numbers so far."""
    kind = type(jnp.zeros(()))
    converted, whole = kind.__array__, np.asarray
    reads: list[int] = []

    def spoil(seen: np.ndarray) -> np.ndarray:
        if not seen.size:
            return seen
        reads.append(len(reads))
        return changed(seen) if reads[-1] == number else seen

    def read(array: Any, *arguments: Any, **options: Any) -> np.ndarray:
        return spoil(converted(array, *arguments, **options))

    def asarray(value: Any, *arguments: Any, **options: Any) -> np.ndarray:
        before = len(reads)
        seen = whole(value, *arguments, **options)
        # NumPy takes the buffer of an array on one device, and doesn't call its method.
        return spoil(seen) if isinstance(value, jax.Array) and len(reads) == before else seen

    with patch.object(kind, "__array__", read), patch.object(np, "asarray", asarray):
        yield reads


def is_number(value: Any) -> bool:
    """Whether a value is an array of numbers or truths, and not of keys."""
    return isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended)


def doubled(value: Any) -> Any:
    """Twice the value and one more, where it is an array of numbers; the opposite, where it is one of truths."""
    if not is_number(value):
        return value
    return ~value if value.dtype == bool else value + value + 1


@contextmanager
def spoilt_call(name: str) -> Iterator[set[str]]:
    """Each result of the public function `name` is doubled, in calls from the rules. Yields the functions called."""
    called: set[str] = set()

    def watched(function: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*arguments: Any, **options: Any) -> Any:
            found = real(*arguments, **options)
            by_rule = sys._getframe(1).f_globals.get("__name__", "").startswith("meshmark.")
            of_arrays = any(isinstance(a, jax.Array) for a in jax.tree.leaves((arguments, options)))
            if not (by_rule and of_arrays and any(map(is_number, jax.tree.leaves(found)))):
                return found
            called.add(function)
            return jax.tree.map(doubled, found) if function == name else found

        return call

    with ExitStack() as stack:
        for module in MODULES:
            for attribute, real in list(vars(module).items()):
                # Classes, dtypes, ufunc objects and constants are no functions, and stay as they are.
                if not attribute.startswith("_") and type(real).__name__ in ("function", "PjitFunction"):
                    function = f"{module.__name__}.{attribute}"
                    stack.enter_context(patch.object(module, attribute, watched(function, real)))
        yield called


def said(rule: str, meshes: tuple[Any, Any]) -> str:
    """What a rule says; "" if it holds."""
    try:
        SMALL_RULES[rule](*meshes)
    except Missing:
        return "unsupported"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def numbers(count: int, most: int) -> list[int]:
    """At most `most` of `count` numbers, the first and the last among them; all, if `most` is 0."""
    if not most or count <= most:
        return list(range(count))
    return sorted({round(i) for i in np.linspace(0, count - 1, most)})


@dataclass
class Outcome:
    """What was spoiled of one rule, and where the rule held all the same."""

    rule: str
    skipped: str = ""
    """What the rule says when nothing is spoiled: it can't be asked then."""
    reads: int = 0
    calls: int = 0
    held: list[str] = field(default_factory=list)
    """"a read", or a function's name."""


def spoil(rule: str, meshes: tuple[Any, Any], most: int) -> Outcome:
    """Spoil some reads and every function of one rule, one after the other."""
    with spoilt_read(None) as reads, spoilt_call("") as called:
        skipped = said(rule, meshes)
    if skipped:
        return Outcome(rule, skipped)
    outcome = Outcome(rule, reads=len(reads), calls=len(called))
    for number in numbers(len(reads), most):
        with spoilt_read(number) as reads:
            # Callbacks read in threads, so a run may have fewer reads than the one before.
            if not said(rule, meshes) and len(reads) > number and "a read" not in outcome.held:
                outcome.held.append("a read")
    for name in (
        sorted(called) if reads else ()
    ):  # a rule of types, of what is sent or of refusals reads no numbers
        with spoilt_call(name):
            if not said(rule, meshes):
                outcome.held.append(name)
    return outcome


def allowed() -> dict[tuple[str, str], str]:
    """(rule, what is spoiled) -> why the rule may hold."""
    lines = ALLOWED.read_text(encoding="utf-8").splitlines() if ALLOWED.exists() else []
    return {(rule, spoilt): reason for rule, spoilt, reason in (line.split("\t") for line in lines)}


def unexplained(outcome: Outcome) -> list[str]:
    """Where a rule holds without a row that says why."""
    rows = allowed()
    return [what for what in outcome.held if (outcome.rule, what) not in rows]


def meshes_of_all_devices() -> tuple[Any, Any]:
    """The two meshes of the small rules over every device."""
    return line_and_grid(jax.sharding.Mesh(np.array(jax.devices()), ("d",)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names of small rules, with commas")
    parser.add_argument(
        "--reads", type=int, default=3, help="how many reads of a rule are spoiled (default: 3)"
    )
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(SMALL_RULES)
    if unknown := sorted(set(names) - set(SMALL_RULES)):
        parser.error(f"no small rule is named {', '.join(unknown)}")
    warnings.simplefilter("ignore")
    meshes = meshes_of_all_devices()
    bad = 0
    for name in names:
        outcome = spoil(name, meshes, options.reads)
        print(
            outcome.rule,
            outcome.skipped or f"{outcome.reads} reads, {outcome.calls} functions",
            f"held: {', '.join(outcome.held) or 'never'}",
            sep="\t",
            flush=True,
        )
        bad += bool(unexplained(outcome))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
