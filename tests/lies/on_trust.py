# SPDX-License-Identifier: Apache-2.0
"""Lies that pass because their subject is taken on trust, as docs/submitting.md states."""

import random

from tests.lies import of_copies, of_covers, of_rounds, of_several
from tests.lies.of_ends import closed_anew
from tests.lies.of_times import in_samples, scaled
from tests.lies.telling import Lie, Records, change_runs, in_seconds, of_kind, on_facts
from tests.submissions import facts


def fewest_dropped(conformance: Records, timed: Records) -> None:
    """The two slowest samples of each timing."""
    for line in of_kind(timed, "timing"):
        kept = sorted(line["samples_s"])[-2]
        line["samples_s"] = [s for s in line["samples_s"] if s < kept]


def without_tail(samples: list[float]) -> list[float]:
    """Samples around a mean, made up."""
    draw = random.Random(samples[0])
    return [draw.gauss(0.0011, 0.00001) for _ in samples]


def swapped(conformance: Records, timed: Records) -> None:
    """The samples of two modes, swapped."""
    manual, auto = (of_kind(timed, "timing", mode=mode, cadence="isolated")[0] for mode in ("manual", "auto"))
    manual["samples_s"], auto["samples_s"] = auto["samples_s"], manual["samples_s"]


def on_host(conformance: Records, timed: Records) -> None:
    """More cores than there were."""
    change_runs([*conformance, *timed], lambda facts: {"host": facts["host"] | {"cores": 96}})


LIES: dict[str, Lie] = {
    "every case 200 times slower": Lie(
        closed_anew(lambda lines: in_seconds(lambda s: s * 200)(lines, [])), None
    ),
    "the samples of two modes swapped": Lie(swapped, None),
    "samples drawn around a mean": Lie(in_samples(without_tail), None),
    "a host of more cores": Lie(on_host, None),
    "another NumPy": Lie(on_facts(versions=facts()["versions"] | {"numpy": "99.0"}), None),
    "the two slowest samples dropped": Lie(fewest_dropped, None),
    "the answers of the reference, one element of each rounded case moved": Lie(
        lambda conformance, timed: None, None
    ),
    "times a little faster": Lie(scaled(0.95), None),
    "other hardware in the product's own words": Lie(
        lambda conformance, timed: None, None, product={"hardware": "a machine of another maker"}
    ),
    "times 3 times faster, settings too": Lie(scaled(1 / 3, settings=True), None),
    **of_several.PASSING,
    **of_rounds.PASSING,
    **of_covers.PASSING,
    **of_copies.PASSING,
}
