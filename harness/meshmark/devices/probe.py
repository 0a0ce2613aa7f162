# SPDX-License-Identifier: Apache-2.0
"""Lists the devices that JAX sees, in a short child process.

The pytest controller and the command line never start a JAX backend themselves: a process that holds a TPU, or most of
a GPU's memory, would take it from its own workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.core.installation import suite
from meshmark.core.meshes import MeshShape, parse_mesh
from meshmark.core.privacy import redact
from meshmark.devices import cores, environment, surroundings, topologies, variables
from meshmark.devices.facts import Facts
from meshmark.devices.topologies import Topology
from meshmark.records.run_definition import LONGEST_FLAG
from meshmark.records.run_line import COMPILER_FLAGS

FLAGS = (
    *("JAX_", "XLA_", "LIBTPU_", "TPU_", "CUDA_VISIBLE", "NCCL_", "ROCR_", "HIP_"),
    *("NVIDIA_TF32", "CUBLAS_", "CUDNN_", "MIOPEN_", "ONEDNN_", "DNNL_", "OMP_", "KMP_", "MKL_", "OPENBLAS_"),
    *("NPY_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_AUDIT", "NPROC"),
)
"""Prefixes of the environment variables that are recorded: those of JAX and the compilers, of the libraries that
compute, those that load other libraries before them, and the one that sets the size of XLA's pools of threads."""

LOADING = ("LD_PRELOAD", "LD_AUDIT")
"""The variables that name libraries; their names are kept, without their directories."""


MOST_LISTED = 1024
"""The most devices of a topology that are listed one by one: a run line has a size limit."""

MARK = "meshmark-facts "
"""The start of the child's line: a plugin may print other lines."""


class NoBackend(BadInput, RuntimeError):
    """JAX could not be imported or found no device; the message is one line."""


def probe(given: Mapping[str, str] | None = None, timeout: float = 300.0) -> Facts:
    """Start a child that lists the devices and ends; NoBackend when that fails. given: variables that are set for the
    child."""
    code, marked, last = _child([], given or {}, timeout)
    return facts_said([] if code else marked, last, given)


LEAST_SPACE, LEAST_FILES = 8 << 30, 128
"""Bytes of address space, and open files, with which JAX was seen to start; below these a limit may be the reason."""


def _limits() -> str:
    """The limits of this process that may keep JAX from starting, and how to raise them; "" if there are none."""
    try:
        import resource
    except ImportError:  # Windows
        return ""
    space, files = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE))
    told = ""
    if space != resource.RLIM_INFINITY and space < LEAST_SPACE:
        told += (
            f"; its address space is limited to {space >> 20} MiB: give more memory (`ulimit -v unlimited`)"
        )
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        told += f"; it may open {files} files: allow more of them (`ulimit -n 1024`)"
    return told


def facts_said(said: Sequence[dict[str, Any]], last: str, given: Mapping[str, str] | None = None) -> Facts:
    """The facts in the messages of a child; NoBackend if it gave none, or if its number of CPU devices is not the
    requested one. last: the last line of its standard error."""
    if not said:
        raise NoBackend(
            f"JAX found no device: {last} (JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')!r}){_limits()}"
        )
    found = Facts.from_json(said[-1])
    asked = environment.of_child(given or {}).get(environment.CPU_DEVICES, "")
    if found.virtual and asked.isdecimal() and int(asked) != found.num_devices:
        raise NoBackend(
            f"JAX shows {found.num_devices} CPU devices, and {asked} were asked for: see XLA_FLAGS and"
            f" {environment.CPU_DEVICES}"
        )
    return found


def probe_topology(topology: Topology, layout: str, shapes: Iterable[MeshShape]) -> Facts:
    """The facts of a compile-only topology, from a child process: its devices, and which of these meshes
    have no such layout. TopologyError if the compiler is missing or does not know the topology."""
    topologies.compiler(topology)
    arguments = [topology.name, layout, *(shape.label for shape in shapes)]
    code, marked, last = _child(arguments, topologies.ENVIRONMENT, 300.0)
    if code or not marked:
        raise topologies.TopologyError(f"topology {topology}: listing its devices failed: {last}")
    if "refused" in marked[-1]:
        raise topologies.TopologyError(marked[-1]["refused"])
    return Facts.from_json(marked[-1])


