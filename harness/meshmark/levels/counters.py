"""Committed counters: the collectives that each case compiled to, per JAX release, backend and device count.

`harness/meshmark/levels/data/counters/<jax>-<backend>-<devices>.tsv` (of a topology
`<jax>-<compiler>-<topology>.tsv`) holds a line
a case of the standard profile: the case id, a tab, and its collectives. A difference fails the communication
check, since whoever changes what a program communicates should know; a release or backend without a file is
judged by the contract alone. Flops and temporary memory are recorded with every run but not compared here: they
follow the processor's vector width.

`meshmark counters RECORDS` makes the file from the records of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.records.run_line import place_of

DIRECTORY = Path(__file__).resolve().parent / "data" / "counters"


def path_for(jax: str, backend: str, num_devices: int | str) -> Path:
    """Where the counters of this release, backend and number of devices are (see `identity`)."""
    return DIRECTORY / f"{jax}-{backend}-{num_devices}.tsv"


def identity(facts: Mapping[str, Any]) -> tuple[str, str, str]:
    """What the counters of a run belong to, as `path_for` takes it: JAX's release, and backend and number of
    devices, or compiler (libtpu0.0.52) and topology (v5e.2x4): another libtpu compiles other programs."""
    versions, topology = facts.get("versions", {}), str(facts.get("topology") or "")
    if not topology:
        return str(versions.get("jax")), str(facts.get("backend")), str(facts.get("num_devices"))
    wheel, version = next(iter(facts.get("compiler", {}).items()), ("unknown", ""))
    return str(versions.get("jax")), f"{wheel}{version}", place_of(facts).replace(":", ".")


def spelled(collectives: Sequence[Mapping[str, Any]]) -> str:
    """One text for the collectives of a program, in no particular order: 2 all-reduce 4096B 1x8."""
    number = Counter(
        f"{c['kind']} {c['bytes']}B {c['groups']}" + (f" x{c['trips']}" if c["trips"] != 1 else "")
        for c in collectives
    )
    return "; ".join(f"{n} {text}" for text, n in sorted(number.items())) or "none"


def load(jax: str, backend: str, num_devices: int | str) -> dict[str, str]:
    """The committed counters by case id; empty where there is no file."""
    path = path_for(jax, backend, num_devices)
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)
