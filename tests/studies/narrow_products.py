# SPDX-License-Identifier: Apache-2.0
"""Products of narrow dtypes whose contracted dimension is short: which are wrong on this device.

    python -m tests.studies.narrow_products [--part 0] [--parts 1] [--record FILE]

Each product is compiled alone, run, and compared with NumPy. Its factors hold whole numbers from -6 to 6, so every
result is exact. A line of the table has the products of one pair of dtypes that are wrong, and those that Triton
computes, for each length of the contracted dimension. `--record` writes one JSON line for each product, with the
compiled text of each wrong one. On a GPU a product takes about half a second to compile, so `--part` and `--parts`
divide the 972 products between processes.

The exit code is 1 if a product is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LENGTHS = (1, 3, 8, 11, 12, 16, 20, 32, 48)
SIZES = ((6, 6), (16, 16), (64, 48))
FORMS = {"TN": ((0,), (0,)), "NN": ((1,), (0,)), "NT": ((1,), (1,))}
"""Which dimension of each factor is contracted: T where it is not the one that NumPy's @ takes."""

BF16, F16, F32, INT32 = jnp.bfloat16, jnp.float16, jnp.float32, jnp.int32


def product(out: Any, left: Any = None, right: Any = None) -> Callable[..., Any]:
    """A product accumulated in `out`, of factors that are cast before, if a dtype is given."""

    def function(a: Any, b: Any, form: str) -> Any:
        a, b = a if left is None else a.astype(left), b if right is None else b.astype(right)
        return lax.dot_general(a, b, (FORMS[form], ((), ())), preferred_element_type=out)

    return function


KINDS: dict[str, tuple[Any, Any, Callable[..., Any]]] = {
    "int8 * int8": (jnp.int8, jnp.int8, product(INT32)),
    "int8 (cast from float32) * the same": (F32, F32, product(INT32, jnp.int8, jnp.int8)),
    "uint8 * uint8": (jnp.uint8, jnp.uint8, product(INT32)),
    "bfloat16 * int4 cast to it": (BF16, jnp.int4, product(F32, right=BF16)),
    "bfloat16 * int8 cast to it": (BF16, jnp.int8, product(F32, right=BF16)),
    "int8 cast to bfloat16 * bfloat16": (jnp.int8, BF16, product(F32, left=BF16)),
    "float16 * int8 cast to it": (F16, jnp.int8, product(F32, right=F16)),
    "float32 * int8 cast to it": (F32, jnp.int8, product(F32, right=F32)),
    "bfloat16 * bfloat16": (BF16, BF16, product(F32)),
    "bfloat16 cast to float32 * the same": (BF16, BF16, product(F32, F32, F32)),
    "float8_e4m3fn * the same": (jnp.float8_e4m3fn, jnp.float8_e4m3fn, product(F32)),
    "bfloat16 * float8_e4m3fn cast to it": (BF16, jnp.float8_e4m3fn, product(F32, right=BF16)),
}


def judged(part: int, parts: int) -> Iterator[dict[str, Any]]:
    """One row for each product of this part."""
    rng = np.random.default_rng(part)
    for kind, k, (m, n), form in list(itertools.product(KINDS, LENGTHS, SIZES, FORMS))[part::parts]:
        left, right, function = KINDS[kind]
        low = 0 if "uint8" in kind else -6
        a, b = rng.integers(low, 7, (m, k)), rng.integers(low, 7, (k, n))
        given = (a.T if form[0] == "T" else a, b.T if form[1] == "T" else b)
        placed = [
            jnp.asarray(x.astype(np.float32)).astype(d) for x, d in zip(given, (left, right), strict=True)
        ]
        compiled = jax.jit(function, static_argnums=2).lower(*placed, form).compile()
        seen, text = np.asarray(compiled(*placed).astype(F32)), compiled.as_text() or ""
        wrong = seen != a @ b
        row = {"kind": kind, "length": k, "sizes": [m, n], "form": form, "wrong": int(wrong.sum())}
        row |= {"of": wrong.size, "triton": "__triton" in text}
        yield row | ({"seen": seen.tolist(), "text": text} if wrong.any() else {})


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Wrong products of those that Triton computes, by dtypes and length."""
    lines = [f"| factors | {' | '.join(map(str, LENGTHS))} |", "|---" * (len(LENGTHS) + 1) + "|"]
    for kind in KINDS:
        cells = []
        for length in LENGTHS:
            own = [row for row in rows if row["kind"] == kind and row["length"] == length]
            cells.append(f"{sum(r['wrong'] > 0 for r in own)} of {sum(r['triton'] for r in own)}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args(argv)
    rows = list(judged(options.part, options.parts))
    if options.record:
        options.record.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}: {len(rows)} products")
    print(table(rows))
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
