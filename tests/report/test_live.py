# SPDX-License-Identifier: Apache-2.0
"""The page of a running run, which is served on this machine only."""

import argparse
import os
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from meshmark.commands import serve
from meshmark.core.errors import BadInput
from meshmark.report import live, page
from tests.browser import records as made_up

pytest.importorskip("bokeh")
pytest.importorskip("jinja2")


AGAIN = '<meta name="load-again" content="15">'


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
        assert status == 200 and headers["Cache-Control"] == "no-store"
        assert AGAIN in text and "Refresh" not in headers, (
            "the page loads itself again, and keeps its address"
        )
        assert len(page.data_of(text)["runs"][0]["judged"]["case"]) == 4
        made_up.file(file, made_up.run("aaaa"), lines)
        assert len(page.data_of(ask(address)[2])["runs"][0]["judged"]["case"]) == 15
        old = time.time() - 3600
        os.utime(file, (old, old))
        _, headers, text = ask(address)
        assert "Refresh" not in headers and AGAIN not in text  # the run is over
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


@pytest.mark.parametrize("port", [65536, 99999, 10**12])
def test_a_port_that_is_none_is_one_line(tmp_path, port):
    with pytest.raises(BadInput, match=f"there is no port {port}: choose a --port from 0 to 65535"):
        live.make_server(live.Live([tmp_path], 0), port)


def test_what_is_not_there_yet_is_named(tmp_path, capsys, monkeypatch):
    made_up.file(tmp_path / "there.jsonl", made_up.run("aaaa"), made_up.judged())
    monkeypatch.setattr(live.ThreadingHTTPServer, "serve_forever", lambda server: None)
    paths = [tmp_path / "there.jsonl", tmp_path / "mistyped.jsonl"]
    options = argparse.Namespace(records=paths, port=0, refresh=15, open=False)
    assert serve.run(options) == 0
    out, err = capsys.readouterr()
    assert err == f"meshmark: {tmp_path / 'mistyped.jsonl'} is not there yet\n" and "http://127.0.0.1:" in out


@pytest.mark.parametrize("kind", ["replaced by another run", "replaced by text", "deleted", "emptied", "cut"])
def test_the_page_follows_a_file_that_is_replaced(tmp_path, kind):
    file, other = tmp_path / "run.jsonl", tmp_path / "other.jsonl"
    made_up.file(file, made_up.run("aaaa"), made_up.judged())
    with serving(file) as address:
        assert ask(address)[0] == 200
        if kind == "replaced by another run":
            made_up.file(other, made_up.run("bbbb", "0.11.2"), made_up.judged()[:8])
            other.replace(file)
        elif kind == "deleted":
            file.unlink()
        elif kind == "cut":  # in the middle of a line, as a write goes on
            text = file.read_text(encoding="utf-8").splitlines(keepends=True)
            file.write_text("".join(text[:9]) + text[9][:40], encoding="utf-8")
        else:
            file.write_text("hello" if kind == "replaced by text" else "", encoding="utf-8")
        status, _, text = ask(address)
        if kind in ("replaced by another run", "cut"):
            run = page.data_of(text)["runs"][0]
            assert status == 200 and len(run["judged"]["case"]) == 4
            assert run["release"] == ("0.12.0.1" if kind == "cut" else "0.11.2")
        else:
            said = "No such file" if kind == "deleted" else "holds no run"
            assert status == 503 and said in text and "loads again every 15 s" in text
        made_up.file(file, made_up.run("aaaa"), made_up.judged())
        assert len(page.data_of(ask(address)[2])["runs"][0]["judged"]["case"]) == 15, "and back"


def test_a_name_of_markup_is_text_in_the_answer(tmp_path):
    with serving(tmp_path / "<script>alert(1)") as address:
        status, _, text = ask(address)
        assert status == 503 and "<script>" not in text and "&lt;script&gt;" in text
