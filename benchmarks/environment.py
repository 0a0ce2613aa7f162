# SPDX-License-Identifier: Apache-2.0
"""Checks that asv's label matches what is under test, and that the number of devices is the requested one.

asv files a result under the name of its environment, which has the requested versions. This module compares that name
with the versions in the measuring process and with the installation directories of the packages.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import NUM_DEVICES

if TYPE_CHECKING:
    from meshmark.operations.cases import Case
    from meshmark.timing.measure import Prepared

MATRIX = "MESHMARK_ASV_MATRIX"
"""The matrix of the configuration sets this variable. It shows when the matrix is used without an asv environment."""


ROOMS = {
    "cases": "operations",
    "checks": "judge",
    "compile_only": "judge",
    "measure": "timing",
    "programs": "judge",
    "scheduling": "judge",
    "topologies": "devices",
}
"""The modules of the package that benchmarks use, and their rooms. Commits before the rooms have these modules directly
in a package called harness."""

TOPOLOGY = "MESHMARK_TOPOLOGY"
"""The variable that names a topology, such as v5e:2x4. Counters are then compiled for it instead of the local
devices."""


class Mislabelled(RuntimeError):
    """The label of the result does not match what runs."""


@functools.cache
def checked() -> None:
    """Raise Mislabelled if the label of this process's results does not match what it runs."""
    label = os.environ.get("ASV_ENV_NAME")
    if label is None:
        if MATRIX in os.environ:
            raise Mislabelled(
                "asv labels this interpreter with its matrix (--python=same): use -E existing:same"
            )
        return
    import jax
    import jaxlib
    import numpy

    versions = {
        "py": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "numpy": numpy.__version__,
    }
    wrong = mismatches(label, versions)
    if wrong:
        raise Mislabelled(f"the environment {label} runs {' and '.join(wrong)}")
    project, directory = os.environ.get("ASV_PROJECT"), os.environ.get("ASV_ENV_DIR")
    if directory is None:
        return
    if project == "meshmark":
        package = importlib.import_module(package_under_test())
        installed(package.__name__, package.__file__, directory)
    if project == "jax":
        installed("jax", jax.__file__, directory)
        built_from(jax.__version__, os.environ.get("ASV_COMMIT", ""))


def mismatches(label: str, versions: dict[str, str]) -> list[str]:
    """The parts of an environment's name, such as virtualenv-py3.12-jax0.12.0.1-numpy, that are wrong: "jax 0.11.2" for
    a package whose version differs from the label's. A name without a version is not compared."""
    wrong = []
    for name, version in versions.items():
        said = re.search(rf"(?:^|-){name}(\d[^-]*)", label)
        if said and version != said[1] and not (name == "py" and version.startswith(said[1] + ".")):
            wrong.append(f"{'python' if name == 'py' else name} {version}")
    return wrong


def compile_only_devices() -> tuple[Any, ...]:
    """The devices of the requested topology, for compiling only; without a topology, the local devices.

    NotImplementedError (asv: skip) if the commit has no topologies. Mislabelled if asv's label lacks the topology,
    because its counters would then be filed as those of the local devices.
    """
    name = os.environ.get(TOPOLOGY)
    if not name:
        return devices()
    label = os.environ.get("ASV_ENV_NAME")
    if label is not None and f"{TOPOLOGY}{filed(name)}" not in label.split("-"):
        raise Mislabelled(
            f"{TOPOLOGY}={name} is not in the label {label}: set it in the matrix, as env_nobuild"
        )
    topologies = module("topologies", "prepare_environment", "devices")
    topologies.prepare_environment(name)
    checked()
    found = topologies.devices(name)
    if len(found) != NUM_DEVICES:
        raise ValueError(
            f"{TOPOLOGY}={name} has {len(found)} devices: take one of {NUM_DEVICES}, such as v5e:2x4"
        )
    return found


def filed(value: str) -> str:
    """A value in the form that asv uses in names of environments."""
    return re.sub(r'[<>:"/\\^|?*\x00-\x1f]', "_", value)


