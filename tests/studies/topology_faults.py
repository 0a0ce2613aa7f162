# SPDX-License-Identifier: Apache-2.0
"""Faults that only compiling without the hardware can catch, and the command that runs them.

    python -m tests.studies.topology_faults

Each is harmless or absent on eight virtual CPU devices: the numbers stay right, or the fault depends on the platform or
on the number of devices. The command activates one fault after the other. It shows that the same case passes on the CPU
with the fault, and that compiling for a topology catches it, for every topology whose compiler (the extra `tpu` or
`gpu`) is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import lax

from meshmark.core.meshes import preferred
from meshmark.core.verdicts import BAD, Line
from meshmark.devices import topologies
from meshmark.judge.checks import Judge
from meshmark.judge.compile_only import CompileOnly
from meshmark.operations import cases


@dataclass
class Fault:
    """One fault: its context manager, the case that shows it (`MESH` stands for the mesh), and the topology."""

    put_in: Callable[[], Any]
    case: str
    topology: str
    check: str
    """The check that must catch it."""


CATALOGUE: dict[str, Fault] = {}
"""The faults by name and topology."""


def fault(case: str, on: tuple[str, ...], check: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a function, which makes a context manager, as a fault with its name on each of these topologies."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        for topology in on:
            name = f"{make.__name__.replace('_', ' ')} on {topology}"
            CATALOGUE[name] = Fault(make, case, topology, check)
        return make

    return register


def installed(one: Fault) -> str:
    """Why the compiler of the fault's topology is not available; "" if it is."""
    try:
        topologies.compiler(topologies.parse_topology(one.topology))
    except topologies.TopologyError as error:
        return str(error)
    return ""


@fault("matmul/rows=x,inner=y,check=exact/manual/MESH/float32/n64", ("v5e:2x4", "h100:8"), "communication")
def an_extra_all_gather_on_one_platform_only():
    """lax.psum adds a gathered zero by a platform-dependent rule, as a wrong lowering for one platform may do."""
    real = lax.psum

    def psum(x, axes, **options):
        def gathered(y):
            whole = lax.all_gather(y, axes, axis=0, tiled=True)
            return lax.optimization_barrier(whole)[: y.shape[0]] * jnp.zeros((), y.dtype)

        more = lax.platform_dependent(
            x, tpu=gathered, cuda=gathered, default=lambda y: y * jnp.zeros((), y.dtype)
        )
        return real(x + more, axes, **options)

    return patch.object(lax, "psum", psum)


@fault("psum/axes=x+y/manual-novma/MESH/float32/4KiB", ("v5e:2x4", "h100:8"), "communication")
def replica_groups_over_the_wrong_axis():
    """On platforms other than CPU the sum leaves out the first of its axes."""
    real = lax.psum

    def psum(x, axes, **options):
        def short(y):
            return real(y, axes[1:], **options)

        return lax.platform_dependent(x, tpu=short, cuda=short, default=lambda y: real(y, axes, **options))

    return patch.object(lax, "psum", psum)


@fault("reshard/from=x.y,to=y.x/auto/MESH/float32/4KiB", ("v6e:16x16", "h100:256"), "sharding")
def a_constraint_ignored_at_256_chips():
    """The output sharding is left to the compiler on large meshes only."""
    real = jax.jit

    def jit(function=None, **options):
        out = options.get("out_shardings")
        if out is not None and all(s.mesh.size >= 256 for s in jax.tree.leaves(out)):
            options = {k: v for k, v in options.items() if k != "out_shardings"}
        return real(function, **options)

    return patch.object(jax, "jit", jit)


@fault("psum/axes=x+y/manual/MESH/float32/4KiB", ("v5e:2x4",), "host")
def a_way_through_host_memory_on_tpu_only():
    """The operand goes to the host's memory and back. XLA's GPU compiler removes such a detour."""
    real = lax.psum

    def psum(x, axes, **options):
        def detour(y):
            return jax.device_put(jax.device_put(y, jax.memory.Space.Host), jax.memory.Space.Device)

        return real(lax.platform_dependent(x, tpu=detour, default=lambda y: y), axes, **options)

    return patch.object(lax, "psum", psum)


def over(case: str, num_devices: int) -> cases.Case:
    """The case on the preferred mesh of this many devices."""
    return cases.find(case.replace("MESH", preferred(num_devices).label), num_devices)


def bad(lines: list[Line]) -> list[Line]:
    """The lines that fail."""
    return [line for line in lines if line.verdict in BAD]


@dataclass
class Outcome:
    """The failing lines of one fault."""

    on_cpu: list[Line]
    """Lines that fail where the case runs on virtual CPU devices, with the fault in."""
    without: list[Line]
    """Lines that fail on the topology without the fault."""
    caught: list[Line]
    """Lines that fail on the topology with it."""


def try_out(one: Fault) -> Outcome:
    """Judge the fault's case on the CPU with it, and on its topology without and with it."""
    topology = topologies.parse_topology(one.topology)
    here, there = over(one.case, jax.device_count()), over(one.case, topology.num_devices)
    judge = CompileOnly(topology)
    without = bad(judge.run(there))
    with one.put_in():
        on_cpu = bad(Judge(tuple(jax.devices())).run(here))
        caught = bad(judge.run(there))
    return Outcome(on_cpu, without, caught)


def main() -> int:
    """Try out all faults; 1 if one escapes or a check fails without it, 2 if no compiler is installed."""
    missing = {name: installed(one) for name, one in CATALOGUE.items()}
    for said in dict.fromkeys(filter(None, missing.values())):
        print(f"left out: {said}", file=sys.stderr)
    here = {name: one for name, one in CATALOGUE.items() if not missing[name]}
    if not here:
        return 2
    topologies.prepare_environment(*(one.topology for one in here.values()))
    escaped = 0
    for name, one in here.items():
        seen = try_out(one)
        checks = [line.check for line in seen.caught]
        well = not seen.on_cpu and not seen.without and one.check in checks
        escaped += not well
        said = seen.caught[0].reason[:150] if seen.caught else "nothing noticed"
        print(f"{'caught' if well else 'ESCAPED'}  {name}: {', '.join(checks)}: {said}")
        for line in (*seen.on_cpu, *seen.without):
            print(f"         and {line.check}: {line.reason[:300]}")
    print(f"{len(here) - escaped} of {len(here)} faults caught")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
