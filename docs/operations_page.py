# SPDX-License-Identifier: Apache-2.0
"""Makes the page of operations from the case table."""

from docs import package
from docs.commands_page import cell

INTRODUCTION = """# Operations and modes

This page is made from the case table. `meshmark list` prints the same for the cases that its options choose, and
`meshmark list --why` says why an operation has no spelling in a mode. [Coverage](coverage.md) has the numbers of cases.

| mode | how the operation is spelled |
|---|---|
| auto | `jax.jit` over Auto axes, with `out_shardings` |
| explicit | `jax.jit` over Explicit axes (`jax.set_mesh`, `reshard`, `out_sharding`); types are checked while tracing |
| manual | `jax.shard_map` with `check_vma=True` |
| manual-novma | `jax.shard_map` with `check_vma=False` |
| pmap, pjit | the older spellings of manual and auto |
| host | a call without a program: `device_put`, `make_array_from_callback` and so on |

**Meshes.** All ordered factorizations of the devices into one to three axes (axes of size 1 included), one permuted
order of the devices, and sub-meshes of the first 3 and 6 devices. Several processes add an order in which neighbours
belong to different processes.

**Dtypes.** float32, bfloat16, float16, int32, int8, uint8 and bool, where the operation is defined for them. Of the
types that hardware may lack a few cases run where a probe finds them; `--with complex,x64` adds all of complex64,
float64 and complex128.

**Profiles.** One rule selects the cases. Each coordinate of a case has a weight: 0 for the ordinary one, more for an
unusual one. A profile takes the cases whose weights add up to at most 0 (`smoke`), 2 (`standard`) or 4 (`full`).

**Removed APIs.** `jax.shard_map` (mode manual) replaces `xmap`, which left JAX in 0.4.31.
`jax.make_array_from_single_device_arrays` replaces `make_sharded_device_array`, which left in 0.4.14 with the type
`ShardedDeviceArray`. `jax.device_put` with a `NamedSharding` replaces `device_put_sharded` and `device_put_replicated`,
which left in 0.10.0. The replacements are tested.
"""


def levels(families: dict[str, list[package.Row]]) -> list[str]:
    """The lines that name the operations of each level, by family."""
    held: dict[str, dict[str, list[str]]] = {}
    for family, rows in families.items():
        for row in rows:
            for level in row.levels:
                held.setdefault(level, {}).setdefault(family, []).append(f"`{row.name}`")
    lines = ["## Levels\n", "| level | family | operations |\n|---|---|---|"]
    for level in sorted(held):
        lines += [f"| {level} | {family} | {', '.join(names)} |" for family, names in held[level].items()]
    return [*lines, ""]


def page() -> str:
    """The Markdown of the page."""
    families: dict[str, list[package.Row]] = {}
    for row in package.rows():
        families.setdefault(row.family, []).append(row)
    parts = [INTRODUCTION, *levels(families)]
    for family, rows in families.items():
        parts += [
            f"## {family.capitalize()}\n",
            "| operation | level | modes | what it is |\n|---|---|---|---|",
        ]
        parts += [
            f"| `{r.name}` | {' '.join(r.levels)} | {', '.join(r.modes)} | {cell(r.description)} |"
            for r in rows
        ]
        parts.append("")
    return "\n".join(parts) + "\n"
