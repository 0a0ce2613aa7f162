# SPDX-License-Identifier: Apache-2.0
"""The self-test of the judge finds changes of its comparisons before the first case."""

import numpy as np
import pytest

from meshmark.core import verdicts
from meshmark.judge import numbers, self_test


def test_the_judge_of_an_ordinary_process_is_proven():
    self_test.prove()
    assert len([*self_test.planted()]) >= 18


@pytest.mark.parametrize(
    ("module", "name", "replacement"),
    [
        (np, "array_equal", lambda *a, **k: True),
        (np, "isnan", lambda a: np.zeros(np.shape(a), bool)),
        (np, "isfinite", lambda a: np.ones(np.shape(a), bool)),
        (np, "abs", lambda a: np.zeros(np.shape(a))),
        (numbers, "find_worst_element", lambda *a: None),
        (numbers, "unlike", lambda s, w: np.zeros(s.shape, bool)),
        (numbers, "as_bits", lambda a: np.zeros(a.shape, np.uint8)),
        (verdicts, "VERDICTS", tuple(reversed(verdicts.VERDICTS))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_judge_that_passes_what_is_wrong_is_refused(monkeypatch, module, name, replacement):
    monkeypatch.setattr(module, name, replacement)
    if module is not np:
        monkeypatch.setattr(self_test, "find_worst_element", numbers.find_worst_element)
    with pytest.raises((RuntimeError, ValueError)):
        self_test.prove()


def test_a_processor_that_flushes_subnormal_numbers_is_noticed(monkeypatch):
    def flushing(judge, seen, want, bound):
        seen = numbers.without_subnormals(seen) if judge == "exact" else seen
        return numbers.find_worst_element(judge, seen, want, bound)

    monkeypatch.setattr(self_test, "find_worst_element", flushing)
    with pytest.raises(RuntimeError, match="a subnormal number"):
        self_test.prove()
