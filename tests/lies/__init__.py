# SPDX-License-Identifier: Apache-2.0
"""The catalogue of lies: false submissions, and the answer of the review to each.

A liar knows the format: hashes, totals, environment and statement are made again after each lie. A lie changes the
records of an accepted product, those of conformance or those of timings. The answer `None` means that the lie passes,
and docs/submitting.md lists it as taken on trust.
"""

from tests.lies import (
    of_copies,
    of_covers,
    of_ends,
    of_fields,
    of_parts,
    of_places,
    of_rounds,
    of_runs,
    of_several,
    of_times,
    of_verdicts,
    on_trust,
)
from tests.lies.of_ends import closed
from tests.lies.of_runs import OF_A_COMMIT
from tests.lies.telling import Lie, told, whole

__all__ = ["LIES", "OF_A_COMMIT", "Lie", "closed", "of_covers", "of_rounds", "told", "whole"]

BY_SUBJECT = (
    of_runs.LIES,
    of_places.LIES,
    of_verdicts.LIES,
    of_times.LIES,
    of_ends.LIES,
    of_rounds.LIES,
    of_fields.LIES,
    of_several.LIES,
    of_covers.LIES,
    of_copies.LIES,
    of_parts.LIES,
    on_trust.LIES,
)

LIES: dict[str, Lie] = {name: lie for part in BY_SUBJECT for name, lie in part.items()}
