# SPDX-License-Identifier: Apache-2.0
"""Lies about the end of a run: files that were cut or changed, and closed again."""

from collections.abc import Callable

from meshmark.records import closing
from tests.lies.telling import Change, Lie, Records, of_kind, on_facts, suite


def closed(
    change: Callable[[Records], None] = lambda lines: None,
    end: dict | None = None,
    cut: int = 0,
    **selection: object,
) -> Change:
    """A conformance file with a closing line, made anew by who changed the lines before it. end: other fields of it;
    cut: so many lines are cut off. The selection is that of the cases that are there."""

    def lie(conformance: Records, timed: Records) -> None:
        names = dict.fromkeys(line["case"] for line in of_kind(conformance, "conformance"))
        rest = [name for name in names if of_kind(conformance, "conformance", case=name)[0]["level"] != "L0"]
        conformance[:] = [line for line in conformance if line.get("case") not in rest]
        conformance[0] |= closing.CLOSES | {
            "selection": {"profile": "standard", "levels": ["L0"], "timed": False} | selection
        }
        change(conformance)
        there = {line["case"] for line in of_kind(conformance, "conformance")}
        run = {"run": conformance[0]["run"]}
        conformance.insert(1, closing.make_chosen_line(there) | run)
        account = closing.Account()
        for line in conformance:
            account.add(line)
        conformance.append(account.end(0) | {"ended": "2026-11-20T10:30:00Z"} | run | (end or {}))
        del conformance[len(conformance) - cut :]

    return lie


def first_taken_out(lines: Records) -> None:
    """The first case goes away."""
    gone = lines[1]["case"]
    lines[:] = [line for line in lines if line.get("case") != gone]


def first_fails(lines: Records) -> None:
    """The first case is wrong."""
    lines[1] |= {"verdict": "fail", "reason": "4 of 4 elements differ"}


def closed_anew(change: Callable[[Records], None]) -> Change:
    """A closed conformance file that somebody changed, and closed once more so that it fits."""

    def lie(conformance: Records, timed: Records) -> None:
        closed()(conformance, timed)
        end = conformance.pop()
        change(conformance)
        account = closing.Account()
        for line in conformance:
            account.add(line)
        conformance.append(account.end(0) | {name: end[name] for name in ("ended", "run")})

    return lie


def choice(**fields: object) -> Callable[[Records], None]:
    """Another line of what was chosen."""
    return lambda lines: of_kind(lines, "chosen")[0].update(fields)


def not_chosen(lines: Records) -> None:
    """No line of what was chosen."""
    lines[:] = [line for line in lines if line["kind"] != "chosen"]


def scattered(lines: Records) -> None:
    """The last line of each case behind all other lines."""
    lines.sort(key=lambda line: line.get("check") == "sharding")


def ended_twice(conformance: Records, timed: Records) -> None:
    """Two closing lines."""
    closed()(conformance, timed)
    conformance.append(dict(conformance[-1]))


LIES: dict[str, Lie] = {
    "a file cut behind a whole case": Lie(closed(cut=5), "the run did not end: .* chosen cases are there"),
    "a failing case taken out, and the file closed anew": Lie(
        closed(first_taken_out), "its selection gives .* cases: 1 are not there"
    ),
    "a longer profile than was run": Lie(closed(levels=["L0", "L1"]), "its selection gives .* are not there"),
    "a run that ends before it begins": Lie(
        closed(end={"ended": "2026-11-19T10:00:00Z"}), "s before that of a line above it"
    ),
    "cases that took longer than their run": Lie(
        closed(lambda lines: lines[5].update(seconds=9000.0)), "took 9000 s, and its run 1920 s at most"
    ),
    "exit code 0 of a run with a failure": Lie(
        closed(first_fails), "ended with exit code 0, and has cases with verdict fail"
    ),
    "a run that was interrupted": Lie(closed(end={"exit_code": 130}), "ended early, with exit code 130"),
    "no closing line, as an earlier version": Lie(
        on_facts(**suite(commit="c" * 40)), "`closes` is missing, and the commit closes its records"
    ),
    "a run that ends in the future": Lie(
        closed(end={"ended": "2099-01-01T00:00:00Z"}), "its time, 2099-01-01T00:00:00Z, is still to come"
    ),
    "a choice of fewer cases than are there": Lie(
        closed_anew(choice(cases=3)), "the run ended early, with exit code 0: 91 of 3 chosen cases"
    ),
    "a choice of other cases": Lie(closed_anew(choice(digest="0" * 16)), "the run ended early"),
    "no line of what was chosen": Lie(closed_anew(not_chosen), "it had not chosen yet"),
    "two closing lines": Lie(ended_twice, "a line behind the closing line"),
    "lines of cases that are scattered": Lie(
        closed_anew(scattered), "are not together, and a case is written"
    ),
    "an exit code that no run has": Lie(closed(end={"exit_code": 77}), "ended early, with exit code 77"),
}
