# SPDX-License-Identifier: Apache-2.0
"""Findings of hunts per hour, and the weights that follow from them."""

import json
import math

import pytest

from meshmark.commands.main import main
from meshmark.core.errors import BadInput
from meshmark.hunt import logs, yields
from meshmark.hunt.generator import draw, draw_with_families
from meshmark.program_data.program import Input, Node, Program, to_json

PAD = to_json(
    Program(
        (("x", 2),),
        (Input((4,), "float32", (("x",),)),),
        (Node("lax.pad", ({"v": 0}, 0.0, [[1, 0, 0]])),),
        (1,),
        (None,),
    )
)


def line(n, seconds, families, group=""):
    found = {"group": group, "shrunk": PAD} if group else {}
    return {"n": n, "s": seconds, "ops": sorted(families), "families": families} | found


HUNT = [
    line(0, 1800.0, {"lax.pad": "edge", "jnp.sort": "sort"}, "numbers: lax.pad"),
    line(1, 1800.0, {"lax.pad": "edge"}, "numbers: lax.pad"),
    line(2, 3600.0, {"jnp.sort": "sort"}),
    line(3, 900.0, {"jnp.matmul": "dot"}) | {"transform": "vjp"},
]


def test_a_root_cause_counts_once_for_the_kinds_that_its_shrunk_program_takes():
    found = {y.kind: y for y in yields.measure([HUNT])}
    assert (found["edge"].programs, found["edge"].hours, found["edge"].groups) == (2, 1.0, 1)
    assert (found["sort"].hours, found["sort"].groups) == (1.5, 0)
    assert found["vjp"].programs == 1
    assert yields.measure([HUNT])[0].kind == "edge"


def test_groups_of_one_kept_finding_are_one_root_cause():
    other = line(4, 1800.0, {"lax.pad": "edge"}, "numbers: lax.pad vjp")
    known = {"numbers: lax.pad": "pad", "numbers: lax.pad vjp": "pad"}
    assert [y.groups for y in yields.measure([[*HUNT, other]]) if y.kind == "edge"] == [2]
    assert [y.groups for y in yields.measure([[*HUNT, other]], known) if y.kind == "edge"] == [1]


def test_a_busy_machine_does_not_lower_the_yield():
    """The seconds of a processor count where the record has them: others may hold it meanwhile."""
    busy = [line(0, 3600.0, {"lax.pad": "edge"}, "numbers: lax.pad") | {"cpu": 360.0}]
    assert yields.measure([busy])[0].hours == 0.1


def test_the_interval_is_that_of_a_count():
    low, high = yields.Yield("edge", 1, 2.0, 0).interval
    assert low == 0 and math.isclose(high, -math.log(0.025) / 2.0)  # nothing in two hours
    low, high = yields.Yield("edge", 1, 1.0, 4).interval
    assert (round(low, 2), round(high, 2)) == (1.09, 10.24)  # as tables of the Poisson distribution have it


def test_weights_follow_the_yield_and_stay_within_bounds():
    found = yields.derive_weights(yields.measure([HUNT]))
    assert found["edge"] > found["dot"] > found["sort"] and "vjp" not in found
    many = [line(n, 36.0, {"lax.pad": "edge"}, f"numbers: {n}") for n in range(50)]
    found = yields.derive_weights(yields.measure([[*many, line(50, 360000.0, {"jnp.sort": "sort"})]]))
    assert (found["edge"], found["sort"]) == (3.0, 0.33)
    assert yields.derive_weights(yields.measure([HUNT[2:]])) == {}, "nothing found: the weights stay"


def test_each_operation_of_a_drawn_program_has_its_family():
    for number in range(12):
        program, families = draw_with_families(3, number)
        assert program == draw(3, number)
        named = {op for op in program.operations if op not in ("item", "constrain")}
        tops = {node.op for node in program.nodes} & named
        assert tops <= families.keys() and all(families.values())


def test_weights_change_what_is_drawn():
    def drawn(weights):
        return [f for n in range(25) for f in draw_with_families(5, n, weights)[1].values()]

    assert drawn({"sort": 3.0}).count("sort") > drawn({"sort": 0.33}).count("sort")


def test_the_command(tmp_path, capsys):
    file = tmp_path / "hunt.jsonl"
    file.write_text("".join(json.dumps(x) + "\n" for x in [logs.make_head(1, "", 8), *HUNT]))
    assert main(["hunt", "--yield", str(file)]) == 0
    assert "edge" in (said := capsys.readouterr().out) and "1.0 (0.0 to 5.6)" in said
    text = file.read_text()
    file.write_text(text.replace('"families": {', '"families": 5, "was": {'))
    assert main(["hunt", "--yield", str(file)]) == 2
    assert "has `families`, which must be an object" in capsys.readouterr().err
    file.write_text(text.replace('"s": ', '"was": '))
    assert main(["hunt", "--yield", str(file)]) == 2
    assert "a line is not what a hunt writes" in capsys.readouterr().err


@pytest.mark.parametrize("other", [{}, {"sort": 3.0}])
def test_a_hunt_goes_on_with_its_own_weights_alone(tmp_path, other):
    file = tmp_path / "hunt.jsonl"
    file.write_text(json.dumps(logs.make_head(1, "", 8, weights={"edge": 2.0})) + "\n")
    assert logs.read_log(file, logs.make_head(1, "", 8, weights={"edge": 2.0}))[0] == []
    with pytest.raises(BadInput, match="is of weights"):
        logs.read_log(file, logs.make_head(1, "", 8, weights=other))
