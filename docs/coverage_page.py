# SPDX-License-Identifier: Apache-2.0
"""Makes the page of what the table covers, from the case table and the list of public names."""

from collections import Counter

from docs import gradients, package
from docs.commands_page import cell

INTRODUCTION = """# Coverage

This page is made from the case table, on eight devices with every capability in the full profile. A number counts
cases. A letter stands for the reason why there is none.

Several processes have operations of their own ([many processes](processes.md)); they are not in these tables.
"""

COLUMNS = (*package.MODES, "gradient")


def letters(rows: list[package.Coverage]) -> dict[str, str]:
    """A letter for each reason, the most frequent first."""
    counts = Counter(reason for row in rows for reason in row.reasons.values())
    return {reason: chr(ord("a") + i) for i, (reason, _) in enumerate(counts.most_common())}


def by_operation(rows: list[package.Coverage]) -> list[str]:
    """The table by operation and mode, and its reasons."""
    letter = letters(rows)
    lines = [
        "## By operation and mode",
        "",
        f"| operation | {' | '.join(COLUMNS)} |",
        "|:--|" + "--:|" * len(COLUMNS),
    ]
    for row in rows:
        counts = {**row.cases, "gradient": row.gradient}
        cells = [str(counts[c]) if counts[c] else letter[row.reasons[c]] for c in COLUMNS]
        lines.append(f"| `{row.name}` | {' | '.join(cells)} |")
    return [*lines, "", *(f"- **{sign}**: {cell(reason)}." for reason, sign in letter.items()), ""]


def by_transformation() -> list[str]:
    """The table by transformation and mode."""
    found = package.transforms()
    modes = [mode for mode in package.MODES if any(counts[mode] for counts in found.values())]
    lines = [
        "## By transformation",
        "",
        "The gradient above is `jax.vjp` of each operation. These transformations are judged on one function whose",
        "derivatives are known, `x * s(x)` with a sum over mesh axes: operation `transform`. **a** stands for a",
        "transformation of a local function, which a global program does not have.",
        "",
        f"| transformation | {' | '.join(modes)} |",
        "|:--|" + "--:|" * len(modes),
    ]
    for name, counts in found.items():
        lines.append(f"| `{name}` | {' | '.join(str(counts[m]) if counts[m] else 'a' for m in modes)} |")
    return [*lines, ""]


def by_function() -> list[str]:
    """The table by transformation and group of functions."""
    lines = [
        "## By transformation and function",
        "",
        "Operations `transformed`, inside of programs in every mode, and `transformed_shard_map`, around shard_map:",
        "",
        *(f"- {group}: {', '.join(functions)}" for group, functions in package.GROUPS.items()),
        "",
        f"| transformation | {' | '.join(package.GROUPS)} |",
        "|:--|" + "--:|" * len(package.GROUPS),
    ]
    for name, counts in package.transformed().items():
        lines.append(f"| `{name}` | {' | '.join(str(counts[group]) for group in package.GROUPS)} |")
    return [*lines, ""]


def by_name() -> list[str]:
    """The public functions of JAX that have a case, by module, and the reasons why others have none."""
    names = package.names
    listed = list(names.read_names().values())
    lines = [
        "## Public functions of JAX",
        "",
        "A function is covered where a program of the table takes it from its public module. A test traces these",
        f"programs. At most {names.LIMIT:.0%} of the functions of arrays may have a reason instead.",
        "",
        "| module | functions | of arrays | covered | with a reason |",
        "|:--|--:|--:|--:|--:|",
    ]
    for module in names.MODULES:
        own = [row for row in listed if row.name.rpartition(".")[0] == module]
        arrays, reasoned = names.of_arrays(own), names.find_reasoned(own)
        counts = (len(own), len(arrays), len(arrays) - len(reasoned), len(reasoned))
        lines.append(f"| `{module}` | {' | '.join(map(str, counts))} |")
    lines += ["", "| kind | what it means | functions |", "|:--|:--|:--|"]
    for kind in (*names.REASONS, *names.OUTSIDE):
        own_names = [f"`{row.name.removeprefix('jax.')}`" for row in listed if row.kind == kind]
        lines.append(f"| {kind} | {cell(names.KINDS[kind])} | {', '.join(own_names)} |")
    return [*lines, ""]


def page() -> str:
    """The Markdown of the page."""
    return "\n".join(
        [
            INTRODUCTION,
            *by_operation(package.coverage()),
            *gradients.lines(),
            *by_transformation(),
            *by_function(),
            *by_name(),
        ]
    )
