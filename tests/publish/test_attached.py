# SPDX-License-Identifier: Apache-2.0
"""Files beside the records of a submission: cleaned logs, and a signature of the manifest."""

import gzip
import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from meshmark.publish import logs, signatures, submit
from meshmark.publish.bundles import File, Room
from meshmark.publish.validate import check_product
from tests import submissions

SECRETS = "user@host.example.org 10.1.2.3 /home/bob/venv jax 0.12.0.1 \x1b[31mred\x1b[0m \x07"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """A log as a terminal has it, with what must not be published."""
    path = tmp_path_factory.mktemp("printed") / "run.txt"
    path.write_text(f"10%\r 50%\rcollecting\n{SECRETS}\r\n\t2 cases: 2 pass\n\n")
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two keys without a passphrase, and a list that allows the first."""
    if not shutil.which("ssh-keygen"):
        pytest.skip("there is no ssh-keygen here")
    directory = tmp_path_factory.mktemp("keys")
    for name in ("own", "other"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(directory / name)]
        subprocess.run(made, check=True)
    public = " ".join((directory / "own.pub").read_text().split()[:2])
    (directory / "allowed").write_text(f'team@example.org namespaces="meshmark" {public}\n')
    return directory


@pytest.fixture(scope="module")
def signed(printed, keys, tmp_path_factory):
    """An accepted product with a log and a signature."""
    wanted = replace(submissions.WANTED, logs=(printed,), key=keys / "own")
    return submissions.bundle(tmp_path_factory.mktemp("signed"), wanted=wanted)


def said(bundle, signers=None):
    review = check_product(bundle, signers=signers)
    return [text for text in review.complaints if "sign" in text], [n for n in review.notes if "sign" in n]


# Logs -------------------------------------------------------------------------------------------------------


def test_a_log_is_cleaned_as_records_are(printed):
    text = gzip.decompress(logs.pack(printed, {"0.12.0.1"})).decode()
    assert text.splitlines() == [
        "collecting",
        "<email> <ip> <path> jax 0.12.0.1 red \\x07",
        "    2 cases: 2 pass",
    ]
    assert logs.pack(printed, {"0.12.0.1"}) == logs.pack(printed, {"0.12.0.1"}), "no time in it"


def test_a_log_is_part_of_the_product_and_hashed(signed):
    review = check_product(signed)
    assert review.complaints == []
    listed = json.loads(signed.files["manifest.json"].data)["files"]
    assert listed["log.txt.gz"]["sha256"] == signed.files["log.txt.gz"].sha256
    changed = submissions.replaced(signed, "log.txt.gz", gzip.compress(b"3 cases: 3 pass\n", mtime=0))
    assert any("log.txt.gz: SHA-256 or size" in text for text in check_product(changed).complaints)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(b"ran in /home/bob/venv\n"), "the log holds an absolute path"),
        (gzip.compress(b"at 10.1.2.3\n"), "the log holds an IP address"),
        (gzip.compress(b"\x1b]0;title\x07\n"), "a line that `submit` does not write"),
        (gzip.compress(b"x" * 100_000 + b"\n"), "a line that `submit` does not write"),
        (gzip.compress(b"whole\n")[:-9], "the gzip stream is broken"),
        (gzip.compress(b"cut off"), "the last line is cut off"),
    ],
)
def test_a_log_that_was_not_cleaned_is_refused(content, told):
    found = [text for _, text in logs.find_wrong_log_lines(File("log.txt.gz", content), (), Room())]
    assert len(found) == 1 and told in found[0]


def test_a_log_takes_bounded_memory():
    packed = gzip.compress(b"0123456789abcdef\n" * 100_000)
    found = [*logs.find_wrong_log_lines(File("log.txt.gz", packed), (), Room(unpacked=1000))]
    assert "limit" in found[-1][1] and len(found) == 1


def test_only_logs_may_lie_there_under_their_names(signed):
    other = submissions.resealed(submissions.replaced(signed, "log.txt", b"x\n"))
    assert any("log.txt: not a file of a submission" in text for text in check_product(other).complaints)


@pytest.mark.parametrize(("data", "told"), [(None, "can't read the log"), (b" \n", "is empty")])
def test_a_log_that_is_none_is_bad_input(tmp_path, data, told):
    path = tmp_path / "run.txt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(submit.SubmitError, match=told):
        submissions.bundle(tmp_path, wanted=replace(submissions.WANTED, logs=(path,)))


# Signatures -------------------------------------------------------------------------------------------------


def test_a_signature_names_its_key_and_with_a_list_its_holder(signed, keys):
    wrong, (note,) = said(signed)
    assert wrong == [] and note.startswith("signed with the ED25519 key SHA256:")
    wrong, (note,) = said(signed, keys / "allowed")
    assert wrong == [] and note.startswith("signed by team@example.org with the ED25519 key SHA256:")


def test_a_list_asks_for_a_signature(keys, tmp_path):
    (wrong,), _ = said(submissions.bundle(tmp_path), keys / "allowed")
    assert "not signed, and --allowed-signers asks for a signature" in wrong


def test_a_key_that_the_list_does_not_allow_is_refused(signed, keys):
    manifest = signed.files["manifest.json"].data
    other = submissions.replaced(signed, signatures.FILE, signatures.sign(manifest, keys / "other"))
    assert said(other)[0] == []
    (wrong,), _ = said(other, keys / "allowed")
    assert "which allowed does not allow" in wrong


def test_a_signature_of_another_manifest_or_purpose_is_refused(signed, keys, monkeypatch):
    manifest = signed.files["manifest.json"].data
    changed = submissions.replaced(signed, "manifest.json", manifest.replace(b'"schema": 1', b'"schema":  1'))
    assert "not one of this manifest" in said(changed)[0][0]
    assert "not one of this manifest" in said(submissions.replaced(signed, signatures.FILE, b"x"))[0][0]
    with monkeypatch.context() as patch:
        patch.setattr(signatures, "NAMESPACE", "mail")
        mail = signatures.sign(manifest, keys / "own")
    assert "not one of this manifest" in said(submissions.replaced(signed, signatures.FILE, mail))[0][0]


def test_without_ssh_keygen_there_is_a_clear_line(signed, keys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(submit.SubmitError, match=r"ssh-keygen is not here: .* or submit without --sign"):
        submissions.bundle(tmp_path, wanted=replace(submissions.WANTED, key=keys / "own"))
    assert said(signed) == ([], [f"signed, and not checked: {signatures.ABSENT}"])
    assert said(signed, keys / "allowed")[0], "a list that nothing can be held against accepts nothing"


def test_a_key_that_is_none_is_bad_input(keys, tmp_path):
    with pytest.raises(submit.SubmitError, match="ssh-keygen did not sign with"):
        submissions.bundle(tmp_path, wanted=replace(submissions.WANTED, key=tmp_path / "no-key"))


# What a log counts -------------------------------------------------------------------------------------------


def test_the_log_of_another_run_is_told(tmp_path):
    cases = submissions.level()
    number = len({line["case"] for line in cases if "case" in line})
    told = (
        f"{number} cases: {number} pass",
        "6261 cases: 6240 pass, 21 known (2 passing cases match a known issue, which may be fixed)",
    )
    files = [tmp_path / "own.txt", tmp_path / "another.txt"]
    for file, text in zip(files, told, strict=True):
        file.write_text(f"collecting\n3 cases: 3 pass\n{text}\n")
    made = submissions.bundle(tmp_path, cases, wanted=replace(submissions.WANTED, logs=files))
    (found,) = check_product(made).complaints
    assert "log-2.txt.gz: the log counts 6261 cases, 6240 pass, 21 known, and no record file does" in found
