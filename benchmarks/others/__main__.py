# SPDX-License-Identifier: Apache-2.0
"""The command: one interleaved run, its records, tables and plot; or tables and plot of records."""

from __future__ import annotations

import argparse
import gzip
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.others import contestants, operations, rounds, tables
from meshmark.core.errors import BadInput


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.others",
        description="Collectives across processes of this machine: JAX, torch.distributed and MPI, timed in turns.",
        epilog="Exit codes: 0; 1 when a contestant gave wrong values or was lost; 2 for bad input.",
    )
    add = made.add_argument
    add("--processes", type=int, default=2, metavar="N", help="of each contestant (default 2)")
    add(
        "--sizes",
        default="",
        metavar="BYTES",
        help="S in bytes, such as 8,4096,16777216 (default 8 to 16 MiB)",
    )
    add("--operations", default="", metavar="NAMES", help=f"only some of {', '.join(operations.OPERATIONS)}")
    names = ", ".join(c.name for c in contestants.EVERY)
    add("--contestants", default="", metavar="NAMES", help=f"only some of {names}")
    add(
        "--seconds", type=float, default=240.0, metavar="S", help="for the rounds, six at least (default 240)"
    )
    add("--most-rounds", type=int, default=rounds.MOST_ROUNDS, metavar="N", help="stop after so many")
    add("--seed", type=int, default=0, help="of the random order (default 0)")
    add("--record", type=Path, metavar="FILE", help="write the records there (.jsonl, or .jsonl.gz)")
    add("--table", type=Path, metavar="FILE", help="run nothing: tables and plot of these records")
    add("--plot", type=Path, metavar="FILE", help="draw the plot there (.svg or .png)")
    add("--page", type=Path, metavar="FILE", help="put the tables between the marks of this Markdown file")
    return made


def _chosen(text: str, valid: Sequence[str], option: str) -> list[str]:
    """The names of a list, in the order of `valid`; all valid names if the list is empty."""
    wanted = [name for name in (part.strip() for part in text.split(",")) if name]
    for name in wanted:
        if name not in valid:
            raise BadInput(f"{option} {name}: choose from {', '.join(valid)}")
    return [name for name in valid if name in wanted or not wanted]


def plan(options: argparse.Namespace) -> rounds.Plan:
    """The plan that the options describe; BadInput if it is impossible."""
    count = options.processes
    if not 2 <= count <= 64:
        raise BadInput(f"--processes {count}: use 2 to 64")
    if not 0 < options.seconds <= 86400:
        raise BadInput(f"--seconds {options.seconds:g}: use more than 0 and at most 86400")
    if options.most_rounds < 1:
        raise BadInput(f"--most-rounds {options.most_rounds}: use 1 or more")
    if options.sizes:
        sizes = []
        for part in options.sizes.split(","):
            if not part.strip().isdecimal() or not operations.fits(int(part), count) or int(part) > 1 << 30:
                raise BadInput(
                    f"--sizes {part.strip()}: use bytes that are a multiple of {operations.ITEM * count}"
                    f" (a float32 for each of {count} processes), at most {1 << 30}"
                )
            sizes.append(int(part))
        sizes = sorted(set(sizes))
    else:
        sizes = [n for n in rounds.SIZES if operations.fits(n, count)]
    by_name = {c.name: c for c in contestants.EVERY}
    return rounds.Plan(
        [by_name[name] for name in _chosen(options.contestants, list(by_name), "--contestants")],
        count,
        _chosen(options.operations, operations.OPERATIONS, "--operations"),
        sizes,
        options.seconds,
        options.most_rounds,
        min(rounds.LEAST_ROUNDS, options.most_rounds),
        options.seed,
    )


class Recorder:
    """Writes lines as they come. A file whose name ends in .gz is compressed at the end of the run."""

    def __init__(self, path: Path | None) -> None:
        self.lines: list[Mapping[str, Any]] = []
        self._path = path
        self._plain = path.with_suffix("") if path and path.suffix == ".gz" else path
        try:
            if self._plain:
                self._plain.write_text("")
        except OSError as error:
            raise BadInput(f"--record {path}: {error.strerror}") from None

    def emit(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Keep lines."""
        self.lines += lines
        if self._plain:
            with open(self._plain, "a", encoding="utf-8") as file:
                for line in lines:
                    file.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Finish the file."""
        if self._path and self._plain and self._plain != self._path:
            self._path.write_bytes(gzip.compress(self._plain.read_bytes(), 9, mtime=0))
            self._plain.unlink()


def _ended(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def run(options: argparse.Namespace) -> tuple[tables.Recorded, bool]:
    """Carry out the options: (records, whether all went well)."""
    planned = plan(options)
    recorder = Recorder(options.record)
    signal.signal(signal.SIGTERM, _ended)  # so that started processes are ended
    try:
        well = rounds.Run(
            planned, recorder.emit, lambda line: print(line, file=sys.stderr, flush=True)
        ).carry_out()
    finally:
        recorder.close()
    return tables.Recorded(recorder.lines[0], recorder.lines[1:]), well


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    options = parser().parse_args(arguments)
    try:
        if options.page and not options.page.is_file():
            raise BadInput(f"--page {options.page}: no such file")
        if options.table:
            recorded, well = tables.read(options.table), True
        else:
            recorded, well = run(options)
        lines = tables.markdown(recorded)
        print("\n".join(lines))
        if options.page:
            text = options.page.read_text(encoding="utf-8")
            options.page.write_text(tables.paged(text, lines, options.page), encoding="utf-8")
        if options.plot:
            tables.plot(recorded, options.plot)
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
