# SPDX-License-Identifier: Apache-2.0
"""Trials: the place where each case is judged, and ids that distinguish places."""

from dataclasses import replace
from types import SimpleNamespace

from meshmark.devices.facts import Facts
from meshmark.operations import cases
from meshmark.operations.choosing import MANY
from meshmark.operations.selection import Selection
from meshmark.pytest_plugin.choosing import OF_A_CASE, operations_of, without_a_case
from meshmark.pytest_plugin.stashed import TRIALS
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


def chosen_by(**options):
    """The configuration of a run on eight devices with these options, each a tuple of names."""
    fields = {"levels" if name == "level" else name: names for name, names in options.items()}
    facts = replace(FACTS, topology="", num_processes=1)
    taken, _ = trials_of(Selection("standard", **fields), facts)
    return SimpleNamespace(
        stash={TRIALS: {"all": taken}},
        getoption=lambda name: options.get(name, ()) if name in OF_A_CASE else None,
    )


def test_a_name_by_which_no_case_is_chosen_is_told():
    """`--operations psum,matmul --level L1` judged psum alone, passed, and said nothing of matmul."""
    assert without_a_case(chosen_by(operations=("psum",), level=("L1",), modes=("auto", "manual"))) == []
    assert without_a_case(chosen_by(operations=("psum",), level=("L1", "L2"))) == ["--level L2"]
    assert without_a_case(chosen_by(dtypes=("bool",), meshes=("2x4", "3"), modes=("host",))) == ["--meshes 3"]
    found = without_a_case(
        chosen_by(
            operations=("psum", "matmul"),
            level=("L1",),
            modes=("manual", "host"),
            meshes=("2x4", "8"),
            dtypes=("float32", "bool"),
            sizes=("4KiB", "n64"),
        )
    )
    assert found == ["--operations matmul", "--modes host", "--dtypes bool", "--sizes n64"]


def test_every_option_of_which_a_case_has_one_name_is_looked_at():
    assert set(OF_A_CASE) == set(MANY) - {"with", "without"}
