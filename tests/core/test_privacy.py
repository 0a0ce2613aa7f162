# SPDX-License-Identifier: Apache-2.0
"""Removing private data from texts before they are published."""

import getpass
import socket

import pytest

from meshmark.core.privacy import redact


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("open /home/ann/x.py failed", "open <path> failed"),
        ("'/tmp/a b'", "'<path> b'"),
        (r"C:\Users\ann\x.py", "<path>"),
        ("jax/_src/core.py", "jax/_src/core.py"),
        ("https://github.com/jax-ml/jax/issues/1", "https://github.com/jax-ml/jax/issues/1"),
        ("4/8 of 1/2", "4/8 of 1/2"),
        ("(external/xla+/xla/service/a.cc:3)", "(external/xla+/xla/service/a.cc:3)"),
    ],
)
def test_paths_are_redacted(text, want):
    assert redact(text) == want


def test_user_and_host_are_redacted(monkeypatch):
    from meshmark.core import privacy

    monkeypatch.setattr(getpass, "getuser", lambda: "annabel")
    monkeypatch.setattr(socket, "gethostname", lambda: "host-7")
    privacy._names.cache_clear()
    try:
        assert redact("annabel at host-7, annabelle at host-77") == "<user> at <host>, annabelle at host-77"
    finally:
        privacy._names.cache_clear()


@pytest.mark.parametrize(
    "text",
    ["/opt/a/b:/home/ann/lib/x.so", "Error:/home/ann/x", "file:///home/ann/x", "at /srv/data/run.py:3"],
)
def test_no_absolute_path_is_left(text):
    assert not any(part in redact(text) for part in ("home", "ann", "opt", "srv"))


def test_an_address_is_no_path():
    assert redact("see https://example.org/a/b for more") == "see https://example.org/a/b for more"
