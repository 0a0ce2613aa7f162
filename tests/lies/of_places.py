# SPDX-License-Identifier: Apache-2.0
"""Lies about where a run was: its devices, variables and packages, and times of another place."""

from collections.abc import Callable

from meshmark.operations.versions import TABLE_VERSION
from meshmark.records import closing
from tests.lies.telling import (
    Change,
    Lie,
    Records,
    both,
    change_runs,
    of_host,
    of_kind,
    of_versions,
    on_facts,
    on_runs,
    suite,
    with_flags,
)
from tests.submissions import DEVICES

TELLS = "a" * 40
"""A commit whose runs say what is not as JAX comes."""


def devices(**fields: Callable[[int], object]) -> list[dict]:
    """The devices of a run, with these fields by number."""
    plain = {"id": lambda i: i, "process": lambda i: 0, "coords": lambda i: []}
    return [{name: of(i) for name, of in (plain | fields).items()} for i in range(DEVICES)]


def tpus(**fields: object) -> Change:
    """The records as those of TPUs, each at its place."""
    where = devices(coords=lambda i: [i % 2, i // 2, 0])
    return on_facts(
        backend="tpu", device_kind="TPU v5 lite", virtual=False, devices=where, flags={}, **fields
    )


def gpus(**fields: object) -> Change:
    """The records as those of GPUs."""
    return on_facts(backend="gpu", device_kind="NVIDIA H100 80GB HBM3", virtual=False, flags={} | fields)


def when_timed(**fields: object) -> Change:
    """Other facts in the run lines of timings alone."""
    return lambda conformance, timed: change_runs(timed, lambda facts: fields)


def run_when_timed(**fields: object) -> Change:
    """Other fields in the run lines of timings alone."""
    return lambda conformance, timed: on_runs(**fields)([], timed)


def in_timings(**fields: object) -> Change:
    """Other fields in every timing."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "timing"):
            line.update(fields)

    return lie


def closed_timings(change: Change = lambda conformance, timed: None, code: int = 0) -> Change:
    """Timings of a run that closed its file half an hour after it began, with this exit code. It chose what is
    there."""

    def lie(conformance: Records, timed: Records) -> None:
        chosen = {"operations": ["psum"], "meshes": ["2x2"], "sizes": ["64KiB"]}
        timed[0]["selection"] = timed[0]["selection"] | chosen
        change(conformance, timed)
        timed[0] |= closing.CLOSES
        run = {"run": timed[0]["run"]}
        timed.insert(1, closing.make_chosen_line({line["case"] for line in of_kind(timed, "timing")}) | run)
        account = closing.Account()
        for line in timed:
            account.add(line)
        timed.append(account.end(code) | {"ended": "2026-11-20T10:30:00Z"} | run)

    return lie


def in_ceilings(**fields: object) -> Change:
    """Other fields in every ceiling."""

    def lie(conformance: Records, timed: Records) -> None:
        for line in of_kind(timed, "ceiling"):
            line.update(fields)

    return lie


LIES: dict[str, Lie] = {
    "TPUs where a variable asks for CPUs": Lie(
        both(tpus(), on_facts(flags={"JAX_PLATFORMS": "cpu"})), "backend 'tpu' under JAX_PLATFORMS=cpu"
    ),
    "GPUs where a variable asks for TPUs or CPUs": Lie(
        gpus(JAX_PLATFORMS="tpu,cpu"), "backend 'gpu' under JAX_PLATFORMS=tpu,cpu"
    ),
    "four GPUs, of which one is shown": Lie(
        gpus(CUDA_VISIBLE_DEVICES="0"), "4 GPUs, and CUDA_VISIBLE_DEVICES shows 1"
    ),
    "64 bits by a variable, and no setting": Lie(
        with_flags(JAX_ENABLE_X64="1"), "JAX_ENABLE_X64='1', and its settings are without jax_enable_x64"
    ),
    "fewer digits by a variable, and no setting": Lie(
        with_flags(JAX_DEFAULT_MATMUL_PRECISION="bfloat16"), "and its settings are without jax_default_matmul"
    ),
    "nothing compiled by a variable, and no setting": Lie(
        with_flags(JAX_DISABLE_JIT="true"), "and its settings are without jax_disable_jit"
    ),
    "settings left out": Lie(
        on_facts(**suite(commit=TELLS)), "`surroundings` is missing, and the commit tells of settings"
    ),
    "a NumPy that is too old for JAX": Lie(of_versions(numpy="1.26.4"), "numpy 1.26.4 with jax 0.12.0.1"),
    "a NumPy that is none": Lie(
        of_versions(numpy="the newest"), "a version of .*numpy.* is not a version number"
    ),
    "ml_dtypes that are too old": Lie(of_versions(ml_dtypes="0.2.0"), "ml_dtypes 0.2.0 with jax"),
    "a jaxlib that this JAX is too new for": Lie(
        of_versions(jax="0.11.2", jaxlib="0.11.1"), "jaxlib 0.11.1 with jax 0.11.2"
    ),
    "a jaxlib that is newer than JAX": Lie(of_versions(jaxlib="0.12.9"), "jaxlib 0.12.9 with jax 0.12.0.1"),
    "a Python of the next decade": Lie(of_versions(python="4.0.0"), "Python 4.0.0, which is not a release"),
    "a Python of two numbers": Lie(of_versions(python="3.12"), "Python 3.12, which is not a release"),
    "CPU devices in another order": Lie(
        on_facts(devices=devices(id=lambda i: 3 - i)), "CPU devices with the ids .3, 2, 1, 0."
    ),
    "every thousandth CPU device": Lie(
        on_facts(devices=devices(id=lambda i: 1000 * i)), "CPU devices with the ids .0, 1000, 2000"
    ),
    "CPU devices on a torus": Lie(
        on_facts(devices=devices(coords=lambda i: [i, 0, 0])), "a CPU device with a place"
    ),
    "the compiler of a topology, on devices": Lie(
        on_facts(compiler={"libtpu": "0.0.50.1"}), "`compiler` of a run on devices"
    ),
    "the layout of a topology, on devices": Lie(on_facts(layout="physical"), "layout 'physical' of a run on"),
    "timed at another version of the table": Lie(
        run_when_timed(table=TABLE_VERSION - 1), "differ in the version of the case table .*are of one commit"
    ),
    "timed on a larger machine of the same kind": Lie(
        lambda conformance, timed: of_host(cores=64)([], timed), "runs of 2 machines"
    ),
    "timed on twice the devices": Lie(
        when_timed(num_devices=8, flags={"JAX_NUM_CPU_DEVICES": "8"}), "the runs differ in num_devices"
    ),
    "timed with changes to the suite": Lie(when_timed(**suite(clean=False)), "the suite has changes"),
    "timed before there was a suite": Lie(
        run_when_timed(started="2025-11-20T10:00:00Z"), "no time at which the suite could run"
    ),
    "half an hour for cells of an hour and more": Lie(
        closed_timings(in_timings(seconds=1000.0)), "timed cells for 6000 s, and had 1800 s"
    ),
    "compiled for longer than all of it took": Lie(
        in_timings(compile_s=50.0), "took 50 s to compile, and 1 s in all"
    ),
    "hardware in a field that nobody reads": Lie(
        on_facts(accelerator="8 x NVIDIA H200"), "'accelerator' is in no definition of records"
    ),
    "a reviewer in the run line": Lie(
        on_runs(reviewed_by="Meshmark maintainers"), "'reviewed_by' is in no definition of records"
    ),
    "a place of measuring in each time": Lie(
        in_timings(measured_on="8 x TPU v6e"), "'measured_on' is in no definition of records"
    ),
    "times by an interpreter": Lie(in_timings(interpreted=True), "with `interpreted`, which such a line"),
    "times of a topology": Lie(in_timings(topology="v5e:2x2"), "with `topology`, which such a line does not"),
    "times at another precision": Lie(
        in_timings(precision="highest"), "precision 'highest' of a case at 'none'"
    ),
    "a ceiling of a dtype that nobody has": Lie(
        in_ceilings(dtype="float999"), "is of dtype 'float999', which"
    ),
    "the sides of a comparison, judging": Lie(
        on_runs(environment="A"), "is judged by a run of a comparison, which judges no cases"
    ),
}
