# SPDX-License-Identifier: Apache-2.0
"""Invented records in the shape of real ones: two releases on virtual devices, one real machine, one topology, and
hostile strings."""

import itertools
import json

HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=2">'
REASON = f"31 of 64 elements differ {HOSTILE} =cmd|' /C calc'!A0 \u202e[x](javascript:window.hacked=3)"

CASES = (  # operation, variant, meshes, level
    ("psum", "axes=x", ("8", "2x4"), "L1"),
    ("all_gather", "axes=x,dim=0,tiled", ("8",), "L1"),
    ("shift_set", "of=x.y,dim=0", ("2x4",), "L2"),
    ("matmul", "rows=x+y,check=exact", ("2x4",), "L2"),
)
MODES = ("auto", "explicit", "manual")


def run(name, release="0.12.0.1", kind="cpu", virtual=True, **facts):
    return {
        "schema": 1, "kind": "run", "run": name, "seed": 0, "repeat": 1, "started": "2026-01-02T03:04:05Z",
        "selection": {"profile": "smoke"},
        "facts": {
            "versions": {"jax": release, "jaxlib": release}, "backend": "cpu" if virtual else "gpu",
            "device_kind": kind, "num_devices": 8, "virtual": virtual, "flags": {"XLA_FLAGS": "--some=1"},
            "suite": {"version": "0.1.0", "commit": "c0ffee" * 6 + "abcd", "clean": True}, "topology": "",
        } | facts,
    }  # fmt: skip


def head(operation, variant, mode, mesh, level, dtype="float32", size="4KiB", kind="conformance"):
    return {
        "schema": 1, "kind": kind, "case": f"{operation}/{variant}/{mode}/{mesh}/{dtype}/{size}",
        "operation": operation, "variant": variant, "mode": mode, "mesh": mesh, "dtype": dtype, "size_bytes": 4096,
        "level": level, "seed": 0,
    }  # fmt: skip


def judged(bad=(), topology="", interpreted=False):
    """Lines of every case; `bad`: verdict and reason by (operation, mode). `interpreted`: compiled for the topology,
    and its numbers pass by interpretation."""
    lines = []
    for operation, variant, meshes, level in CASES:
        for mesh in meshes:
            for mode in MODES:
                first = head(operation, variant, mode, mesh, level)
                wire = 8320.0 if operation == "shift_set" and mode != "manual" else 128.0
                found = {"kind": "all-gather", "bytes": 8192, "groups": "4x2", "trips": 1}
                verdict, reason = dict(bad).get((operation, mode), ("pass", ""))
                own = [
                    first | {"check": "communication", "verdict": "pass", "reason": "", "collectives": [found],
                             "wire_bytes": wire, "excess_bytes": wire - 128.0},
                    first | {"check": "numbers", "verdict": verdict, "reason": reason, "error": 0.0, "bound": 0.0,
                             "seconds": 0.1, "link": "https://github.com/jax-ml/jax/issues/18434"},
                ]  # fmt: skip
                if topology:
                    own = [
                        line | {"topology": topology, "case": f"{line['case']}@{topology}"} for line in own
                    ]
                    unrun = own[1] | {"verdict": "not_run", "reason": "compiled, where nothing can run"}
                    own[1:] = (
                        [unrun | {"check": "execute"}, own[1] | {"interpreted": True}]
                        if interpreted
                        else [unrun]
                    )
                lines += own
    return lines


