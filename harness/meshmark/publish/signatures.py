# SPDX-License-Identifier: Apache-2.0
"""Signatures of a submission, by `ssh-keygen -Y` (OpenSSH 8.2 or newer), without an online identity or a server.

The signature covers manifest.json and, through its hashes, every other file. A good signature proves that a holder of
the key signed exactly these files. Only a list of allowed signers, which the reviewer gets elsewhere, says whose key it
is (`ssh-keygen(1)`, ALLOWED SIGNERS). A signature does not prove the numbers: a person who forges records may sign
them.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from meshmark.core.errors import BadInput
from meshmark.core.text import printable

FILE = "manifest.json.sig"
"""The name of the signature in a submission."""

NAMESPACE = "meshmark"
"""The purpose of the signature, which ssh-keygen requires: a signature of mail or of git is not valid here."""

ABSENT = "ssh-keygen is not here: install OpenSSH 8.2 or newer"
SECONDS = 60.0
"""Seconds that ssh-keygen may take, including the question for a passphrase."""

_KEY = re.compile(r"\bwith (\S+) key (SHA256:[A-Za-z0-9+/=]+)")


class SignatureError(BadInput, ValueError):
    """Something can't be signed; the message is one line."""


def sign(manifest: bytes, key: Path) -> bytes:
    """The signature of a manifest by an SSH key: a private key, or a public key whose private key an agent holds.

    SignatureError if there is no ssh-keygen, or if it refuses the key.
    """
    if key.exists() and not key.is_file():  # ssh-keygen would wait for a writer to the pipe
        raise SignatureError(f"{key} is not a plain file: name a key of SSH")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "manifest.json"
        path.write_bytes(manifest)
        try:
            code, said = _run_ssh_keygen("-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(path))
        except FileNotFoundError:
            raise SignatureError(f"{ABSENT}, or submit without --sign") from None
        except subprocess.TimeoutExpired:
            raise SignatureError(
                f"ssh-keygen did not sign within {SECONDS:.0f} s: see the key {key}"
            ) from None
        made = path.with_name(path.name + ".sig")
        if code or not made.is_file():
            raise SignatureError(f"ssh-keygen did not sign with {key}: {_last(said)}")
        return made.read_bytes()


def look(manifest: bytes, signature: bytes | None, allowed: Path | None) -> tuple[str, str]:
    """(a note, a complaint) about the signature of a manifest; "" for none.

    allowed: a list of allowed signers. With it, a product must have a signature by one of them.
    """
    if allowed is not None and not allowed.is_file():
        return "", f"{allowed} is not a plain file: name a list of allowed signers"
    if signature is None:
        return "", "not signed, and --allowed-signers asks for a signature" if allowed else ""
    try:
        return _look(manifest, signature, allowed)
    except FileNotFoundError:
        return ("", f"signed, and {ABSENT}") if allowed else (f"signed, and not checked: {ABSENT}", "")
    except subprocess.TimeoutExpired:
        return "", f"ssh-keygen did not answer within {SECONDS:.0f} s: validate again"


def _look(manifest: bytes, signature: bytes, allowed: Path | None) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / FILE
        path.write_bytes(signature)
        own = ("-n", NAMESPACE, "-s", str(path))
        code, said = _run_ssh_keygen("-Y", "check-novalidate", *own, given=manifest)
        found = _KEY.search(said)
        if code or not found:
            return "", f"the signature is not one of this manifest ({_last(said)}): sign again"
        key = f"{found[1]} key {found[2]}"
        if not allowed:
            return f"signed with the {key}; --allowed-signers can say whose key that is", ""
        code, said = _run_ssh_keygen("-Y", "find-principals", "-f", str(allowed), "-s", str(path))
        for who in said.splitlines() if not code else ():
            verified, _ = _run_ssh_keygen("-Y", "verify", "-f", str(allowed), "-I", who, *own, given=manifest)
            if not verified:
                return f"signed by {printable(who)[:100]} with the {key}", ""
        return "", f"signed with the {key}, which {allowed.name} does not allow"


def _run_ssh_keygen(*arguments: str, given: bytes | None = None) -> tuple[int, str]:
    """(exit code, what it printed) of ssh-keygen."""
    command = ["ssh-keygen", *arguments]
    done = subprocess.run(
        command, input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS
    )
    return done.returncode, done.stdout.decode(errors="replace")


def _last(said: str) -> str:
    return printable((said.strip().splitlines() or ["it says nothing"])[-1])[:200]
