# SPDX-License-Identifier: Apache-2.0
"""Lies about runs that count the time of their samples, and hold the times of their rounds."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from meshmark.timing.measure import COUNTS
from tests.lies.telling import Change, Lie, Records, both, of_kind, on_facts, suite

COUNTING = "b" * 40
"""A commit whose runs count the time of their samples."""

SECONDS = 0.5
"""What profile full gives each program."""

GAP = 40e-6
"""Seconds between two samples."""

Cell = list[dict]
"""The lines of one cell and cadence; the first one holds the times of their rounds."""


def cells(timed: Records) -> list[Cell]:
    """The cells of a timing file."""
    found: dict[str, Cell] = {}
    for line in of_kind(timed, "timing"):
        found.setdefault(line["cadence"], []).append(line)
    return list(found.values())


def counted(conformance: Records, timed: Records) -> None:
    """The timings of an honest run of this version, whose samples are around 1 ms; one in thirty is up to 3 times as
    slow. Sampling ends with the first round after which they have taken more than their time."""
    timed[0]["timing"] = timed[0]["timing"] | {"seconds": SECONDS, "counts": COUNTS}
    timed[0]["selection"] = timed[0]["selection"] | {"profile": "full"}
    for number, cell in enumerate(cells(timed)):
        draw, rounds, spent, at = random.Random(number), [0.0], 0.0, 0.0
        for line in cell:
            line["samples_s"] = []
        cell[0]["control_s"] = []
        if cell[0]["cadence"] == "stream":
            cell[0]["control_calls"] = 2
        while spent <= SECONDS * (len(cell) + 1):
            for line in cell:
                line["samples_s"].append(sample_of(draw))
            took = [line["samples_s"][-1] for line in cell]
            cell[0]["control_s"].append(sample_of(draw) / cell[0].get("control_calls", 1))
            took.append(cell[0]["control_s"][-1] * cell[0].get("control_calls", 1))
            spent += sum(took)
            at += sum(took) + len(took) * GAP * draw.uniform(0.8, 1.2)
            rounds.append(round(at, 6))
        cell[0]["rounds_s"] = rounds
    timed[-1]["seconds"] = 5.0


def sample_of(draw: random.Random) -> float:
    """A sample of seven digits."""
    slow = draw.uniform(1, 2) if draw.random() < 1 / 30 else 0.0
    return float(f"{0.001 * (1 + draw.random() / 4 + slow):.7g}")


def in_cells(change: Callable[[Cell], None]) -> Change:
    """A change of each cell of an honest run of this version."""
    return both(counted, lambda conformance, timed: list(map(change, cells(timed))))


def series(cell: Cell) -> list[list[float]]:
    """The lists of samples of a cell, its control's last."""
    return [*(line["samples_s"] for line in cell), cell[0]["control_s"]]


def sums(cell: Cell) -> list[float]:
    """The seconds that the samples of each round took."""
    calls = [1] * len(cell) + [cell[0].get("control_calls", 1)]
    return [sum(s * n for s, n in zip(own, calls, strict=True)) for own in zip(*series(cell), strict=True)]


def slowest_of_each(share: float) -> Callable[[Cell], None]:
    """The slowest samples of each program, wherever they are, and as many rounds fewer. Rounds keep their times."""

    def drop(cell: Cell) -> None:
        for own in series(cell):
            for _ in range(max(1, round(share * len(own)))):
                own.remove(max(own))
        del cell[0]["rounds_s"][len(cell[0]["samples_s"]) + 1 :]

    return drop


def without_rounds(cell: Cell, gone: Sequence[int], closed: bool) -> None:
    """Take these rounds away; closed: later rounds begin earlier, so that no gap is left."""
    lengths = [after - before for before, after in pairwise(cell[0]["rounds_s"])]
    begins = cell[0]["rounds_s"][:-1]
    kept = [i for i in range(len(lengths)) if i not in gone]
    for own in series(cell):
        own[:] = [own[i] for i in kept]
    if not closed:
        cell[0]["rounds_s"] = [*(begins[i] for i in kept), cell[0]["rounds_s"][-1]]
        return
    times = [0.0]
    for i in kept:
        times.append(round(times[-1] + lengths[i], 6))
    cell[0]["rounds_s"] = times


def slowest_rounds(share: float, closed: bool = True) -> Callable[[Cell], None]:
    """The slowest whole rounds."""

    def drop(cell: Cell) -> None:
        took = sums(cell)
        ranked = sorted(range(len(took)), key=took.__getitem__, reverse=True)
        without_rounds(cell, ranked[: max(1, round(share * len(took)))], closed)

    return drop


