# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence."""

import shutil

import pytest

from tests import licences
from tests.checkout import ROOT


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="git lists the sources")
def test_every_source_file_has_the_licence_line():
    sources = licences.sources()
    assert len(sources) > 300
    without = [str(p.relative_to(ROOT)) for p in licences.missing(sources)]
    assert not without, f"no licence line: {', '.join(without)}: run `python -m tests.licences`"


@pytest.mark.parametrize(
    "name", ["a.py", "b.sh", "c.css", "d.html", "Containerfile", "e.toml", "run", "f.cff"]
)
def test_a_file_without_the_line_is_found_and_mended(tmp_path, name):
    path = tmp_path / name
    script = name in ("b.sh", "run")
    path.write_text("#!/bin/bash\nline\n" if script else "line\n")
    assert licences.missing([path]) == [path]
    licences.add(path)
    assert licences.missing([path]) == []
    assert path.read_text().endswith("line\n")
    assert path.read_text().startswith("#!/bin/bash\n") == script
