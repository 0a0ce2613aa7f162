# SPDX-License-Identifier: Apache-2.0
"""A process that judges programs one after another: `python -m meshmark.hunt.worker`.

It reads one JSON line per job from standard input, {"program": data} or {"draw": [seed, number]} with "modes", and
writes one line per answer; for "draw" also one line with the program before. With "truth" it answers with the right
results. With "there", the results under another release of JAX, it compares them with its own. With "light" it
compiles with `meshmark.hunt.oracles.LIGHT`; with "without" it turns the named pass of XLA off, and with "shardy": false
the partitioner Shardy. {"around": true} asks for the settings and functions that are not those of a fresh process. With
a topology as last argument it compiles programs for that topology and interprets them (`meshmark.hunt.compiled`). A
program that crashes, or exceeds its deadline, ends only this process (`meshmark.hunt.workers`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from meshmark.devices import containment
from meshmark.devices.starvation import Starvation
from meshmark.devices.watchdog import Watchdog

MARK = "meshmark-hunt "
"""The start of each line that is an answer."""


def main() -> None:
    """Judge jobs until standard input ends."""
    directory, name, controller, deadline = sys.argv[1:5]
    topology = sys.argv[5] if len(sys.argv) > 5 else ""
    containment.belong_to(int(controller))
    stream = containment.own_stderr(Path(directory), name)
    watchdog = Watchdog(float(deadline), stream, starvation=Starvation())
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        out.write(MARK + json.dumps(answer) + "\n")
        out.flush()

    with watchdog.over(containment.START):
        from meshmark.devices import surroundings
        from meshmark.devices.environment import configure_jax
        from meshmark.hunt import accelerators, another_release, generator, oracles
        from meshmark.program_data.program import from_json, to_json

        configure_jax()
        runner: oracles.Runner | None = None
        if topology:
            from meshmark.hunt.compiled import Interpretation

            runner = Interpretation.of(topology)
        import jax

        say(
            {
                "ready": containment.first_compile(),
                "backend": jax.default_backend(),
                "devices": jax.device_count(),
                "jax": jax.__version__,
            }
        )
    for line in sys.stdin:
        job = json.loads(line)
        if "around" in job:
            say({"around": surroundings.unusual_settings()})
            continue
        start, processor = time.perf_counter(), time.process_time()
        answer: dict[str, Any] = {}
        how = oracles.compile_by(bool(job.get("light")), job.get("without", ""), job.get("shardy", True))
        with watchdog.over(), how:
            try:
                if "draw" in job:
                    seed, number = job["draw"]
                    program, families = generator.draw_with_families(
                        seed, number, job.get("weights"), job.get("meshes", ()), accelerators.list_inexact()
                    )
                    answer |= {"program": to_json(program), "families": families}
                    say({"drawn": answer["program"]})
                else:
                    program = from_json(job["program"])
                if job.get("truth"):
                    answer["truth"] = [
                        oracles.write_result(r) for r in oracles.compute_expected(program, job["modes"][0])
                    ]
                elif "there" in job:
                    between = another_release.compare_with_release(program, job["there"], job["release"])
                    answer["differences"] = [between.to_json()] if between else []
                else:
                    left: list[str] = []
                    found = oracles.judge(program, job["modes"], runner, left)
                    answer |= {"differences": [d.to_json() for d in found], "not_run": left}
            except oracles.Invalid as error:
                answer["invalid"] = str(error)
        answer["seconds"] = time.perf_counter() - start
        answer["cpu"] = time.process_time() - processor
        if accelerators.has_accelerator() and answer.get("differences") and not accelerators.check_health():
            answer["spoilt"] = True
        say(answer)


if __name__ == "__main__":
    main()
