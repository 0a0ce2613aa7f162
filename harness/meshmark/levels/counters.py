"""Committed counters: the collectives that each case compiled to, per JAX release, backend and device count.

`harness/meshmark/levels/data/counters/<jax>-<backend>-<devices>.tsv` (for a topology
`<jax>-<compiler>-<topology>.tsv`) holds one line per case of the standard profile: the case id, a tab, and its
collectives. A difference fails the communication check, so that a change of what a program communicates is always
noticed. A release or backend without a file is judged by the contract alone. Flops and temporary memory are recorded
with every run but not compared here: they depend on the processor's vector width.

`python -m meshmark.levels.counters RECORDS` makes the file from the records of a run.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.operations.selection import Selection
from meshmark.records.run_line import place_of

DIRECTORY = Path(__file__).resolve().parent / "data" / "counters"


def path_for(jax: str, backend: str, num_devices: int | str) -> Path:
    """The path of the counters of this release, backend and number of devices (see `identity`)."""
    return DIRECTORY / f"{jax}-{backend}-{num_devices}.tsv"


def identity(facts: Mapping[str, Any]) -> tuple[str, str, str]:
    """What the counters of a run belong to, as `path_for` takes it: the release of JAX, the backend and the number of
    devices. For a topology: compiler (libtpu0.0.52) and topology (v5e.2x4), because another libtpu compiles other
    programs."""
    versions, topology = facts.get("versions", {}), str(facts.get("topology") or "")
    if not topology:
        return str(versions.get("jax")), str(facts.get("backend")), str(facts.get("num_devices"))
    wheel, version = next(iter(facts.get("compiler", {}).items()), ("unknown", ""))
    return str(versions.get("jax")), f"{wheel}{version}", place_of(facts).replace(":", ".")


def spelled(collectives: Sequence[Mapping[str, Any]]) -> str:
    """The collectives of a program as one text that does not depend on their order: 2 all-reduce 4096B 1x8."""
    number = Counter(
        f"{c['kind']} {c['bytes']}B {c['groups']}" + (f" x{c['trips']}" if c["trips"] != 1 else "")
        for c in collectives
    )
    return "; ".join(f"{n} {text}" for text, n in sorted(number.items())) or "none"


def load(jax: str, backend: str, num_devices: int | str) -> dict[str, str]:
    """The committed counters by case id; empty if there is no file."""
    path = path_for(jax, backend, num_devices)
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)


def main() -> int:
    """Write the counters of a records file."""
    from meshmark.operations import cases
    from meshmark.records import files as records  # imported here: the checks import this module
    from meshmark.records import run_line

    if len(sys.argv) != 2:
        print("usage: python -m meshmark.levels.counters RECORDS", file=sys.stderr)
        return 2
    try:
        read = records.read(Path(sys.argv[1]))
    except records.RecordError as error:
        print(error, file=sys.stderr)
        return 2
    if run_line.processes(read.runs[0]["facts"]) > 1:
        print(
            f"{sys.argv[1]} is a run over several processes: counters are made from a run of one process, and"
            "runs over several processes are judged by them too",
            file=sys.stderr,
        )
        return 2
    for facts in (read.runs[0]["facts"], *read.runs[0]["facts"].get("others", [])):
        named = identity(facts)
        if not all(re.fullmatch(r"[\w+-]+(\.[\w+-]+)*", name) for name in named):
            print(
                f"{sys.argv[1]} does not say its JAX release, backend and devices: {named}", file=sys.stderr
            )
            return 2
        path, place = path_for(*named), place_of(facts)
        current = {case.id for case in cases.cases(Selection(), int(facts["num_devices"]))}
        lines = [
            f"{own}\t{spelled(line['collectives'])}\n"
            for judged in read.cases.values()
            for own, _, where in [judged.case.partition("@")]
            for line in judged.lines
            if where == place
            and own in current
            and isinstance(line.get("collectives"), list)
            and line["verdict"] != "fail"
        ]
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(sorted(lines)), encoding="utf-8")
        print(f"{len(lines)} cases in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
