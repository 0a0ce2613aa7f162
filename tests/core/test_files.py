# SPDX-License-Identifier: Apache-2.0
"""A file without an end is refused in one line, by every command that reads one whole."""

from pathlib import Path

import pytest

from meshmark.commands import main as cli
from meshmark.core import files
from meshmark.core.errors import BadInput


def test_a_file_is_read_whole_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\r\nb\rc\n")
    assert files.whole(path, 7) == b"a\r\nb\rc\n" and files.text(path) == "a\nb\nc\n"
    with pytest.raises(BadInput, match="has more than 0 MiB"):
        files.whole(path, 6)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError):
        files.text(path)
    assert files.text(path, errors="replace") == "\ufffd"


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
    monkeypatch.setattr(files.text, "__defaults__", (1 << 20, "strict"))
    for module in ("meshmark.report.report", "meshmark.hunt.logs"):
        monkeypatch.setattr(f"{module}.MOST_BYTES", 1 << 20)
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as error:
        code = error.code
    said = capsys.readouterr().err.strip()
    assert code == 2 and said.count("\n") == 0 and "/dev/zero" in said, said
