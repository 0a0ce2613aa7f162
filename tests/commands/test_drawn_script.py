# SPDX-License-Identifier: Apache-2.0
"""`meshmark repro` of a batch of drawn programs prints the first program that is wrong."""

import contextlib
import subprocess
import sys

import pytest

from meshmark.commands import drawn_script
from meshmark.hunt.workers import Answer
from meshmark.operations import cases
from meshmark.operations.programs import drawn

ID = "drawn_programs/form=batch_03/host/2x4/float32/4KiB"


@pytest.fixture
def case():
    return cases.find(ID, 8)


def names_of(case):
    form = case.cell.request.variant["form"]
    return [drawn.from_line(line).program.name for line in drawn.PROGRAMS.batches[form]]


def test_without_a_run_it_is_the_first_program_and_the_script_is_right(case, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(drawn_script.write_drawn_script(case, drawn.PROGRAMS, 8, False, print))
    assert f"Program {names_of(case)[0]} of {ID}." in script.read_text()
    subprocess.run([sys.executable, script], check=True, timeout=120)


@pytest.mark.parametrize("wrong", [0, 2])
def test_the_first_wrong_program_is_printed(case, monkeypatch, wrong):
    judged, said = [], []

    class Workers:
        """Workers that find the program `wrong` different."""

        def judge(self, job, modes):
            judged.append(modes)
            difference = {"kind": "numbers", "mode": "auto", "text": "result 0: 3 of 4 elements differ"}
            return Answer(differences=[difference] if len(judged) == wrong + 1 else [])

    monkeypatch.setattr(drawn_script, "Slot", lambda settings: contextlib.nullcontext(Workers()))
    text = drawn_script.write_drawn_script(case, drawn.PROGRAMS, 8, True, said.append)
    assert f"Program {names_of(case)[wrong]} of" in text and "Seen: result 0: 3 of 4" in text
    assert len(judged) == wrong + 1 and all("numpy" in modes for modes in judged)


def test_it_says_that_all_are_right(case, monkeypatch):
    said = []

    class Workers:
        """Workers that find no difference."""

        def judge(self, job, modes):
            return Answer()

    monkeypatch.setattr(drawn_script, "Slot", lambda settings: contextlib.nullcontext(Workers()))
    drawn_script.write_drawn_script(case, drawn.PROGRAMS, 8, True, said.append)
    assert "all are right here" in said[-1]


def test_a_program_that_is_wrong_without_sharding_too_is_compared_with_numpy(case, monkeypatch, tmp_path):
    """As if JAX were wrong in every way: only the definition differs."""

    class Workers:
        """Workers whose unsharded program differs from NumPy."""

        def judge(self, job, modes):
            return Answer(differences=[{"kind": "oracles", "mode": "numpy", "text": "differs from NumPy"}])

    monkeypatch.setattr(drawn_script, "Slot", lambda settings: contextlib.nullcontext(Workers()))
    text = drawn_script.write_drawn_script(case, drawn.PROGRAMS, 8, True, print)
    wrong = text.replace("expected = np.array([", "expected = 1 + np.array([", 1)
    assert wrong != text
    script = tmp_path / "script.py"
    script.write_text(wrong)
    assert subprocess.run([sys.executable, script], timeout=120, check=False).returncode == 1
