# SPDX-License-Identifier: Apache-2.0
"""Measures overlap, message rate, donation, payloads and transfers, by the definitions of the OSU and Intel MPI
benchmarks.

    python -m tests.studies.concurrent [--processes 6] [--seconds 0.3] [--bytes 1048576] [--markdown FILE]
    python -m tests.studies.concurrent --transfers [--processes 6]      # sizes up to a quarter of the free memory

Every program is compiled ahead of time, and its result is compared with NumPy before it is timed. A call is blocked on.
Each fresh process gives the median of each program, with all programs in turns in random order. The table has the
median over processes with its interval, and these figures:

- overlap: a psum (communication) and a product (computation), each alone and both in one program without a
  dependence, for auto (the compiler's schedule) and manual. OSU: 1 - (both - computation) / communication. Intel:
  (communication + computation - both) / the smaller of the two. Both are bounded by 0 and 1.
- ring: the product of a gathered matrix as all_gather and matmul, and as a ring of ppermutes with a part of the product
  in each step (a collective matmul).
- rate: psums of 8 bytes per device in one program: one, sixteen without and sixteen with a dependence, and two over
  different axes; messages per second.
- donated: x = f(x) with the input donated and not.
- payload: psum and all_gather of the same bytes, contiguous, transposed, every second row, and every second column of
  an array. XLA has no strided messages: the program first makes the payload contiguous.
- host: an array to the devices and back. `--transfers` does this alone, with sizes from 4 KiB by factors of eight up to
  what fits into a quarter of the free memory, and names the first size that does not fit.

These programs are not in the case table: they have no verdict, level or record. Six processes take about a minute on a
quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from meshmark.core import statistics
from meshmark.core.statistics import Estimate
from tests.checkout import IMPORTS, ROOT

MANY = 16
Programs = dict[str, Callable[[], Any]]


def programs(nbytes: int) -> Programs:
    """The verified programs by name; each makes one call and gives its outputs."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    devices = jax.devices()
    n = len(devices)
    line = jax.sharding.Mesh(np.array(devices), ("x",))
    grid = jax.sharding.Mesh(np.array(devices).reshape(2, -1), ("x", "y"))
    rng, P = np.random.default_rng(0), jax.P
    found: Programs = {}

    def put(mesh: Any, array: np.ndarray, spec: Any) -> Any:
        return jax.device_put(array, jax.NamedSharding(mesh, spec))

    def add(name: str, function: Callable[..., Any], arguments: list[Any], wanted: list[np.ndarray]) -> None:
        compiled = jax.jit(function).lower(*arguments).compile()
        for seen, want in zip(jax.tree.leaves(compiled(*arguments)), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(seen), want, rtol=1e-4, atol=1e-3, err_msg=name)
        found[name] = lambda: jax.block_until_ready(compiled(*arguments))

    side = 256
    message = rng.integers(-8, 8, (n, nbytes // 4)).astype(np.float32)
    a = rng.integers(-2, 3, (n, side, side)).astype(np.float32)
    summed, squared = message.sum(axis=0, keepdims=True), a @ a
    x, y = put(line, message, P("x")), put(line, a, P("x"))

    def mapped(function: Callable[..., Any], ins: Any, outs: Any, mesh: Any = line) -> Callable[..., Any]:
        return jax.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs)

    def communicate(v: Any) -> Any:
        return lax.psum(v, "x")

    def compute(v: Any) -> Any:
        return jnp.matmul(v, v, precision="highest")

    def both(v: Any, w: Any) -> Any:
        return communicate(v), compute(w)

    add("manual communication", mapped(communicate, P("x"), P()), [x], [summed])
    add("manual computation", mapped(compute, P("x"), P("x")), [y], [squared])
    add("manual both", mapped(both, (P("x"), P("x")), (P(), P("x"))), [x, y], [summed, squared])
    add("auto communication", lambda v: v.sum(axis=0, keepdims=True), [x], [summed])
    add("auto computation", compute, [y], [squared])
    add("auto both", lambda v, w: (v.sum(axis=0, keepdims=True), compute(w)), [x, y], [summed, squared])

    rows = rng.integers(-2, 3, (n * 64, side)).astype(np.float32)
    right = rng.integers(-2, 3, (side, n * 64)).astype(np.float32)
    product, r, w = rows @ right, put(line, rows, P("x")), put(line, right, P(None, "x"))

    def gathered(v: Any, w: Any) -> Any:
        return jnp.matmul(lax.all_gather(v, "x", tiled=True), w, precision="highest")

    def ring(v: Any, w: Any) -> Any:
        at = lax.axis_index("x")
        result = lax.pcast(jnp.zeros((v.shape[0] * n, w.shape[1]), v.dtype), "x", to="varying")
        for step in range(n):
            part = jnp.matmul(v, w, precision="highest")
            result = lax.dynamic_update_slice(result, part, ((at - step) % n * v.shape[0], 0))
            v = lax.ppermute(v, "x", [(i, (i + 1) % n) for i in range(n)]) if step < n - 1 else v
        return result

    for name, function in (("ring: all_gather, matmul", gathered), ("ring: collective matmul", ring)):
        add(name, mapped(function, (P("x"), P(None, "x")), P(None, "x")), [r, w], [product])

    small = rng.integers(-4, 4, (n, 2)).astype(np.float32)
    s, total = put(line, small, P("x")), small.sum(axis=0, keepdims=True)

    def independent(v: Any) -> Any:
        return [lax.psum(v + i, "x") for i in range(MANY)]

    def dependent(v: Any) -> Any:
        for _ in range(MANY):
            v = lax.pcast(lax.psum(v, "x") / n, "x", to="varying")
        return v

    add("rate: one", mapped(communicate, P("x"), P()), [s], [total])
    add("rate: independent", mapped(independent, P("x"), P()), [s], [total + n * i for i in range(MANY)])
    mean = np.broadcast_to(total / n, small.shape)
    add("rate: dependent", mapped(dependent, P("x"), P("x")), [s], [mean])
    g = put(grid, small.reshape(2, n // 2, 2), P("x", "y"))

    def axes(v: Any) -> Any:
        return lax.psum(v, "x"), lax.psum(v + 1, "y")

    cube = small.reshape(2, n // 2, 2)
    wanted = [cube.sum(axis=0, keepdims=True), (cube + 1).sum(axis=1, keepdims=True)]
    add("rate: two axes", mapped(axes, P("x", "y"), (P(None, "y"), P("x")), grid), [g], wanted)

    half = max(8, int((nbytes // 4) ** 0.5) // 8 * 8)  # each payload has half * half numbers
    wide = rng.integers(-8, 8, (n, 2 * half, 2 * half)).astype(np.float32)
    blocks = put(line, wide, P("x"))
    forms: dict[str, Callable[[Any], Any]] = {
        "contiguous": lambda v: v[:, : half // 2],
        "transposed": lambda v: v[:, : half // 2].swapaxes(1, 2),
        "every second row": lambda v: v[:, :half:2],
        "every second column": lambda v: v[:, :half, ::2],
    }
    for name, form in forms.items():
        shown = form(wide)
        add(
            f"payload: psum, {name}",
            mapped(lambda v, form=form: lax.psum(form(v), "x"), P("x"), P()),
            [blocks],
            [shown.sum(axis=0, keepdims=True)],
        )
        add(
            f"payload: all_gather, {name}",
            mapped(
                lambda v, form=form: lax.all_gather(form(v), "x", tiled=True, to="invarying"), P("x"), P()
            ),
            [blocks],
            [shown],
        )

    for name, donated in (("donated: no", ()), ("donated: yes", (0,))):
        step = jax.jit(lambda v: v + 1, donate_argnums=donated).lower(x).compile()
        state = [jax.block_until_ready(jnp.copy(x))]

        def call(step: Any = step, state: list[Any] = state) -> Any:
            state[0] = jax.block_until_ready(step(state[0]))
            return state[0]

        np.testing.assert_array_equal(np.asarray(call()), message + 1)
        found[name] = call
    place = jax.NamedSharding(line, P("x"))
    np.testing.assert_array_equal(np.asarray(jax.device_put(message, place)), message)
    found["host: to the devices"] = lambda: jax.block_until_ready(jax.device_put(message, place))
    fresh = jax.jit(jnp.copy).lower(x).compile()

    def back() -> Any:  # a fresh array each time: JAX keeps the host's copy
        return jax.device_get(fresh(x))

    found["host: copy and back"] = back
    return found


def one_process(nbytes: int, seconds: float, number: int) -> dict[str, float]:
    """The median of each program in seconds."""
    made, rng = programs(nbytes), random.Random(number)
    samples: dict[str, list[float]] = {name: [] for name in made}
    for call in made.values():
        for _ in range(5):
            call()
    until = perf_counter() + seconds * len(made)
    while perf_counter() < until or len(samples["rate: one"]) < 10:
        for name in rng.sample(list(made), len(made)):
            start = perf_counter()
            outputs = made[name]()
            samples[name].append(perf_counter() - start)
            del outputs
    return {name: statistics.median(own).value for name, own in samples.items()}


def transfers(seconds: float) -> dict[str, float]:
    """Seconds of one transfer to the devices and of one back, by name with the bytes of the whole array; 0 for the
    first size of which host, devices and a copy would not fit into a quarter of the free memory."""
    import jax
    import jax.numpy as jnp

    devices = jax.devices()
    place = jax.NamedSharding(jax.sharding.Mesh(np.array(devices), ("x",)), jax.P("x"))
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 4
    found: dict[str, float] = {}
    nbytes = 2**12
    while 4 * nbytes <= free:
        message = np.arange(nbytes // 4, dtype=np.int32)
        there = jax.block_until_ready(jax.device_put(message, place))
        fresh = jax.jit(jnp.copy).lower(there).compile()
        np.testing.assert_array_equal(jax.device_get(fresh(there)), message)

        def put(message: np.ndarray = message) -> Any:
            return jax.block_until_ready(jax.device_put(message, place))

        samples: dict[str, list[float]] = {"to the devices": [], "back": []}
        until = perf_counter() + seconds
        while perf_counter() < until or len(samples["back"]) < 5:
            start = perf_counter()
            outputs = put()
            samples["to the devices"].append(perf_counter() - start)
            del outputs
            own = jax.block_until_ready(
                fresh(there)
            )  # JAX keeps the host's copy of an array that was fetched
            start = perf_counter()
            outputs = jax.device_get(own)
            samples["back"].append(perf_counter() - start)
            del outputs, own
        found |= {f"{name}, {nbytes} B": statistics.median(s).value for name, s in samples.items()}
        nbytes *= 8
    return found | {f"does not fit, {nbytes} B": 0.0}


def transfer_table(found: list[dict[str, float]]) -> list[str]:
    """The Markdown table of transfers, of the sizes that every process had."""
    shared = [name for name in found[0] if all(name in one for one in found)]
    lines = [f"{len(found)} processes.", "", "| transfer | us | GB/s |", "|---|---|---|"]
    for name in shared:
        what, _, size = name.rpartition(", ")
        if not found[0][name]:
            lines.append(f"| {what} | {size} | |")
            continue
        seen = statistics.median([one[name] for one in found])
        ends = f" ({seen.low * 1e6:.0f} to {seen.high * 1e6:.0f})" if len(found) > 5 else " (single run)"
        rate = int(size.split()[0]) / seen.value / 1e9
        lines.append(f"| {what}, {size} | {seen.value * 1e6:.0f}{ends} | {rate:.2f} |")
    return lines


def osu(communication: float, computation: float, both: float) -> float:
    """The overlap by the definition of osu_ireduce and similar benchmarks, as a share."""
    return min(1.0, max(0.0, 1 - (both - computation) / communication))


def intel(communication: float, computation: float, both: float) -> float:
    """The overlap by the definition of IMB-NBC, as a share."""
    smaller = min(communication, computation)
    return min(1.0, max(0.0, (communication + computation - both) / smaller))


def table(found: list[dict[str, float]], nbytes: int) -> list[str]:
    """The Markdown tables."""

    def over(values: list[float], unit: float, form: str) -> str:
        seen: Estimate = statistics.median([v * unit for v in values])
        ends = f" ({seen.low:{form}} to {seen.high:{form}})" if len(found) > 5 else " (single run)"
        return f"{seen.value:{form}}{ends}"

    lines = [
        f"{len(found)} processes, messages of {nbytes} bytes per device.",
        "",
        "| program | us |",
        "|---|---|",
    ]
    lines += [f"| {name} | {over([one[name] for one in found], 1e6, '.1f')} |" for name in found[0]]
    lines += ["", "| figure | |", "|---|---|"]
    for mode in ("auto", "manual"):
        parts = [
            [one[f"{mode} {what}"] for what in ("communication", "computation", "both")] for one in found
        ]
        for name, define in (("OSU", osu), ("Intel", intel)):
            lines.append(f"| overlap, {mode}, {name} | {over([define(*p) for p in parts], 100, '.0f')} % |")
    for name, count in (("one", 1), ("independent", MANY), ("dependent", MANY), ("two axes", 2)):
        lines.append(
            f"| messages per second, {name} | {over([count / one[f'rate: {name}'] for one in found], 1, '.0f')} |"
        )
    return lines


def main() -> int:
    """Run the processes and print the tables."""
    parser = argparse.ArgumentParser(description="Overlap, message rate, donation and transfers.")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.3, help="time of each program in each process")
    parser.add_argument("--bytes", type=int, default=2**20, help="of a message, per device")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--transfers", action="store_true", help="only transfers, by size")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        made = (
            transfers(options.seconds)
            if options.transfers
            else one_process(options.bytes, options.seconds, options.process)
        )
        print("CONCURRENT " + json.dumps(made))
        return 0
    found = []
    for number in range(options.processes):
        command = [sys.executable, "-m", "tests.studies.concurrent", "--process", str(number)]
        command += ["--seconds", str(options.seconds), "--bytes", str(options.bytes)]
        command += ["--transfers"] * options.transfers
        environment = {"JAX_NUM_CPU_DEVICES": "8", **os.environ, "PYTHONPATH": IMPORTS}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        said = [x for x in done.stdout.splitlines() if x.startswith("CONCURRENT ")]
        if done.returncode or not said:
            raise SystemExit(f"process {number} failed:\n{done.stderr[-3000:]}")
        found.append(json.loads(said[-1].removeprefix("CONCURRENT ")))
        print(f"process {number + 1} of {options.processes}", file=sys.stderr, flush=True)
    lines = transfer_table(found) if options.transfers else table(found, options.bytes)
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
