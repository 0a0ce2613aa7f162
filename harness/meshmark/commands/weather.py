# SPDX-License-Identifier: Apache-2.0
"""`meshmark weather`: what each release of JAX and its compilers changed in a fixed set of compiled programs."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from meshmark.commands.arguments import path
from meshmark.commands.reading import read_all
from meshmark.core.terminal import note
from meshmark.devices import topologies
from meshmark.timing import environments
from meshmark.weather import compiling, documents, history
from meshmark.weather.compiling import WeatherError
from meshmark.weather.programs import CPU

PLACES = ("v5e:2x4", "v5p:2x2x2", CPU)


def add_arguments(add: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add.add_argument(
        "environments",
        nargs="*",
        metavar="ENVIRONMENT",
        help=f"whose programs are compiled: {environments.FORMS.partition(', commit')[0]} or 'jax[tpu]==0.11.2'",
    )
    add.add_argument(
        "--places",
        default=",".join(PLACES),
        metavar="NAMES",
        help=f"what to compile for: topologies, and {CPU} (default {','.join(PLACES)})",
    )
    add.add_argument(
        "--record",
        type=path,
        metavar="DIR",
        help="write a file per environment there, line by line; if it is interrupted, the same command goes on",
    )
    add.add_argument(
        "--from",
        dest="read",
        nargs="+",
        type=path,
        metavar="FILE",
        help="read records or directories of them",
    )
    add.add_argument("--output", type=path, metavar="DIR", help="write weather-history.md and plots there")


def run(arguments: argparse.Namespace) -> int:
    """Compile, read and compare. Returns 1 if a program did not compile in the newest environment, 2 if a file was not
    completely usable."""
    if not arguments.environments and not arguments.read:
        raise WeatherError("name environments to compile in, or records with --from DIR")
    places = [name.strip() for name in arguments.places.split(",") if name.strip()]
    for place in places:
        if place != CPU:
            topologies.parse_topology(place)
    if len(set(places)) < len(places):
        raise WeatherError("--places names a place twice")
    files = [file for given in arguments.read or () for file in _files(given)]
    with tempfile.TemporaryDirectory(prefix="meshmark-weather-") as kept:
        directory = Path(kept)
        for name in arguments.environments:
            where = environments.resolve(name, sys.executable, directory, note)
            files.append(compiling.record_programs(where, places, arguments.record or directory, note))
        read, code = read_all(files)
        releases = history.releases(read)
    if not releases and code:
        return code
    if not releases:
        raise WeatherError("the files hold no schedules: name what `meshmark weather --record DIR` wrote")
    if arguments.output:
        for made in documents.write_history_page(releases, arguments.output):
            print(f"wrote {made}")
    else:
        print("\n".join(documents.page_lines(releases)))
    return code or int(bool(releases[-1].broken))


def _files(given: Path) -> list[Path]:
    if not given.is_dir():
        return [given]
    found = sorted(p for p in given.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz")))
    if not found:
        raise WeatherError(f"no records (*.jsonl, *.jsonl.gz) in {given}")
    return found
