# SPDX-License-Identifier: Apache-2.0
"""Runs the suite under pairs of compiler flags: each pair of settings of two flags is on in at least one run.

    python -m tests.studies.flag_pairs [--backend cpu] [ARGUMENT ...]

Two flags that are right alone can be wrong together (jax#38741, xla#14332, jax#25404). A flag holds for a whole
process, so each row of settings is a run of its own. The arguments are those of `pytest conformance`, by default the
smoke profile. A flag that XLA does not know ends the process, so that its rows fail.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from covertable import make

from tests.checkout import ROOT

FLAGS: dict[str, dict[str, tuple[str, str]]] = {
    "cpu": {
        "xla_backend_optimization_level": ("3", "0"),
        "xla_cpu_enable_concurrency_optimized_scheduler": ("false", "true"),
        "xla_cpu_multi_thread_eigen": ("true", "false"),
        "xla_cpu_parallel_codegen_split_count": ("32", "1"),
        "xla_cpu_prefer_vector_width": ("256", "128"),
        "xla_cpu_use_xnnpack": ("true", "false"),
    },
    "gpu": {
        "xla_gpu_collective_permute_connected_components": ("false", "true"),
        "xla_gpu_enable_latency_hiding_scheduler": ("false", "true"),
        "xla_gpu_enable_pipelined_all_gather": ("false", "true"),
        "xla_gpu_enable_pipelined_all_reduce": ("false", "true"),
        "xla_gpu_enable_pipelined_reduce_scatter": ("false", "true"),
        "xla_gpu_enable_triton_gemm": ("true", "false"),
        "xla_gpu_enable_while_loop_double_buffering": ("false", "true"),
    },
}
"""Two settings of each flag that change how a program is compiled, and must not change what is judged. Flags that may
change numbers by design, such as those of fast math, are not among them. Nor is `xla_cpu_use_onednn`: it changes what
the collectives of `cast_product` send, and the committed counters hold for XLA's own setting."""


def rows(flags: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Settings of all flags, such that any settings of two flags are together in a row."""
    return [dict(row) for row in make({name: list(settings) for name, settings in flags.items()})]


def judged(settings: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Run the suite under these settings. Return its exit code."""
    own = " ".join(f"--{name}={setting}" for name, setting in settings.items())
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {own}".strip()}
    command = [sys.executable, "-m", "pytest", "conformance", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run each row; 1 if a run fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.studies.flag_pairs", description=__doc__)
    parser.add_argument("--backend", default="cpu", choices=FLAGS)
    options, rest = parser.parse_known_args(arguments)
    failed = []
    chosen = rows(FLAGS[options.backend])
    for number, settings in enumerate(chosen, 1):
        start = time.perf_counter()
        code = judged(settings, rest or ["--profile", "smoke"])
        text = " ".join(f"{name}={setting}" for name, setting in settings.items())
        print(
            f"[{number}/{len(chosen)}] exit code {code}, {time.perf_counter() - start:.0f} s: {text}",
            flush=True,
        )
        if code:
            failed.append(text)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} rows of flags pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
