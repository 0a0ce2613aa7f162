# SPDX-License-Identifier: Apache-2.0
"""Makes the page of the hunt's findings from results/findings."""

from docs.commands_page import cell
from docs.package import ROOT
from meshmark.hunt import findings
from meshmark.hunt.findings import Finding

STORE = ROOT / findings.STORE
INTRODUCTION = """# Found by the hunt

This page is made from `results/findings`. Each row is one root cause. [The hunt](hunt.md) drew a program that showed
it, and shrank the program to a script that imports jax and numpy alone. `meshmark hunt --replay NAME` runs it again,
on the JAX at hand. Cases of the table found `mean-without-nan-of-bfloat16` and `cumulative-functions-of-one-array`,
and their programs were written by hand; so was every one of the last section.

The releases of a span had the same outcome wherever they were tried.
"""

TITLES = {
    "silent": "Wrong numbers without a word",
    "crash": "The process ends",
    "internal": "Internal errors of the compiler",
    "refused": "Right programs that are refused",
}


def page() -> str:
    """The Markdown of the page."""
    every = findings.read_findings(STORE)
    lines = [INTRODUCTION]
    for severity, title in TITLES.items():
        chosen = [f for f in every if f.severity == severity]
        if not chosen:
            continue
        lines += [
            f"## {title}",
            "",
            "| finding | what it means | releases | reported before |",
            "|---|---|---|---|",
        ]
        lines += [f"| {row} |" for row in map(row_of, chosen)]
        lines.append("")
    return "\n".join([*lines, *by_hand()])


def by_hand() -> list[str]:
    """The section of the findings that no drawn program shows: those without a finding.json."""
    reports = sorted(
        path for path in STORE.glob("*/report.md") if not (path.parent / "finding.json").exists()
    )
    rows = []
    for path in reports:
        place = f"../{findings.STORE}/{path.parent.name}/report.md"
        rows.append(f"- [{path.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}]({place})")
    about = "Compilers without their hardware, and one GPU, showed these in cases of the table."
    return ["## Found by cases of the table", "", about, "", *rows, ""]


def row_of(finding: Finding) -> str:
    """The table row of one finding."""
    link = f"[{finding.title}](../{findings.STORE}/{finding.name}/report.md)"
    return " | ".join(
        (
            link,
            cell(finding.sentence),
            cell(spans(finding.releases)),
            cell(finding.reported or "not searched yet"),
        )
    )


def spans(releases: dict[str, str]) -> str:
    """Outcomes by release, with equal neighbours joined: `0.4.30 to 0.9.2 right, 0.10.2 to 0.12.0.1 wrong`."""
    runs: list[tuple[str, str, str]] = []
    for version, outcome in releases.items():
        if runs and runs[-1][2] == outcome:
            runs[-1] = (runs[-1][0], version, outcome)
        else:
            runs.append((version, version, outcome))
    return ", ".join(
        f"{first} {outcome}" if first == last else f"{first} to {last} {outcome}"
        for first, last, outcome in runs
    )
