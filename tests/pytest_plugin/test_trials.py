# SPDX-License-Identifier: Apache-2.0
"""Trials: which cases are judged where, and the ids that tell places apart."""

from dataclasses import replace

from meshmark.devices.facts import Facts
from meshmark.operations import cases
from meshmark.operations.selection import Selection
from meshmark.pytest_plugin.choosing import operations_of
from meshmark.pytest_plugin.trials import Trial, split_id, trials_of

FACTS = Facts(
    versions={"jax": "0.12.0"},
    backend="tpu",
    device_kind="TPU v5 lite",
    num_devices=8,
    num_processes=2,
    devices=[],
    flags={},
    host={},
    topology="v5e:2x4",
)


def test_host_operations_and_sub_meshes_are_left_out_with_a_reason():
    taken, left_out = trials_of(Selection("standard", operations=("psum", "put_get")), FACTS)
    assert {trial.case.mode for trial in taken} >= {"auto", "explicit", "manual", "pmap"}
    assert {trial.case.mesh.size for trial in taken} == {8}
    assert len(taken) + sum(left_out.values()) == len(
        list(cases.cases(Selection("standard", operations=("psum", "put_get")), 8))
    )
    assert any("mode host" in why for why in left_out)
    assert any("sub-meshes" in why for why in left_out)


def test_a_sub_mesh_is_taken_when_named():
    taken, _ = trials_of(Selection("standard", operations=("psum",), meshes=("3",)), FACTS)
    assert {trial.case.mesh.label for trial in taken} == {"3"}


def test_ids_tell_topologies_apart_and_leave_ordinary_ones_alone():
    case = cases.find("psum/axes=x+y/manual/2x4/float32/4KiB", 8)
    assert Trial(case, FACTS).id == f"{case.id}@v5e:2x4"
    assert split_id(Trial(case, FACTS).id) == (case.id, "v5e:2x4")
    assert split_id(case.id) == (case.id, "")


def test_real_devices_leave_nothing_out_and_ids_are_those_of_the_cases():
    here = replace(FACTS, topology="", backend="cpu")
    selection = Selection("standard", operations=("psum", "put_get"))
    taken, left_out = trials_of(selection, here)
    assert left_out == {}
    assert [trial.id for trial in taken] == [case.id for case in cases.cases(selection, 8)]


def test_operations_are_known_only_where_every_argument_names_one_case():
    file = "conformance/test_collectives.py"
    one = f"{file}::test_collectives[psum/axes=x+y/auto/2x4/float32/4KiB]"
    other = f"{file}::test_collectives[pmax/axes=x/manual/2x4/float32/4KiB]"
    assert operations_of([one, other, one]) == ("psum", "pmax")
    for arguments in ([], ["conformance"], [one, file], [f"{file}::test_collectives"]):
        assert operations_of(arguments) == ()
    assert operations_of([one.replace("psum/", "no_such_operation/")]) == ()