def _child(
    arguments: Sequence[str], given: Mapping[str, str], timeout: float
) -> tuple[int, list[dict[str, Any]], str]:
    """Run this module in a child: (exit code, its messages after MARK, its last line of output)."""
    command = [sys.executable, "-m", "meshmark.devices.probe", *arguments]
    env = environment.of_child(given)
    try:
        for name in COMPILER_FLAGS:  # in one line, before the child says it with a traceback
            _recorded(name, env.get(name, ""))
    except BadInput as error:
        raise NoBackend(str(error)) from None
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        raise NoBackend(f"listing the devices took more than {timeout:.0f} s: see JAX_PLATFORMS") from None
    marked = [line.removeprefix(MARK) for line in child.stdout.splitlines() if line.startswith(MARK)]
    last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return child.returncode, list(map(json.loads, marked)), last


def facts() -> Facts:
    """The facts, read in this process; starts the JAX backend."""
    import jax

    return _facts(jax.devices(), jax.default_backend(), jax.process_count())


def topology_facts(topology: Topology, layout: str, labels: Iterable[str]) -> Facts:
    """The facts of a compile-only topology, read in this process; loads its compiler."""
    devices = topologies.devices(topology)
    reasons = {label: topologies.layout_problem(topology, parse_mesh(label), layout) for label in labels}
    found = _facts(devices[:MOST_LISTED], devices[0].platform, len({d.process_index for d in devices}))
    return replace(
        found,
        num_devices=len(devices),
        topology=topology.name,
        layout=layout,
        compiler=topologies.compiler(topology),
        no_layout={label: reason for label, reason in reasons.items() if reason},
        flags={k: v for k, v in found.flags.items() if topologies.ENVIRONMENT.get(k) != v},
    )


def _facts(devices: Sequence[Any], backend: str, num_processes: int) -> Facts:
    import jax
    import jaxlib
    import ml_dtypes
    import numpy

    return Facts(
        versions={
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": numpy.__version__,
            "ml_dtypes": ml_dtypes.__version__,
            "python": platform.python_version(),
        },
        backend=backend,
        device_kind=devices[0].device_kind,
        num_devices=len(devices),
        num_processes=num_processes,
        devices=[
            {"id": d.id, "process": d.process_index, "coords": list(getattr(d, "coords", None) or [])}
            for d in devices
        ],
        flags=flags_here(),
        host={"system": platform.system(), "machine": platform.machine(), **cores.counted()},
        suite=suite(),
        surroundings=surroundings.unusual_settings(),
    )


def flags_here() -> dict[str, str]:
    """The variables of this process that set flags of JAX, XLA and their backends, as code in C reads them. BadInput
    if a variable names a place of flags that can't be read."""
    return {
        k: _kept(redact(_recorded(k, v))) for k, v in variables.as_c_reads().items() if k.startswith(FLAGS)
    }


def hidden_flags() -> str:
    """A line if code in C reads a variable with flags otherwise than `os.environ` shows it; else ""."""
    return next(variables.hidden(FLAGS), "")


def _recorded(name: str, value: str) -> str:
    """The value of a variable. For a variable that names libraries, only their file names; for one that names a file of
    flags, the flags."""
    if name in COMPILER_FLAGS and variables.ELSEWHERE.search(value):
        raise BadInput(
            f"{name} takes flags from elsewhere (--flagfile, --fromenv): put the flags into the variable"
        )
    if name == variables.FILE_OF_FLAGS:
        return variables.flags_in(value)
    return " ".join(Path(one).name for one in re.split("[ :]+", value)) if name in LOADING else value


def _kept(value: str) -> str:
    """The value of a variable in the form of a run line: a long value becomes its beginning and a digest of the
    whole."""
    if len(value) <= LONGEST_FLAG:
        return value
    digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{value[: LONGEST_FLAG - 100]} ... ({len(value)} characters, SHA-256 {digest})"


def main(arguments: Sequence[str]) -> None:
    """The child process: print the facts of the devices, or of a topology (name, layout, mesh labels)."""
    if arguments:
        name, layout, *labels = arguments
        try:
            print(
                MARK + json.dumps(topology_facts(topologies.parse_topology(name), layout, labels).to_json())
            )
        except topologies.TopologyError as error:
            print(MARK + json.dumps({"refused": str(error)}))
    else:
        print(MARK + json.dumps(facts().to_json()))


if __name__ == "__main__":
    main(sys.argv[1:])