def last_round(cell: Cell) -> None:
    """The last round, whose times go too."""
    without_rounds(cell, [len(cell[0]["samples_s"]) - 1], True)


def fitted(given: float, closed: bool, profile: str = "full") -> Change:
    """The slowest rounds are dropped until the rest fits a smaller time, and the run is said to give that time."""

    def lie(conformance: Records, timed: Records) -> None:
        timed[0]["timing"]["seconds"] = given
        timed[0]["selection"]["profile"] = profile
        for cell in cells(timed):
            most = given * len(series(cell))
            while sum((took := sums(cell))[:-1]) > most:
                rest = sum(took) - most
                fits = [number for number, s in enumerate(took[:-1]) if s < rest]
                without_rounds(cell, [max(fits, key=took.__getitem__)], closed)

    return both(counted, lie)


def scaled(factor: float, rounds: bool) -> Callable[[Cell], None]:
    """All samples times a factor; rounds: the times of rounds too."""

    def scale(cell: Cell) -> None:
        for own in series(cell):
            own[:] = [float(f"{s * factor:.7g}") for s in own]
        if rounds:
            cell[0]["rounds_s"] = [round(s * factor, 6) for s in cell[0]["rounds_s"]]

    return scale


def tail_replaced(cell: Cell) -> None:
    """Each slow sample is one of those around the median instead, and one more round is made up to spend the time."""
    draw = random.Random(cell[0]["cadence"])
    for own in series(cell):
        middle = sorted(own)[len(own) // 2]
        own[:] = [s if s < 1.5 * middle else float(f"{middle * draw.uniform(0.9, 1.1):.7g}") for s in own]
    fill(cell, draw)


def few_replaced(cell: Cell) -> None:
    """The two slowest samples of each program are common ones instead, and one more round is made up to spend the time.
    The gaps that are left are those of a busy machine."""
    draw = random.Random(cell[0]["cadence"])
    for own in series(cell):
        middle = sorted(own)[len(own) // 2]
        for _ in range(2):
            own[own.index(max(own))] = float(f"{middle * draw.uniform(0.9, 1.1):.7g}")
    fill(cell, draw)


def fill(cell: Cell, draw: random.Random) -> None:
    """Rounds are made up until the time is spent."""
    while sum(sums(cell)) <= SECONDS * len(series(cell)):
        for own in series(cell):
            own.append(float(f"{sorted(own)[len(own) // 2] * draw.uniform(0.9, 1.1):.7g}"))
        cell[0]["rounds_s"].append(round(cell[0]["rounds_s"][-1] + 1.05 * sums(cell)[-1], 6))


def given_to_the_control(cell: Cell) -> None:
    """Each slow sample of the first mode is a common one instead, and the control has the rest of its time in the same
    round."""
    draw, own, control = random.Random(4), cell[0]["samples_s"], cell[0]["control_s"]
    middle = sorted(own)[len(own) // 2]
    for i, slow in enumerate(own):
        if slow > 1.5 * middle:
            own[i] = float(f"{middle * draw.uniform(0.9, 1.1):.7g}")
            control[i] = float(f"{control[i] + (slow - own[i]) / cell[0].get('control_calls', 1):.7g}")


def no_profile(conformance: Records, timed: Records) -> None:
    """The profile, which gives the time of the run, is left out."""
    del timed[0]["selection"]["profile"]


def backwards(cell: Cell) -> None:
    """Times of rounds that go back to 0 after each round."""
    number = len(cell[0]["rounds_s"])
    cell[0]["rounds_s"] = [float(1000 * (i % 2)) for i in range(number - 1)] + [0.0]


def stretched(cell: Cell) -> None:
    """Every round takes a thousand times as long, in each cadence."""
    for record in cell:
        for name in ("rounds_s", "control_rounds_s"):
            if name in record:
                record[name] = [time * 1000 for time in record[name]]


def fields(line: int, **fields: object) -> Change:
    """Other fields of one line of each cell; None takes a field away."""

    def change(cell: Cell) -> None:
        cell[line].update({k: v for k, v in fields.items() if v is not None})
        for name in fields:
            if fields[name] is None:
                del cell[line][name]

    return in_cells(change)


def settings(**fields: object) -> Change:
    """Other settings of an honest run of this version; None takes one away."""

    def lie(conformance: Records, timed: Records) -> None:
        for name, value in fields.items():
            timed[0]["timing"][name] = value
            if value is None:
                del timed[0]["timing"][name]

    return both(counted, lie)


def in_one_round(cell: Cell) -> None:
    """The samples of two rounds, swapped."""
    for own in series(cell):
        slow = own.index(max(own))
        own[slow], own[slow - 1] = own[slow - 1], own[slow]


def most_rounds(conformance: Records, timed: Records) -> None:
    """A run whose most samples are those that are left of each cell without its slowest rounds."""
    for cell in cells(timed):
        slowest_rounds(0.1)(cell)
    timed[0]["timing"]["most"] = min(len(cell[0]["samples_s"]) for cell in cells(timed))


WENT_ON = r"rounds took .* s of the run's .* s, and it samples until they are spent"
TOO_LONG = r"round \d+ took .* s, and its samples"

LIES: dict[str, Lie] = {
    **{
        f"the slowest {share:.0%} of the samples of each program dropped": Lie(
            in_cells(slowest_of_each(share)), WENT_ON
        )
        for share in (0.01, 0.03, 0.1)
    },
    **{
        f"the slowest {share:.0%} of the rounds dropped, {how}": Lie(
            in_cells(slowest_rounds(share, closed)), WENT_ON
        )
        for share in (0.01, 0.03, 0.1)
        for how, closed in (("no gap left", True), ("a gap left for each", False))
    },
    "the last round dropped": Lie(in_cells(last_round), WENT_ON),
    "the slowest rounds dropped, and the time that is left said to be the run's": Lie(
        fitted(0.45, closed=True), "profile full gives 0.5 s: explain it in a note"
    ),
    "the same, and no profile is named": Lie(
        both(fitted(0.45, closed=True), no_profile), "profile standard gives 0.2 s: explain it in a note"
    ),
    "times of rounds that go backwards": Lie(in_cells(backwards), TOO_LONG),
    "rounds that took longer than their cell": Lie(in_cells(stretched), "and the rounds of the cell .* s"),
    "the same, in the product's own words": Lie(
        fitted(0.45, closed=False),
        "are gaps between samples",
        product={"notes": [{"about": "timing", "text": "the machine was needed"}]},
    ),
    "the fastest rounds of a longer run": Lie(
        fitted(0.2, closed=False, profile="standard"), "are gaps between samples"
    ),
    "all samples a tenth faster": Lie(in_cells(scaled(0.9, rounds=False)), WENT_ON),
    "all samples a tenth faster, rounds too": Lie(in_cells(scaled(0.9, rounds=True)), WENT_ON),
    "all samples a tenth slower": Lie(in_cells(scaled(1.1, rounds=False)), TOO_LONG),
    "all samples a tenth slower, rounds too": Lie(
        in_cells(scaled(1.1, rounds=True)), "s of the run's .* s, and another one was taken"
    ),
    "slow samples replaced, and rounds added": Lie(in_cells(tail_replaced), "are gaps between samples"),
    "the slowest sample of each program in another round": Lie(in_cells(in_one_round), TOO_LONG),
    "the slowest rounds dropped, and what is left said to be the most": Lie(
        both(counted, most_rounds), "takes 10 to .* samples, and its version 10 to 1000"
    ),
    "no times of rounds": Lie(fields(0, rounds_s=None), "0 lines of this cell have `rounds_s`"),
    "times of rounds of another line": Lie(fields(1, rounds_s=[0, 1]), "2 lines of this cell have"),
    "a control without its calls": Lie(
        both(counted, lambda conformance, timed: cells(timed)[1][0].pop("control_calls")),
        "has a control, and no `control_calls`",
    ),
    "calls of a control that nobody timed": Lie(
        fields(1, control_calls=2), "and only the control of a stream"
    ),
    "a run of this version, as one of an earlier version": Lie(
        on_facts(**suite(commit=COUNTING)), "`timing.counts` is missing, and the commit ends sampling"
    ),
    "a run of one process that stops as ranks do": Lie(
        settings(counts="samples of the slowest rank"),
        "`timing.counts` is 'samples of the slowest rank' over 1 proc",
    ),
    "times of rounds in a run of an earlier version": Lie(
        settings(counts=None), "has `rounds_s`, and the time of samples does not count"
    ),
}

PASSING: dict[str, Lie] = {
    "the fastest rounds of a longer run, and their times made up": Lie(
        fitted(0.2, closed=True, profile="standard"), None
    ),
    "a few slow samples replaced, and a round added": Lie(in_cells(few_replaced), None),
    "the slow samples of a mode, given to the control": Lie(in_cells(given_to_the_control), None),
}
"""What is taken on trust."""
