# SPDX-License-Identifier: Apache-2.0
"""Makes records like those of a run on four virtual devices, for the tests of publishing. Every line is made from the
case table, so a check that finds something wrong in them is wrong itself."""

import gzip
import hashlib
import json
import random

import numpy as np

from meshmark.core.dtypes import dtype as dtype_of
from meshmark.core.hlo import Collective, wire_bytes
from meshmark.levels import must_pass as levels
from meshmark.levels import statements
from meshmark.operations import cases
from meshmark.operations.base import nbytes
from meshmark.operations.record_lines import case_cost, case_head
from meshmark.operations.selection import Selection
from meshmark.operations.versions import TABLE_VERSION
from meshmark.publish import recomputed, submit
from meshmark.publish.bundles import Bundle, File
from meshmark.publish.submit import Wanted
from meshmark.records import writing

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ANOTHER = COMMIT[::-1]
"""Another commit of the same history."""
RUN = "0123456789ab"
TIMED = "9876543210ab"
DEVICES = 4


def facts(**other):
    """Facts of a run on virtual CPU devices, which the processes (`num_processes`) share equally."""
    number, processes = other.get("num_devices", DEVICES), other.get("num_processes", 1)
    each = number // processes
    group = {"devices": each, "detected": False, "transport": "gloo"} if processes > 1 else {}
    return {
        "versions": {"jax": "0.12.0.1", "jaxlib": "0.12.0.1", "numpy": "2.5.5", "ml_dtypes": "0.6.0",
                     "python": "3.12.1"},
        "backend": "cpu",
        "device_kind": "cpu",
        "num_devices": number,
        "num_processes": 1,
        "devices": [{"id": i, "process": i // each, "coords": []} for i in range(number)],
        "flags": {"JAX_NUM_CPU_DEVICES": str(each)},
        "host": {"system": "Linux", "machine": "x86_64", "cores": 2},
        "suite": {"version": "0.1.0", "commit": COMMIT, "clean": True},
        "topology": "",
        "layout": "plain",
        "compiler": {},
        "group": group,
        "no_layout": {},
        "virtual": True,
    } | other  # fmt: skip


def run_line(run=RUN, **other):
    """A run line."""
    return {
        "schema": 1,
        "kind": "run",
        "facts": facts(),
        "selection": {"profile": "standard", "timed": False},
        "seed": 0,
        "repeat": 1,
        "table": TABLE_VERSION,
        "started": "2026-11-20T10:00:00Z",
        "run": run,
    } | other


def merged_line(processes, devices, **other):
    """The run line of a file that was merged from those of so many ranks."""
    return (
        run_line(
            facts=facts(num_devices=devices, num_processes=processes),
            selection={"profile": "standard", "processes": processes, "timed": False},
            ranks=processes,
        )
        | other
    )


def judged(case, run=RUN, devices=None):
    """The lines of a case that passes: nearly the reference's numbers, and the collectives of the contract."""
    head = case_head(case, 0, "conformance")
    good = {"verdict": "pass", "reason": "", "run": run}
    numbers = "gradient" if case.plan.wrt else "numbers"
    lines = [{"check": "communication", **exchanged(case)}] if case.mode != "host" else []
    lines += [
        {"check": "execute"},
        {"check": numbers, **answered(case, devices)},
        {"check": "replicas"},
        {"check": "sharding", "seconds": took(case.id)},
    ]
    return [head | good | line for line in lines]


def took(name):
    """Seconds of a case: another number for each."""
    return round(0.05 + int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**34, 6)


NEAREST = False
"""Whether the answers are the reference's own, without the rounding of a device."""

_ANSWERED = {}
"""What was computed of a case, by its id and the numbers of devices and processes."""


def _answer(case, devices):
    found = recomputed.answer(case.cell, 0, 0.0)
    of = {"num_devices": devices, "num_processes": case.cell.request.processes}
    error = bound = ratio = 0.0
    results = []
    for result, want, limits in zip(case.plan.results, found.expected, found.bounds, strict=True):
        if want.dtype.kind in "iub":
            limits = None
        seen = computed(result, want, limits)
        results.append(seen)
        if limits is not None and want.size:
            share = shares(seen, want, limits)
            at = np.unravel_index(np.argmax(share), share.shape)
            if share[at] > ratio:
                ratio, bound = share[at], float(limits[at])
                error = float(np.abs(seen[at].astype(want.dtype) - want[at]))
    digits = dtype_of(case.cell.request.dtype).digits
    precision = {"default": f"default ({digits} bits)"}.get(case.plan.precision, case.plan.precision)
    bits = recomputed.digest_results(case, results, recomputed.owners(case, of))
    return {"error": error, "bound": bound, "bits": bits} | ({"precision": precision} if precision else {})


def shares(seen, want, limits):
    """The error of each element as a multiple of its bound."""
    with np.errstate(all="ignore"):
        away = np.nan_to_num(np.abs(seen.astype(want.dtype) - want))  # infinity less infinity
        return np.where(away == 0, 0.0, away / np.where(limits > 0, limits, 1))


def computed(result, want, limits):
    """What a device computes: the nearest numbers, and the element with the largest error one number further off."""
    with np.errstate(all="ignore"):
        nearest = want.astype(dtype_of(result.dtype).numpy)
    if NEAREST or limits is None or not want.size or nearest.dtype.kind == "c":
        return nearest
    share = shares(nearest, want, limits)
    at = np.unravel_index(np.argmax(share), share.shape)
    if not share[at]:
        return nearest
    moved = nearest.copy()
    further = np.inf if nearest[at].astype(want.dtype) > want[at] else -np.inf
    moved[at] = np.nextafter(nearest[at], nearest.dtype.type(further))
    return moved if shares(moved, want, limits)[at] < 1 else nearest


def answered(case, devices=None):
    """What the numbers line of a case says. By default the run has DEVICES devices, or over several processes those of
    the mesh."""
    processes = case.cell.request.processes
    if devices is None:
        devices = DEVICES if processes == 1 else case.mesh.size
    key = (case.id, processes, max(devices, case.mesh.size), NEAREST)
    if key not in _ANSWERED:
        _ANSWERED[key] = _answer(case, key[2])
    return dict(_ANSWERED[key])


def exchanged(case):
    """The collectives of the case's contract, and their bytes; of a global mode one that connects all devices."""
    spelled = case.mode in ("manual", "manual-novma", "pmap") or case.operation.family == "collectives"
    found = [
        {"kind": t.kind, "bytes": t.nbytes, "groups": _shape(t), "trips": 1}
        for t in (case.plan.traffic or ()) * spelled
    ]
    if not spelled and case.plan.connected and case.mesh.size > 1:
        found = [{"kind": "all-reduce", "bytes": 4, "groups": f"1x{case.mesh.size}", "trips": 1}]
    groups = {"collective-permute": lambda c: ((), ((0, 1),)), None: lambda c: (_groups(c), ())}
    wire = 0.0
    for one in found:
        inside, pairs = groups.get(one["kind"], groups[None])(one)
        wire += wire_bytes(Collective(one["kind"], one["bytes"], "", inside, pairs))
    return {
        "collectives": found,
        "wire_bytes": wire,
        "flops": None,
        "bytes_accessed": None,
        "temp_bytes": None,
    }


def _shape(traffic):
    if traffic.kind == "collective-permute":
        return f"{len(traffic.groups)} pairs"
    return f"{len(traffic.groups)}x{len(traffic.groups[0])}"


def _groups(one):
    number, size = map(int, one["groups"].split("x"))
    return ((0,) * size,) * number


def over(processes, devices, *operations):
    """Every line of a standard run over several processes, or of these operations, the run line first."""
    found = [merged_line(processes, devices)]
    for case in cases.cases(Selection(operations=operations, processes=processes), devices):
        found += judged(case, devices=devices)
    return found


def level(name="L0", devices=DEVICES):
    """Every line of a level's cases, the run line first."""
    found = [run_line(facts=facts(num_devices=devices))]
    for case in cases.cases(Selection(levels=(name,)), devices):
        found += judged(case, devices=devices)
    return found


def sampled(name, number=24, about=0.001):
    """Samples around 1 ms, in another order for each name."""
    draw = random.Random(name)
    return [round(about * (1 + draw.random() / 4), 10) for _ in range(number)]


def timing(name="psum/axes=x+y/manual/2x2/float32/64KiB", cadence="isolated", run=TIMED, **other):
    """A timing line of 24 samples around 1 ms; the last one of a cell has `seconds`."""
    case = cases.find(name, DEVICES)
    return (
        case_head(case, 0, "timing")
        | {
            "cadence": cadence, "process": 0, "verified": True, "verdict": "pass", "check": "execute", "reason": "",
            "devices": case.mesh.size, "precision": case.plan.precision, "calls": 1,
            "cost": case_cost(case),
            **compiled(case), "lower_s": 0.001, "compile_s": 0.01,
            "samples_s": sampled(f"{name} {cadence}"), "run": run,
        }
        | other
    )  # fmt: skip


def compiled(case):
    """What the compiler says of a timed program."""
    said, sizes = exchanged(case), {"argument_bytes": case.plan.arguments, "output_bytes": case.plan.results}
    found = said.pop("collectives")
    said |= {name: sum(nbytes(part, case.mesh) for part in parts) for name, parts in sizes.items()}
    return said | {"communication": found, "collectives": len(found)}


def timed():
    """A timing file: run line, three ceilings, timings."""
    copied, product, narrow = (
        [s * (1 + i / 1000) for i in reversed(range(50))] for s in (0.0048, 0.004, 0.0043)
    )
    ceiling = {"schema": 1, "kind": "ceiling", "dtype": "float32", "devices": DEVICES, "run": TIMED}
    return [
        run_line(TIMED, selection={"profile": "quick", "timed": True, "modes": ["manual", "auto"]},
                 timing={"cadences": ["isolated", "stream"], "seconds": 0.03, "least": 10, "most": 1000}),
        ceiling | {"name": "copy bandwidth", "unit": "B/s", "nbytes": 1 << 25, "copies": 4, "samples_s": copied,
                   "value": 2 * 4 * DEVICES * (1 << 25) / 0.0048},
        ceiling | {"name": "largest matmul", "unit": "FLOP/s", "n": 512, "flops": 2 * DEVICES * 512**3,
                   "samples_s": product, "value": 2 * DEVICES * 512**3 / 0.004},
        ceiling | {"name": "largest matmul", "unit": "FLOP/s", "n": 512, "flops": 2 * DEVICES * 512**3,
                   "dtype": "bfloat16", "samples_s": narrow, "value": 2 * DEVICES * 512**3 / 0.0043},
        timing(),
        timing(cadence="stream"),
        timing("psum/axes=x+y/auto/2x2/float32/64KiB", seconds=1.0),
    ]  # fmt: skip


def write(path, lines):
    """A plain record file."""
    path.write_text("".join(writing.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


WANTED = Wanted("cpu-4", "The suite's own tests", contact="someone@example.org")


def bundle(tmp_path, conformance=None, timings=None, wanted=WANTED):
    """The bundle of a whole L0 run and of a few timings, in memory."""
    files = [write(tmp_path / "a.jsonl", conformance or level())]
    files.append(write(tmp_path / "b.jsonl", timings or timed()))
    return submit.bundled(files, wanted)


def lines_of(made, name):
    """The records of one of its files."""
    return [json.loads(line) for line in gzip.decompress(made.files[name].data).splitlines()]


def replaced(made, name, data):
    """The bundle with other bytes in one file."""
    return Bundle(made.release, made.name, made.files | {name: File(name, data)}, list(made.refused))


def with_lines(made, name, lines):
    """The bundle with other records in one file."""
    text = "".join(line if isinstance(line, str) else writing.dumps(line) + "\n" for line in lines)
    return replaced(made, name, gzip.compress(text.encode(), mtime=0))


def resealed(made):
    """The bundle with a manifest whose hashes, and with an environment whose runs, fit its files: what a forger who
    knows the format would send."""
    from meshmark.publish import file_checks, totals
    from meshmark.publish import lines as record_lines
    from meshmark.publish.bundles import Room
    from meshmark.publish.review import Review

    report = Review("")
    files = {
        name: record_lines.entries(made, name, Room(), report)
        for name in made.files
        if name.endswith(".jsonl.gz")
    }
    made = replaced(made, "environment.json", json.dumps(file_checks.environment_content(files)).encode())
    manifest = json.loads(made.files["manifest.json"].data)
    merged = record_lines.as_records([entry for lines in files.values() for entry in lines])
    manifest["totals"] = totals.add_up(files)
    if merged.runs:
        try:
            manifest["statement"] = statements.statement(merged).to_json()
        except levels.LevelError:
            manifest["statement"] = None
    manifest["files"] = {
        n: {"sha256": hashlib.sha256(f.data).hexdigest(), "bytes": len(f.data)}
        for n, f in made.files.items()
        if n != "manifest.json"
    }
    return replaced(made, "manifest.json", json.dumps(manifest).encode())
