# SPDX-License-Identifier: Apache-2.0
"""A small file can't ask for days of review."""

import gzip
import random
import time

import pytest

from meshmark.publish import consistent
from tests.publish.tampering import CONFORMANCE, complaints
from tests.submissions import facts, lines_of, replaced, resealed, timing, with_lines


def test_a_million_devices_are_refused_at_once(honest):
    lines = lines_of(honest, CONFORMANCE)
    every = facts(num_devices=1024)["devices"]
    lines[0]["facts"] |= {"num_devices": 1 << 20, "devices": every}
    start = time.process_time()
    found = complaints(resealed(with_lines(honest, CONFORMANCE, lines)))
    assert any("a run on 1048576 devices, and lists are made for 16384 at most" in text for text in found)
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "change", [lambda line, i: line, lambda line, i: line | {"case": f"{line['case']}{i}"}]
)
def test_many_lines_with_nearly_one_shape_are_compared_in_bounded_time(change):
    """All pairs of some thousand lines take minutes, and those of a full product take days."""
    draw, line, lines = random.Random(1), timing(), []
    for i in range(3000):
        samples = [0.001, *(round(0.001 * (1 + draw.random() / 4), 10) for _ in range(14)), 0.00125]
        lines.append((i, change(line | {"samples_s": samples}, i)))
    start = time.process_time()
    assert list(consistent.of_samples(lines)) == []
    assert time.process_time() - start < 10


def test_a_log_of_very_many_lines_is_refused(honest):
    """Each line is searched for names and addresses."""
    packed = gzip.compress(b"\n" * 2_000_000, mtime=0)
    found = complaints(resealed(replaced(honest, "log.txt.gz", packed)))
    assert any("more records than the limit of one product" in text for text in found)
