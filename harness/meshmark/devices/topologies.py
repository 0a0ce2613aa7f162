# SPDX-License-Identifier: Apache-2.0
"""Devices without the hardware: TPU slices and GPU clusters for which the real compilers compile.

A topology's name is `CHIP:SHAPE`: v5e:2x4, v5p:4x4x4, v6e:16x16, tpu7x:2x2x1, h100:8, h100:1024. For TPUs the shape
counts chips along each dimension of the slice; for GPUs it is their number. `2xv5p:4x4x4` is two slices, joined by the
data centre's network. Devices come from `jax.experimental.topologies`: for TPU from the `libtpu` wheel, for GPU from
JAX's CUDA plugin and a device description (`meshmark.devices.targets`). None of them can execute.

`prepare_environment` must run before JAX starts a backend, best before JAX is imported. `devices` loads the compiler's
library into the calling process.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, util
from typing import Any

from meshmark.core import extras
from meshmark.core.errors import BadInput
from meshmark.core.meshes import MeshShape
from meshmark.devices import environment, targets
from meshmark.devices.chips import CHIPS

TPUS = ("v5e", "v5p", "v6e", "tpu7x")
"""TPU chips. v4 is left out: its compile-only devices are half chips, which no JAX program on a v4 sees."""

GPUS_PER_HOST = 8
"""GPUs per host: those of a DGX or HGX board, joined by NVLink."""

MOST_DEVICES = 16384

EXPORTS = ("tpu", "cuda")
"""The platforms of topologies that `jax.export` supports."""

LAYOUTS = ("plain", "physical")
"""plain: the devices in the topology's order. physical: as `jax.make_mesh` lays them out on
the chip grid; over several slices as `mesh_utils.create_hybrid_device_mesh` does."""

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",  # JAX does not start a TPU or GPU backend
    "TPU_SKIP_MDS_QUERY": "1",  # no query to a metadata server, which would wait for seconds
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",  # several workers, each with its own libtpu
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # otherwise the plugin needs a driver
    "CUDA_VISIBLE_DEVICES": "-1",
}
"""The environment variables for compiling without the hardware."""

WHEELS = {
    "tpu": ("libtpu",),
    "cuda": ("jax-cuda13-pjrt", "nvidia-cuda-nvcc", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"),
}
"""The distributions of each platform's compiler; the first one is its name."""


class TopologyError(BadInput, ValueError):
    """A topology is unavailable; the message is one line that names it and how to mend it."""


class NoLayout(ValueError):
    """JAX has no physical layout for this mesh shape on this topology; the message is one line."""


@dataclass(frozen=True)
class Topology:
    """A topology by its name; this class does not need the compiler."""

    name: str
    """The name in options and records: v5e:2x4, 2xv5p:4x4x4, h100:1024."""
    chip: str
    """v5e, v5p, v6e, tpu7x, h100, h200 or b200."""
    platform: str
    """tpu or cuda."""
    shape: tuple[int, ...]
    """Chips of one slice along each dimension; for GPUs the number of GPUs."""
    slices: int = 1

    @property
    def num_chips(self) -> int:
        """Chips of all slices together."""
        return math.prod(self.shape) * self.slices

    @property
    def devices_per_chip(self) -> int:
        """JAX devices of one chip: 2 for TPU7x, else 1."""
        return CHIPS[self.chip].devices_per_chip

    @property
    def num_devices(self) -> int:
        """JAX devices of all slices together: the size of a mesh over the whole topology."""
        return self.num_chips * self.devices_per_chip

    @property
    def label(self) -> str:
        """The name as part of a file name: v5e.2x4."""
        return self.name.replace(":", ".")

    def __str__(self) -> str:
        return self.name


_NAME = re.compile(r"(?:(\d+)x)?([a-z]\w*):(\d+(?:x\d+)*)")


def parse_topology(name: str) -> Topology:
    """The topology of this name; TopologyError, with the expected form or the known chips, for another name."""
    match = _NAME.fullmatch(name.strip().lower())
    if not match:
        raise TopologyError(
            f"{name!r} is not a topology: use CHIP:SHAPE such as v5e:2x4, v5p:4x4x4 or h100:8, for two slices 2xv5e:2x4"
        )
    slices, chip, shape = int(match[1] or 1), match[2], tuple(map(int, match[3].split("x")))
    known = (*TPUS, *targets.GPUS)
    if chip not in known:
        raise TopologyError(f"topology {name}: no chip {chip!r}; choose from {', '.join(known)}")
    platform = "tpu" if chip in TPUS else "cuda"
    made = Topology(name.strip().lower(), chip, platform, shape, slices)
    if not 1 <= made.num_devices <= MOST_DEVICES:
        raise TopologyError(
            f"topology {name} has {made.num_devices} devices: use a shape of 1 to {MOST_DEVICES} devices"
        )
    if platform == "tpu" and not 2 <= len(shape) <= 3:
        raise TopologyError(
            f"topology {name}: a TPU slice has two or three dimensions of chips, such as {chip}:2x4"
        )
    if platform == "cuda" and (len(shape) > 1 or slices > 1):
        raise TopologyError(
            f"topology {name}: GPUs are counted in one number, such as {chip}:8 or {chip}:1024"
        )
    if platform == "cuda" and shape[0] > GPUS_PER_HOST and shape[0] % GPUS_PER_HOST:
        raise TopologyError(
            f"topology {name}: more than {GPUS_PER_HOST} GPUs are whole hosts of {GPUS_PER_HOST}:"
            f" use {chip}:{max(1, shape[0] // GPUS_PER_HOST) * GPUS_PER_HOST}"
        )
    return made


