# SPDX-License-Identifier: Apache-2.0
"""Every command with bad files and in bad surroundings: `python -m tests.studies.hostile_places`.

Each command line gets inputs that are not regular files (a directory, a pipe without a writer, an endless device),
places where nothing can be written, and shells without enough of something: descriptors, memory, disk space, a home, a
standard stream. A command may work without it, or end with an exit code and a line. It is a fault of the command if an
exception leaves it, if a signal ends it, if it fails silently, or if it does not end. Exit code 0 for a bad input is a
fault too.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from meshmark.commands import main as cli
from tests import submissions
from tests.checkout import ROOT

SECONDS = 300.0
"""The longest that any attack takes, on a busy machine too; a command that runs cases has three times as long."""

BROKEN = re.compile(
    r"Traceback \(most recent call last\)|INTERNALERROR|Fatal Python error|Exception ignored|^\S*Error: .*\n\Z",
    re.M,
)
"""What no command may say."""

IN, OUT = "{in}", "{out}"
"""Stand for the bad input, or the bad output, in a command line."""

READING = {
    "levels": ("levels", IN),
    "tables": ("tables", IN),
    "report": ("report", IN, "--output", "page"),
    "diff": ("diff", IN, "good.jsonl"),
    "diff, new": ("diff", "good.jsonl", IN),
    "counters": ("counters", IN, "--output", "counters"),
    "submit": ("submit", IN, "--product", "cpu-4", "--by", "me", "--output", "results"),
    "submit --log": ("submit", "good.jsonl", "--log", IN, "--product", "p", "--by", "me", "--output", "results"),
    "submit --sign": ("submit", "good.jsonl", "--sign", IN, "--product", "p", "--by", "me", "--output", "results"),
    "submit --known-issues": (
        "submit", "good.jsonl", "--known-issues", IN, "--product", "p", "--by", "me", "--output", "results",
    ),
    "validate": ("validate", IN),
    "validate --challenge": ("validate", "--challenge", IN, "bundle"),
    "validate --allowed-signers": ("validate", "--allowed-signers", IN, "bundle"),
    "validate --known-issues": ("validate", "--known-issues", IN, "bundle"),
    "validate --counters": ("validate", "--counters", IN, "bundle"),
    "merge": ("merge", IN),
    "compare": ("compare", IN, "timed.jsonl"),
    "growth --from": ("growth", "--from", IN),
    "weather --from": ("weather", "--from", IN),
    "hunt --resume": ("hunt", "--resume", IN, "--programs", "1"),
    "hunt --follow": ("hunt", "--programs", "1", "--workers", "1", "--follow", IN),
    "hunt --yield": ("hunt", "--yield", IN, "--programs", "1"),
    "hunt --replay": ("hunt", "--replay", IN),
    "bisect": ("bisect", IN),
    "asv-doctor": ("asv-doctor", IN),
    "bench --resume": ("bench", "--resume", IN, "--operations", "psum"),
    "test --resume": ("test", "--resume", IN, "--profile", "smoke", "--operations", "psum"),
    "test --known-issues": ("test", "--known-issues", IN, "--profile", "smoke", "--collect-only", "-q"),
}  # fmt: skip
"""Command lines that read a file, which is bad; each must end with an exit code other than 0."""

WRITING = {
    "tables --output": ("tables", "good.jsonl", "--output", OUT),
    "report --output": ("report", "good.jsonl", "--output", OUT),
    "counters --output": ("counters", "good.jsonl", "--output", OUT),
    "submit --output": ("submit", "good.jsonl", "--product", "p", "--by", "me", "--output", OUT),
    "challenge --output": ("challenge", "--output", OUT),
    "validate --badges": ("validate", "bundle", "--badges", OUT),
    "explain --text": ("explain", "psum/axes=x+y/manual/2x4/float32/4KiB", "--text", OUT),
    "growth --record": ("growth", "v5e", "--operations", "psum", "--record", OUT),
    "hunt --record": ("hunt", "--programs", "1", "--workers", "1", "--record", OUT),
    "hunt --keep": ("hunt", "--programs", "1", "--workers", "1", "--keep", OUT),
    "bench --record": ("bench", "--operations", "psum", "--record", OUT),
    "compare --record": ("compare", sys.executable, sys.executable, "--operations", "psum", "--record", OUT),
    "test --record": (
        "test",
        "--profile",
        "smoke",
        "--operations",
        "psum",
        "--modes",
        "host",
        "--record",
        OUT,
    ),
    "test --junit-xml": ("test", "--profile", "smoke", "--collect-only", "-q", "--junit-xml", OUT),
}
"""Command lines that write to a bad place; each must end with an exit code other than 0, and most of them at once."""

ANY = {
    "--help": ("--help",),
    "--version": ("--version",),
    "nothing": (),
    "levels": ("levels", "good.jsonl"),
    "tables": ("tables", "good.jsonl"),
    "report": ("report", "good.jsonl", "--output", "page"),
    "diff": ("diff", "good.jsonl", "good.jsonl"),
    "list": ("list", "--cases", "--level", "L0"),
    "submit": ("submit", "good.jsonl", "--product", "cpu-4", "--by", "me", "--output", "results", "--mark"),
    "validate": ("validate", "bundle"),
    "challenge": ("challenge", "--output", "challenge.json", "--cases", "2"),
    "asv-doctor": ("asv-doctor", "."),
    "devices": ("devices",),
    "repro": ("repro", "--no-run", "psum/axes=x+y/manual/2x4/float32/4KiB"),
    "test": ("test", "-q", "--profile", "smoke", "-k", "psum and 2x4 and manual", "-n", "1"),
    "test -n 0": ("test", "-q", "--profile", "smoke", "-k", "psum and 2x4 and manual", "-n", "0"),
    "test --record": (
        "test", "-q", "--profile", "smoke", "-k", "psum and 2x4 and manual", "-n", "1", "--record", "new.jsonl",
    ),
}  # fmt: skip
"""Command lines that are run in bad surroundings."""

RUNNING = ("devices", "repro", "test", "bench", "hunt", "compare", "explain", "growth")
"""Commands that start JAX, or others that do."""

SHELLS = {
    "12 open files": "ulimit -n 12; {}",
    "6 open files": "ulimit -n 6; {}",
    "no bytes in a file": "ulimit -f 0; {}",
    "1 KiB in a file": "ulimit -f 1; {}",
    "60 MB of addresses": "ulimit -v 60000; {}",
    "200 MB of addresses": "ulimit -v 200000; {}",
    "600 MB of addresses": "ulimit -v 600000; {}",
    "a stack of 128 KiB": "ulimit -s 128; {}",
    "no home": "unset HOME; {}",
    "a home that is not there": "HOME=/nowhere {}",
    "no temporary directory": "TMPDIR=/nowhere {}",
    "an empty path": "PATH= {}",
    "no variables": "env -i {}",
    "no standard input": "{} <&-",
    "no standard output": "{} >&-",
    "no standard error": "{} 2>&-",
    "no standard stream": "{} <&- >&- 2>&-",
    "a full standard output": "{} >/dev/full",
    "a full standard error": "{} 2>/dev/full",
    "both full": "{} >/dev/full 2>&1",
    "a reader that has gone": "{} | true; exit ${{PIPESTATUS[0]}}",
    "a reader of errors that has gone": "{{ {} ; }} 2> >(true)",
    "locale C": "LC_ALL=C PYTHONCOERCECLOCALE=0 PYTHONUTF8=0 {}",
    "a locale that is not there": "LC_ALL=xx_YY.KOI8 {}",
    "ASCII alone": "PYTHONIOENCODING=ascii {}",
    "a terminal of no width": "COLUMNS=0 LINES=0 {}",
    "a terminal of width one": "COLUMNS=1 {}",
    "a width that is no number": "COLUMNS=wide {}",
    "a terminal that nobody knows": "TERM=nothing {}",
    "a zone that is not there": "TZ=Nowhere/City {}",
    "a directory that was removed": "mkdir -p gone && cd gone && rmdir ../gone && {}",
    "a platform that JAX does not have": "JAX_PLATFORMS=abacus {}",
    "options of pytest that are none": "PYTEST_ADDOPTS=--nonsense {}",
    "no user": "env -u USER -u LOGNAME {}",
    "hundreds of kilobytes of variables": 'BIG=$(head -c 100000 /dev/zero | tr "\\0" x) {}',
}
"""Surroundings: what stands around a command line."""


@dataclass(frozen=True)
class Attack:
    """One command line with its bad input, output or surroundings."""

    name: str
    words: tuple[str, ...]
    shell: str = "{}"
    refused: bool = False
    """Whether it must end with another exit code than 0."""
    silent: bool = False
    """Whether nobody sees what it says."""


@dataclass
class Ending:
    """How a command ended."""

    code: int | None
    said: str
    seconds: float
    faults: list[str] = field(default_factory=list)


def bad_inputs(directory: Path) -> dict[str, str]:
    """Bad inputs by name, made below a directory: files that can't be read, or do not hold what a command needs."""
    made = directory / "bad"
    made.mkdir(exist_ok=True)
    (made / "directory").mkdir()
    os.mkfifo(made / "pipe.jsonl")
    (made / "dangling.jsonl").symlink_to(made / "nothing")
    (made / "loop.jsonl").symlink_to(made / "loop.jsonl")
    (made / "empty.jsonl").write_bytes(b"")
    (made / "bytes.jsonl").write_bytes(bytes(range(256)) * 40)
    (made / "zeros.jsonl").write_bytes(b"\0" * 5000)
    (made / "gzip.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (made / "line.jsonl").write_bytes(b"x" * (3 << 20))
    (made / "json.jsonl").write_bytes(b"[" * 100_000)
    with socket.socket(socket.AF_UNIX) as made_socket:
        where = os.getcwd()
        os.chdir(made)  # the name of a socket is short
        made_socket.bind("socket.jsonl")
        os.chdir(where)
    names = {path.name: f"bad/{path.name}" for path in sorted(made.iterdir())}
    return names | {
        "not there": "bad/nothing.jsonl",
        "a name of 300 characters": "x" * 300 + ".jsonl",
        "no name": "",
        "a name that is no text": "bad/\udcff\udcfe.jsonl",
        "a name with a line end": "bad/a\nb.jsonl",
        "below a file": "good.jsonl/x.jsonl",
        "/dev/zero": "/dev/zero",
        "/dev/null": "/dev/null",
        "/dev/full": "/dev/full",
        "/dev/tty": "/dev/tty",
        "/proc/self/mem": "/proc/self/mem",
    }


BAD_OUTPUTS = {
    "a file": "good.jsonl",
    "below a file": "good.jsonl/x",
    "below nothing": "nowhere/at/all/x.jsonl",
    "a directory": "bad/directory",
    "a pipe": "bad/pipe.jsonl",
    "a name of 300 characters": "x" * 300,
    "no name": "",
    "a name that is no text": "\udcff\udcfe.jsonl",
    "/dev/full": "/dev/full",
    "/dev/null": "/dev/null",
    "a directory of the kernel": "/proc/x.jsonl",
    "a link to itself": "bad/loop.jsonl",
}


def prepare(directory: Path) -> None:
    """Write the good files that command lines name."""
    submissions.write(directory / "good.jsonl", submissions.level())
    submissions.write(directory / "timed.jsonl", submissions.timed())
    made = submissions.bundle(directory)
    product = directory / "bundle" / made.release / made.name
    product.mkdir(parents=True)
    for name, file in made.files.items():
        (product / name).write_bytes(file.data)


def variables() -> dict[str, str]:
    """The environment variables of a command, which runs outside of the checkout and must find the package."""
    return os.environ | {"PYTHONPATH": str(ROOT / "harness"), "JAX_PLATFORMS": "cpu", "COLUMNS": "200"}


def attacks(directory: Path) -> Iterator[Attack]:
    """All attacks."""
    bad = bad_inputs(directory)
    for command, words in READING.items():
        for name, path in bad.items():
            yield Attack(f"{command} < {name}", tuple(path if w == IN else w for w in words), refused=True)
    for command, words in WRITING.items():
        for name, path in BAD_OUTPUTS.items():
            yield Attack(f"{command} > {name}", tuple(path if w == OUT else w for w in words))
    for command, words in ANY.items():
        for name, shell in SHELLS.items():
            silent = any(mark in shell for mark in ("2>", ">&-", "ulimit -f"))
            yield Attack(f"{command} with {name}", words, shell, silent=silent)


def run(attack: Attack, directory: Path) -> Ending:
    """Run one attack."""
    line = " ".join(shlex.quote(w) for w in (sys.executable, "-m", "meshmark", *attack.words))
    if attack.shell.startswith("env -i"):
        line = f"PYTHONPATH={ROOT / 'harness'} {line}"
    seconds = SECONDS * (3 if attack.words[:1] and attack.words[0] in RUNNING else 1)
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        if attack.shell == "{}" and attack.words[0] != "test":
            pid = _forked(attack.words, directory, out.fileno())
        else:
            pid = subprocess.Popen(
                ["bash", "-c", attack.shell.format(line)], cwd=directory, env=variables(), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            ).pid  # fmt: skip
        code = _waited(pid, seconds)
        took = time.monotonic() - began
        out.seek(0)
        said = out.read(1 << 20).decode("utf-8", "replace")
    ending = Ending(code, said, took)
    ending.faults = list(_faults(attack, ending))
    return ending


def _forked(words: Sequence[str], directory: Path, out: int) -> int:
    """Run a command in a fork of this process, which saves the imports, and return its id. The fork leads a session."""
    if pid := os.fork():
        return pid
    code = 70
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = (open(of, "w", encoding="utf-8", closefd=False) for of in (1, 2))  # noqa: SIM115
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(variables())
        code = cli.main(words)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _waited(pid: int, seconds: float) -> int | None:
    """The exit code of a process; None if it does not end in time. Its session is killed in both cases."""
    end = time.monotonic() + seconds
    while (found := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if found[0] == 0:
        os.waitpid(pid, 0)
        return None
    return os.waitstatus_to_exitcode(found[1])


def _faults(attack: Attack, ending: Ending) -> Iterator[str]:
    if ending.code is None:
        yield "no end"
        return
    if found := BROKEN.search(ending.said):
        yield f"says {found[0].strip()[:80]}"
    if ending.code >= 128 or ending.code < 0:
        yield f"ends by a signal ({ending.code})"
    if attack.refused and ending.code == 0:
        yield "exit code 0"
    if ending.code and not attack.silent and not ending.said.strip():
        yield f"exit code {ending.code} without a word"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all attacks, or those whose name matches, and print the faults; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    number, faults = 0, 0
    cli.parser()
    with tempfile.TemporaryDirectory(prefix="meshmark-places-") as made:
        directory = Path(made)
        prepare(directory)
        for attack in attacks(directory):
            if not re.search(given.only, attack.name):
                continue
            ending = run(attack, directory)
            number += 1
            faults += bool(ending.faults)
            if ending.faults or given.verbose:
                last = [text for text in ending.said.splitlines() if text.strip()][-2:]
                print(
                    f"{'FAULT' if ending.faults else 'ok':5} {ending.code} {ending.seconds:5.1f} s {attack.name!a}:"
                    f" {'; '.join(ending.faults)} | {ascii(' / '.join(last))[:300]}",
                    flush=True,
                )
    print(f"{number} attacks, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
