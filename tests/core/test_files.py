# SPDX-License-Identifier: Apache-2.0
"""Every command that reads a whole file refuses an endless one in one line."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from meshmark.commands import main as cli
from meshmark.core import files
from meshmark.core.errors import BadInput


def test_a_file_is_read_whole_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\r\nb\rc\n")
    assert files.whole(path, 7) == b"a\r\nb\rc\n" and files.read_text(path) == "a\nb\nc\n"
    with pytest.raises(BadInput, match="has more than 0 MiB"):
        files.whole(path, 6)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError):
        files.read_text(path)
    assert files.read_text(path, errors="replace") == "\ufffd"


ENDLESS = Path("/dev/zero")


@pytest.mark.skipif(not ENDLESS.exists(), reason="has no /dev/zero")
@pytest.mark.parametrize(
    "words",
    [
        ("hunt", "--replay", ENDLESS),
        ("bisect", ENDLESS),
        ("report", ENDLESS, "--output", "out"),
        ("levels", ENDLESS),
        ("tables", ENDLESS),
    ],
    ids=lambda words: words[0],
)
def test_a_device_without_an_end(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "MOST", 1 << 20)
    monkeypatch.setattr(files.whole, "__defaults__", (1 << 20,))
    monkeypatch.setattr(files.read_text, "__defaults__", (1 << 20, "strict"))
    for module in ("meshmark.report.report", "meshmark.hunt.logs"):
        monkeypatch.setattr(f"{module}.MOST_BYTES", 1 << 20)
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as error:
        code = error.code
    said = capsys.readouterr().err.strip()
    assert code == 2 and said.count("\n") == 0 and "/dev/zero" in said, said


@pytest.fixture
def pipe(tmp_path, monkeypatch):
    """A named pipe, and a short time in which somebody has to begin to write into it."""
    monkeypatch.setattr(files, "WRITER", 0.2)
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    return path


def test_a_pipe_into_which_nobody_writes_is_not_waited_for(pipe):
    with pytest.raises(OSError, match="No data available"):
        files.whole(pipe)


def test_a_pipe_is_read_to_its_end_however_long_its_writer_takes(pipe):
    """As `meshmark levels <(zcat FILE)` gives one."""
    command = f"exec 3> {shlex.quote(str(pipe))}; sleep 0.6; seq 100000 >&3; sleep 0.6; echo end >&3"
    with subprocess.Popen(["bash", "-c", command]):
        assert files.read_text(pipe).endswith("99999\n100000\nend\n")


@pytest.mark.parametrize(
    "words",
    [
        *(("levels",), ("tables",), ("report", "--output", "out"), ("merge",), ("bisect",), ("asv-doctor",)),
        *(("validate",), ("submit", "--product", "p", "--by", "me", "--output", "out"), ("hunt", "--replay")),
        ("growth", "--from"),
    ],
    ids=lambda words: words[0],
)
def test_a_pipe_without_a_writer_is_refused_in_a_line(words, pipe, monkeypatch, capsys):
    monkeypatch.chdir(pipe.parent)
    try:
        code = cli.main([*words, pipe.name])
    except SystemExit as error:
        code = error.code
    said = capsys.readouterr().err.strip()
    assert code and said.count("\n") == 0 and pipe.name in said, said
