# SPDX-License-Identifier: Apache-2.0
"""Serves the page of record files on this machine only, while a run continues.

It listens on the loopback address and answers GET and HEAD for "/" and, if there are several pages, for the others. A
request must name the loopback host. Otherwise a web page could read the records through a name that resolves to this
machine. The page is made again if a file has changed since.
"""

from __future__ import annotations

import contextlib
import html
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from meshmark.core.errors import BadInput
from meshmark.report import page, page_data, page_site, report

HOST = "127.0.0.1"
GROWING = 120.0
"""Seconds after the last change of a file during which its page still reloads itself."""


class Live:
    """The page of some record files. It is made again when one of them changes."""

    def __init__(self, paths: Sequence[Path], refresh: int) -> None:
        self.paths, self.refresh = paths, refresh
        self._made: tuple[object, dict[str, str]] | None = None
        self._lock = threading.Lock()

    def pages(self) -> dict[str, str]:
        """The pages by file name, as the files are now; BadInput if they can't be used."""
        with self._lock:
            seen = self.state()
            if self._made is None or self._made[0] != seen:
                found = report.find_records(self.paths)
                self._made = (seen, page.pages(page_data.build(found.sources, found.beside)))
            return self._made[1]

    def state(self) -> list[tuple[str, int, int]]:
        """The name, modification time in nanoseconds, and size in bytes of each existing file."""
        files = [f for p in self.paths for f in (sorted(p.rglob("*.jsonl*")) if p.is_dir() else [p])]
        stats = [(f, f.stat()) for f in files if f.is_file()]
        return [(str(f), s.st_mtime_ns, s.st_size) for f, s in stats]

    def absent(self) -> list[Path]:
        """The paths that do not exist yet."""
        return [p for p in self.paths if not p.exists()]

    def waits(self) -> str:
        """The text below the reason why there is no page yet."""
        return f"<p>This page loads again every {self.refresh} s.</p>" * bool(self.refresh and self.growing())

    def growing(self) -> bool:
        """Whether a file changed within the last GROWING seconds, or no file exists yet."""
        newest = max((changed for _, changed, _ in self.state()), default=time.time_ns())
        return time.time_ns() - newest < GROWING * 1e9


def make_server(live: Live, port: int) -> ThreadingHTTPServer:
    """A server on the loopback address, ready to serve. Port 0 takes a free port. BadInput if the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, body: bool) -> None:
            listening = self.connection.getsockname()[1]
            if self.headers.get("Host") not in (f"{HOST}:{listening}", f"localhost:{listening}"):
                self.send_error(HTTPStatus.FORBIDDEN, "this server answers to the loopback address alone")
                return
            name = self.path.partition("?")[0].removeprefix("/") or page_site.FIRST
            if name != page_site.FIRST and not page_site.is_part(name):
                self.send_error(HTTPStatus.NOT_FOUND, "the page is at /")
                return
            status = HTTPStatus.OK
            try:
                text = live.pages().get(name, "")
                if not text:
                    self.send_error(HTTPStatus.NOT_FOUND, "the page is at /")
                    return
            except (BadInput, OSError) as error:  # no record yet, or a line that is being written
                status = HTTPStatus.SERVICE_UNAVAILABLE
                text = f"<!DOCTYPE html><title>Meshmark</title><p>{html.escape(str(error))}</p>{live.waits()}"
            again = bool(live.refresh) and live.growing()
            if again and status is HTTPStatus.OK:
                text = text.replace("<head>", f'<head>\n<meta name="load-again" content="{live.refresh}">', 1)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            if again and status is not HTTPStatus.OK:  # the page reloads itself and keeps its address
                self.send_header("Refresh", str(live.refresh))
            self.end_headers()
            if body:
                with contextlib.suppress(ConnectionError):  # the browser has closed the connection
                    self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing: requests are not interesting."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OverflowError:
        raise BadInput(f"there is no port {port}: choose a --port from 0 to 65535") from None
    except OSError as error:
        raise BadInput(f"can't listen on {HOST}:{port}: {error.strerror}: choose another --port") from None
