# SPDX-License-Identifier: Apache-2.0
"""`meshmark serve`: the page of record files for a browser on this machine, while a run goes on."""

from __future__ import annotations

import argparse
import sys
import webbrowser

from meshmark.commands.arguments import natural, path
from meshmark.core.text import printable
from meshmark.report import live


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "records",
        nargs="+",
        type=path,
        metavar="DIR|RECORDS",
        help="what --record writes or wrote, or a directory that holds some; it may not be there yet",
    )
    add.add_argument(
        "--port", type=natural, default=8765, help="the port on 127.0.0.1 (default 8765; 0: a free one)"
    )
    add.add_argument(
        "--refresh",
        type=natural,
        default=15,
        metavar="SECONDS",
        help="load the page again this often while a file grows (default 15; 0: never)",
    )
    add.add_argument("--open", action="store_true", help="open the page in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    shown = live.Live(arguments.records, arguments.refresh)
    with live.make_server(shown, arguments.port) as server:
        for missing in shown.absent():  # a run may make it, or its name is wrong
            print(f"meshmark: {printable(str(missing))} is not there yet", file=sys.stderr)
        address = f"http://{live.HOST}:{server.server_address[1]}/"
        print(f"{address} shows these records only to this machine; Ctrl-C ends it", flush=True)
        if arguments.open:
            webbrowser.open(address)
        server.serve_forever()
    return 0
