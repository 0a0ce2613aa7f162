# SPDX-License-Identifier: Apache-2.0
"""The page of a run that goes on, for this machine alone."""

import os
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from meshmark.core.errors import BadInput
from meshmark.report import live, page
from tests.browser import records as made_up

pytest.importorskip("bokeh")
pytest.importorskip("jinja2")


@contextmanager
def serving(*paths, refresh=15):
    with live.make_server(live.Live(paths, refresh), 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)


def ask(address, method="GET", **headers):
    request = urllib.request.Request(address, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


def test_the_page_follows_a_file_that_grows(tmp_path):
    file = tmp_path / "run.jsonl"
    with serving(file) as address:
        status, headers, text = ask(address)
        assert status == 503 and "run.jsonl" in text and headers["Refresh"] == "15"  # not there yet
        assert "loads again every 15 s" in text
        lines = made_up.judged()
        made_up.file(file, made_up.run("aaaa"), lines[:8])
        status, headers, text = ask(address)
        assert status == 200 and headers["Refresh"] == "15" and headers["Cache-Control"] == "no-store"
        assert len(page.data_of(text)["runs"][0]["judged"]["case"]) == 4
        made_up.file(file, made_up.run("aaaa"), lines)
        assert len(page.data_of(ask(address)[2])["runs"][0]["judged"]["case"]) == 15
        old = time.time() - 3600
        os.utime(file, (old, old))
        assert "Refresh" not in ask(address)[1]  # the run is over
        assert ask(address, "HEAD")[2] == ""


def test_only_the_loopback_name_and_the_page_itself_are_answered(tmp_path):
    made_up.file(tmp_path / "run.jsonl", made_up.run("aaaa"), made_up.judged())
    with serving(tmp_path) as address:
        assert ask(address, Host="evil.example")[0] == 403
        assert ask(f"{address}/run.jsonl")[0] == 404
        assert ask(f"{address}/../etc/passwd")[0] == 404
        assert ask(address, "POST")[0] == 501


def test_a_taken_port_is_one_line(tmp_path):
    with serving(tmp_path) as address, pytest.raises(BadInput, match="choose another --port"):
        live.make_server(live.Live([tmp_path], 0), int(address.rpartition(":")[2]))


def test_a_name_of_markup_is_text_in_the_answer(tmp_path):
    with serving(tmp_path / "<script>alert(1)") as address:
        status, _, text = ask(address)
        assert status == 503 and "<script>" not in text and "&lt;script&gt;" in text