def installed(name: str, file: str | None, directory: str) -> None:
    """Raise Mislabelled unless this file of a package is in the environment's directory."""
    if file is None or not Path(file).resolve().is_relative_to(Path(directory).resolve()):
        raise Mislabelled(f"{name} is not the one installed in the environment but {file}")


def built_from(version: str, commit: str) -> None:
    """Raise Mislabelled unless a JAX built from source has this commit in its version, as
    0.11.1.dev20260808+cec06d116c."""
    built = version.partition("+")[2]
    if commit and not (built and commit.startswith(built)):
        raise Mislabelled(f"asv labels the commit {commit[:12]}, and the JAX that runs is {version}")


@functools.cache
def devices() -> tuple[Any, ...]:
    """All devices, after checking the label. NotImplementedError (asv: skip) if there are too few."""
    checked()
    import jax

    found = tuple(jax.devices())
    asked = os.environ["JAX_NUM_CPU_DEVICES"]
    if jax.default_backend() == "cpu" and len(found) != int(asked):
        raise RuntimeError(
            f"asked for {asked} CPU devices and got {len(found)}: was a backend started before?"
        )
    if len(found) < NUM_DEVICES:
        raise NotImplementedError(f"needs {NUM_DEVICES} devices and there are {len(found)}")
    return found


@functools.cache
def package_under_test() -> str:
    """The name of the package of the commit under test: meshmark, or harness before the rooms."""
    found = importlib.util.find_spec("meshmark")
    return "meshmark" if found is not None and found.origin is not None else "harness"


def module_name(name: str) -> str:
    """The full name of a module of ROOMS in the package of the commit under test."""
    package = package_under_test()
    return f"{package}.{ROOMS[name]}.{name}" if package == "meshmark" else f"{package}.{name}"


def module(name: str, *used: str) -> Any:
    """A module of ROOMS in the package of the commit under test. used: the names that it must have.

    NotImplementedError (asv: skip) if the commit has no such module or name. Any other failed import raises, because a
    missing dependency must not look like an older commit.
    """
    try:
        found = importlib.import_module(module_name(name))
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("meshmark", "harness"):
            raise
        raise NotImplementedError(f"this commit can't be benchmarked so: {error}") from None
    for missing in (n for n in used if not hasattr(found, n)):
        raise NotImplementedError(f"this commit can't be benchmarked so: {found.__name__} has no {missing}")
    return found


def case(case_id: str) -> Case:
    """The case in the table of the commit under test; NotImplementedError (asv: skip) if it has none."""
    table = module("cases", "find", "SelectionError")
    try:
        return table.find(case_id, NUM_DEVICES)
    except table.SelectionError as error:
        raise NotImplementedError(str(error)) from None


@functools.cache
def prepared(case_id: str) -> Prepared:
    """The case, compiled and verified once per process, although asv calls setup many times.

    NotImplementedError (asv: skip) if the commit does not support it, or if the case is unsupported here. measure.Wrong
    if its values are wrong: the benchmark then fails and has no time.
    """
    measure, found = module("measure", "prepare", "Wrong"), case(case_id)
    try:
        return measure.prepare(found, devices())
    except measure.Wrong as error:
        if any(line.verdict == "unsupported" for line in error.lines):
            raise NotImplementedError(str(error)) from None
        raise


def first_result(case_id: str) -> str:
    """Python source that goes from importing JAX to the first result of a case, unverified, in a fresh process."""
    return (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import jax\n"
        f"from {module_name('cases')} import find\n"
        f"from {module_name('checks')} import placed_inputs\n"
        f"from {module_name('programs')} import Program\n"
        f"program = Program(find({case_id!r}, {NUM_DEVICES}), tuple(jax.devices()))\n"
        "inputs = placed_inputs(program, 0)\n"
        "with program.context():\n"
        "    jax.block_until_ready(program.compile()(*inputs))\n"
    )
