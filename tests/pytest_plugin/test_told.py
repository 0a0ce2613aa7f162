# SPDX-License-Identifier: Apache-2.0
"""The compiler's text on a worker's standard error reaches the record of its case."""

import json
import os
import subprocess
import sys

from tests.checkout import ROOT
from tests.trouble.runs import NO_PROBES, WITHOUT

CASE = "reshard/from=xy.-,to=-.x/auto/2x4/float32/4KiB"
"""XLA knows no way between these shardings but to gather everything, and says so (JAX 0.10.2, 0.11.2 and 0.12.0.1)."""


def test_an_involuntary_full_rematerialization_is_told_by_name(tmp_path):
    record = tmp_path / "run.jsonl"
    node = f"conformance/test_placement.py::test_placement[{CASE}]"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", *WITHOUT, "--record", str(record)]
    chosen = ["--operations", "reshard", "--modes", "auto", "--meshes", "2x4", node, *NO_PROBES]
    done = subprocess.run(
        [*command, *chosen],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    [line] = [line for line in lines if line.get("check") == "communication"]
    assert line["case"] == CASE and line["verdict"] == "pass"
    assert any(text.startswith("the compiler says: Involuntary full rem") for text in line["told"])