def parse_all(names: Iterable[str]) -> list[Topology]:
    """The topologies of comma-separated names, without duplicates, in order."""
    found = {parse_topology(part): None for text in names for part in text.split(",") if part.strip()}
    return list(found)


def prepare_environment(*names: str) -> None:
    """Set the environment variables for compiling for these topologies, for this process and its children.

    Call it before JAX starts a backend. It overrides JAX_PLATFORMS: otherwise JAX would occupy an attached TPU or GPU
    without using it. TopologyError for an unknown name or a compiler that is not installed.
    """
    for topology in parse_all(names):
        compiler(topology)
    environment.set_here(ENVIRONMENT)
    if "jax" in sys.modules:  # JAX reads the environment when it is imported
        import jax

        jax.config.update("jax_platforms", ENVIRONMENT["JAX_PLATFORMS"])


@lru_cache
def compiler(topology: Topology) -> dict[str, str]:
    """The versions of the distributions that compile for a topology; TopologyError if they are not installed.

    The compiled program depends on them, so they are part of the identity of counters and records.
    """
    found = {}
    for wheel in WHEELS[topology.platform]:
        with suppress(metadata.PackageNotFoundError):
            found[wheel] = metadata.version(wheel)
    module = {"tpu": "libtpu", "cuda": "jax_plugins.xla_cuda13"}[topology.platform]
    try:
        missing = util.find_spec(module) is None
    except ModuleNotFoundError:
        missing = True
    if missing or WHEELS[topology.platform][0] not in found:
        raise TopologyError(
            f"topology {topology} needs {WHEELS[topology.platform][0]}, which is not installed:"
            f" {extras.command('tpu') if topology.platform == 'tpu' else extras.command('gpu')}"
        )
    return found


def devices(topology: Topology | str, layout: str = "plain", shape: Sequence[int] = ()) -> tuple[Any, ...]:
    """The compile-only devices of a topology, all of them.

    `layout` "plain": in the topology's order. "physical": flattened, in the order in which JAX lays out a mesh of
    `shape` (all devices; by default one axis); NoLayout if it can't. TopologyError if the compiler is missing or does
    not know the topology.
    """
    made = parse_topology(topology) if isinstance(topology, str) else topology
    if layout not in LAYOUTS:
        raise TopologyError(f"no layout {layout!r}: choose from {', '.join(LAYOUTS)}")
    plain = _listed(made)
    return plain if layout == "plain" else _laid_out(made, tuple(shape) or (len(plain),))


@lru_cache(maxsize=32)
def _listed(topology: Topology) -> tuple[Any, ...]:
    compiler(topology)
    from jax.experimental import topologies

    options: dict[str, Any] = {}
    if topology.platform == "tpu":
        name = f"{topology.chip}:{'x'.join(map(str, topology.shape))}"
        if topology.slices > 1:
            options["num_slices"] = topology.slices
    else:
        number = topology.shape[0]
        name = f"1x{max(1, number // GPUS_PER_HOST)}x{min(number, GPUS_PER_HOST)}"
        options = {"target_config": targets.spell_target_config(topology.chip), "topology": name}
    try:
        with silence_stderr():
            found = topologies.get_topology_desc(
                name if topology.platform == "tpu" else "", topology.platform, **options
            ).devices
    except Exception as error:  # the library raises many types, JaxRuntimeError is one of them
        said = next(iter(str(error).splitlines()), type(error).__name__)
        versions = " ".join(f"{k} {v}" for k, v in list(compiler(topology).items())[:1])
        raise TopologyError(f"topology {topology}: {versions} does not know it ({said[:200]})") from None
    if len(found) != topology.num_devices:
        raise TopologyError(
            f"topology {topology} has {len(found)} devices and not {topology.num_devices}: is"
            f" {'x'.join(map(str, topology.shape))} a shape of {topology.chip}?"
        )
    return tuple(found)


@lru_cache(maxsize=64)
def _laid_out(topology: Topology, shape: tuple[int, ...]) -> tuple[Any, ...]:
    import jax
    from jax.experimental import mesh_utils

    plain = _listed(topology)
    try:
        if topology.slices > 1:
            across = _across(shape, topology.slices)
            inside = tuple(s // a for s, a in zip(shape, across, strict=True))
            array = mesh_utils.create_hybrid_device_mesh(inside, across, plain)
        else:
            array = jax.make_mesh(shape, tuple(f"a{i}" for i in range(len(shape))), devices=plain).devices
    except (NotImplementedError, ValueError, AssertionError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise NoLayout(
            f"JAX has no layout of {'x'.join(map(str, shape))} on {topology}: {said[:160]}"
        ) from None
    return tuple(array.flat)


def _across(shape: Sequence[int], slices: int) -> tuple[int, ...]:
    """The factor of each mesh axis that crosses slices: all on the first axis that their number divides."""
    for i, size in enumerate(shape):
        if size % slices == 0:
            return tuple(slices if j == i else 1 for j in range(len(shape)))
    raise ValueError(f"no axis of {'x'.join(map(str, shape))} divides into {slices} slices")


def layout_problem(topology: Topology, mesh: MeshShape, layout: str) -> str:
    """Why this mesh is impossible in this layout; "" if it is possible."""
    if layout == "plain":
        return ""
    if mesh.order or mesh.size != topology.num_devices:
        return "a physical layout takes all devices, in its own order"
    try:
        devices(topology, layout, mesh.shape)
    except NoLayout as error:
        return str(error)
    return ""


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Discard standard error of the whole process, also from native code: libtpu warns of the missing TPU.

    The text of a failure is in its exception. If the process dies, only the text of this call is lost: a worker whose
    standard error is a file keeps all other text.
    """
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, ValueError):  # no such descriptor
        yield
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(sink)
        os.close(kept)