def timed(factor=1.0, unverified=(), processes=1):
    """Lines of a sweep over sizes and over devices; the times follow 0.1 ms + S / 10 GB/s, auto 20 percent more. Six
    processes give intervals, one gives none."""
    lines = [
        {"schema": 1, "kind": "ceiling", "name": name, "dtype": "float32", "unit": unit, "devices": 8, "value": value,
         "samples_s": [0.1]}
        for name, unit, value in (("copy bandwidth", "B/s", 80e9), ("largest matmul", "FLOP/s", 400e9))
    ]  # fmt: skip
    swept = itertools.product((("2", 2), ("4", 4), ("8", 8)), (10, 14, 18, 20), MODES, ("isolated", "stream"))
    for ((mesh, devices), k, mode, cadence), process in itertools.product(swept, range(processes)):
        size = f"{2**k // 1024}KiB" if k < 20 else "1MiB"
        t = factor * (1e-4 + 2**k / 1e10) * (1.2 if mode == "auto" else 1.0) * (1 + 0.002 * process)
        lines.append(head("psum", "axes=x", mode, mesh, "L1", size=size, kind="timing") | {
            "cadence": cadence, "process": process, "verified": (mode, k) not in unverified,
            "verdict": "fail" if (mode, k) in unverified else "pass", "check": "execute", "reason": "",
            "devices": devices, "calls": 1,
            "cost": {"flops": 0, "nbytes": 2**k, "factor": 2 * (devices - 1) / devices},
            "compile_s": 0.02, "collectives": 1, "wire_bytes": 2**k,
            "communication": [{"kind": "all-reduce", "bytes": 2**k, "groups": "1x8", "trips": 1}],
            "samples_s": [t * (1 + 0.001 * i) for i in range(20)],
        })  # fmt: skip
    for n, mode, cadence, process in itertools.product(
        (256, 512), MODES, ("isolated", "stream"), range(processes)
    ):
        t = factor * 2 * n**3 / 300e9 * (1.2 if mode == "auto" else 1.0) * (1 + 0.002 * process)
        lines.append(head("matmul", "rows=x,check=exact", mode, "8", "L2", size=f"n{n}", kind="timing") | {
            "cadence": cadence, "process": process, "verified": True, "verdict": "pass", "check": "execute",
            "reason": "", "devices": 8, "calls": 1, "cost": {"flops": 2 * n**3, "nbytes": 0, "factor": 0.0},
            "compile_s": 0.02, "collectives": 0, "wire_bytes": 0, "communication": [],
            "argument_bytes": 4 * n * n + n * n // 2, "output_bytes": n * n // 2,
            "samples_s": [t * (1 + 0.001 * i) for i in range(20)],
        })  # fmt: skip
    return lines


STEPS = (
    ("decoder", "batch=x,model=y", "L2"),
    ("decode_step", "batch=x,model=y,at=middle", "L2"),
)  # operation, variant, level


def stepped(processes=1, factors=(1.3, 1.15, 1.0)):
    """Lines of two steps of the decoder in three modes, with a control; `factors`: the times of the modes, in ms."""
    lines = []
    for (operation, variant, level), (mode, factor), process in itertools.product(
        STEPS, zip(MODES, factors, strict=True), range(processes)
    ):
        t = 1e-3 * factor * (1 + 0.002 * process)
        lines.append(head(operation, variant, mode, "2x4", level, size="n16", kind="timing") | {
            "cadence": "isolated", "process": process, "verified": True, "verdict": "pass", "check": "execute",
            "reason": "", "devices": 8, "calls": 1, "cost": {"flops": 8 * 10**6, "nbytes": 0, "factor": 0.0},
            "compile_s": 0.02, "collectives": 3, "wire_bytes": 4096 if mode == "auto" else 2048,
            "communication": [{"kind": "all-reduce", "bytes": 4096, "groups": "2x4", "trips": 2}],
            "argument_bytes": 1_000_000, "output_bytes": 200_000, "temp_bytes": 30_000,
            "samples_s": [t * (1 + 0.001 * i) for i in range(20)],
        } | ({"control_s": [t * (1 + 0.001 * i) for i in range(20)]} if mode == "manual" else {}))  # fmt: skip
    return lines


def file(path, first, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line | {"run": first["run"]}) + "\n" for line in [first, *lines]))


def write(directory):
    """The record files below a directory."""
    old = {("shift_set", "auto"): ("known", REASON), ("shift_set", "explicit"): ("fail", REASON)}
    file(directory / "old.jsonl", run("aaaa", "0.10.2"), judged(old))
    file(
        directory / "new.jsonl", run("bbbb"), judged({("matmul", "manual"): ("crash", "signal 11 (SIGSEGV)")})
    )
    file(directory / "real.jsonl", run("cccc", kind=f"GPU {HOSTILE}", virtual=False), judged())
    file(
        directory / "compiled.jsonl",
        run("dddd", kind="TPU v5 lite", virtual=False, topology="v5e:2x4"),
        judged(topology="v5e:2x4"),
    )
    file(
        directory / "interpreted.jsonl",
        run("jjjj", kind="TPU v6 lite", virtual=False, topology="v6e:2x4"),
        judged(topology="v6e:2x4", interpreted=True),
    )
    compared(directory / "comparison.jsonl")
    file(directory / "old-times.jsonl", run("eeee", "0.10.2"), timed(1.5))
    file(directory / "new-times.jsonl", run("ffff"), timed(1.0, unverified={("explicit", 14)}))
    file(
        directory / "real-times.jsonl",
        run("gggg", kind="NVIDIA H200", virtual=False),
        timed(0.01),
    )
    beside(directory)


