# SPDX-License-Identifier: Apache-2.0
"""Reads the numbers and kinds of devices in the words of product.yaml, and notes where the records have others.

A machine may have more devices than ran, so these are notes for a reader. The name of a product is checked more
strictly (publish.environments).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from meshmark.devices import chip_names, chips
from meshmark.records import run_line
from meshmark.records.product_definition import ProductData
from meshmark.records.run_definition import RunFacts, RunLine

SAID: tuple[Literal["name", "title", "hardware"], ...] = ("name", "title", "hardware")
"""The texts that are read."""

_SMALL = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

_WORDS = dict(zip(_SMALL, range(1, 13), strict=True)) | {"sixteen": 16, "thirty-two": 32, "sixty-four": 64}

_NUMBER = rf"(?<![a-z0-9.-])(\d{{1,6}}|{'|'.join(_WORDS)})"

_OTHER_THINGS = (
    "(?!(?:of|with|per|in|on|and|or|from|cores?|threads?|process(?:es)?|hosts?|nodes?|machines?) )"
)
"""Keeps a number apart from devices that it does not count: "two processes of four devices"."""

_NAMES = "|".join([*chips.CHIPS, *(name.lower() for chip in chips.CHIPS.values() for name in chip.sold_as)])

_COUNTED = re.compile(
    rf"{_NUMBER}(?: ?x(?= ))?(?: {_OTHER_THINGS}[a-z][a-z0-9-]*){{0,4}}?"
    rf" ?(?<![0-9]x)(?:device|chip|gpu|tpu|accelerator|{_NAMES})s?(?![a-z0-9])"
)
"""Matches a number, up to four words, and what is counted."""


def find_other_devices(product: ProductData, runs: Mapping[str, RunLine]) -> Iterator[str]:
    """Yields a note for each number or kind of devices in these texts that the records do not have. It
    does not look at topologies, on which nothing ran."""
    if any(run["facts"].get("topology") for run in runs.values()):
        return
    facts = next(iter(runs.values()))["facts"]
    for what in SAID:
        said = chip_names.plainly(product.get(what, ""))
        said = said.replace("-", " ") if what == "name" else said
        every = [_value(number) for number in re.findall(rf"{_NUMBER}(?![a-z0-9])", said)]
        for match in _COUNTED.finditer(said):
            if re.search(rf"{_NUMBER} of (?:the )?$", said[: match.start()]):
                continue  # one of 8 GPUs
            there = f"{facts['num_devices']} devices on backend {facts['backend'][:20]}"
            if not _is_possible(_value(match[1]), every, facts) or _is_of_another_kind(match, facts):
                yield f"`{what}` says {match[0][:60]!a}, and the records are of {there}"


def _value(number: str) -> int:
    return _WORDS.get(number) or int(number)


def _is_possible(number: int, every: list[int], facts: RunFacts) -> bool:
    """Whether a text may say this number of devices or chips: of all processes or of each, or times another number in
    the text."""
    devices, chip = facts["num_devices"], chips.chip_of(facts["device_kind"])
    of_chips = devices // chip.devices_per_chip if chip else devices
    right = {devices, of_chips, devices // run_line.processes(facts)}
    right |= {2 * devices} if facts["backend"] == "tpu" else set()
    return number in right or any(number * other in right for other in every)


def _is_of_another_kind(match: re.Match[str], facts: RunFacts) -> bool:
    """Whether the counted words say GPU or TPU, and JAX's own name of the backend is another."""
    named = {
        kind for kind in ("cpu", "gpu", "tpu") if re.search(rf"(?<![a-z0-9]){kind}s?(?![a-z0-9])", match[0])
    }
    return facts["backend"] in ("cpu", "gpu", "tpu") and bool(named) and facts["backend"] not in named