def compared(path):
    """Two sides, twelve pairs, one verdict of each kind, one counter that differs."""
    sides = {
        side: run(name, release) | {"environment": side, "named": HOSTILE, "commit": "c0ffee"}
        for side, name, release in (("A", "aaab", "0.11.2"), ("B", "bbba", "0.12.0.1"))
    }
    lines = list(sides.values())
    line = {"schema": 1, "kind": "comparison"}
    for process in range(24):
        side = "AB"[process % 2]
        lines.append(line | {"what": "process", "environment": side, "process": process, "seconds": 1.0})
        own = next(t for t in timed() if t["kind"] == "timing" and t["mode"] == "manual")
        own |= {"environment": side, "process": process, "wire_bytes": 1024 if side == "A" else 2048}
        lines.append(own | {"run": sides[side]["run"]})
    verdicts = (("slower", 1.25), ("no change", 1.001), ("inconclusive", 1.1), ("left out", None))
    for number, (verdict, ratio) in enumerate(verdicts):
        found = line | {"what": "verdict", "case": f"psum/axes=x/manual/{number + 2}/float32/1KiB isolated"}
        found |= {"verdict": verdict, "reason": f"B: crash {HOSTILE}" if ratio is None else ""}
        if ratio:
            found |= {
                "ratio": ratio,
                "low": ratio - 0.01,
                "high": ratio + 0.01,
                "p": 0.001,
                "adjusted": 0.003,
            }
            found |= {"noise": 0.02, "detectable": 0.04, "false_alarms": 0.002, "pairs": 12}
        lines.append(found)
    path.write_text("".join(json.dumps({"run": sides["B"]["run"]} | each) + "\n" for each in lines))


def beside(directory):
    """Weather of two releases, growth of one operation, and one comparison with others, all with hostile strings."""
    for release, sent in (("0.11.2", 128.0), ("0.12.0.1", 256.0)):
        first = run(
            "abcdef",
            release,
            kind="TPU v5 lite",
            topology="v5e:2x4",
            compiler={"libtpu": f"1 {HOSTILE}"[:60]},
        )
        line = head("psum", "axes=x", "manual", "8", "L1", kind="schedule") | {
            "verdict": "pass",
            "reason": "",
        }
        line |= {
            "place": "v5e:2x4",
            "case": f"{line['case']}@v5e:2x4",
            "wire_bytes": sent,
            "memory_bytes": 4096,
        }
        line |= {
            "exposed_s": 1e-6,
            "pairs": [],
            "loops": [],
            "collective_runs": 1,
            "temp_bytes": 0,
            "copies": 1,
        }
        file(directory / f"weather-{release}.jsonl", first | {"run": "0123456789ab"}, [line])
    grown = {"schema": 1, "kind": "growth", "chip": f"v5p {HOSTILE}", "operation": "psum", "variant": HOSTILE}
    grown |= {
        "mesh": "2x2",
        "dtype": "float32",
        "size": "1MiB",
        "case": "c",
        "topology": "v5p",
        "scaling": "strong",
        "verdict": "pass",
    }
    lines = [
        grown
        | {
            "mode": m,
            "devices": n,
            "wire_bytes": 8.0 * n * (m == "auto") + 64,
            "theory": {"wire_bytes": 64.0},
        }
        for m in MODES
        for n in (4, 64, 1024)
    ]
    file(directory / "growth.jsonl", run("hhhh"), lines)
    names = [{"name": "jax", "label": "JAX, gloo"}, {"name": "mpi", "label": f"MPI {HOSTILE}"}]
    first = {
        "run": "iiii",
        "kind": "run",
        "schema": "meshmark-others-1",
        "contestants": names,
        "processes": 2,
        "time": HOSTILE,
    }
    block = {"kind": "block", "operation": "all_reduce", "nbytes": 4096, "wrong": None}
    blocks = [
        block | {"contestant": name, "round": r, "samples_us": [[t + r], [t]]}
        for name, t in (("jax", 100.0), ("mpi", 50.0))
        for r in range(8)
    ]
    file(directory / "others.jsonl", first, blocks)
