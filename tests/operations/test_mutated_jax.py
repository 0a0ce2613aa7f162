# SPDX-License-Identifier: Apache-2.0
"""The study of small changes in JAX's code: it makes them, judges cases each in its own process, and tells the rest."""

import ast
import inspect
import json
import subprocess
import sys

import jax.numpy as jnp
import pytest

from tests.studies import mutated_jax, reach

FUNCTION = inspect.unwrap(jnp.iscomplexobj)
"""A small function that keeps nothing and has no cache."""
FILE = FUNCTION.__code__.co_filename[len(str(reach.HOME)) + 1 :]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("a < b", ["a <= b"]),
        ("a is not None", ["a is None"]),
        ("a and b", ["a or b", "b", "a"]),
        ("a + b", ["a - b"]),
        ("not a", ["a"]),
        ("True", ["False"]),
        ("3", ["4"]),
        ("a if b else c", ["a if True else c", "a if False else c"]),
        ("f(a, b, c, d=e)", ["f(a, b, c)", "f(b, a, c, d=e)"]),
        ("isinstance(a, b)", []),
        ("f(*a, b)", []),
        ("a", []),
    ],
)
def test_the_changes_of_an_expression(text, changes):
    node = ast.parse(text, mode="eval").body
    assert [ast.unparse(new) for _, new in mutated_jax.variants(node)] == changes


def test_texts_refusals_and_annotations_stay_as_they_are():
    tree = ast.parse(
        "x = 1\n"
        "@made(2)\n"
        "def f(a: 3 = 4) -> 5:\n"
        "    if a < 6: raise ValueError(7)\n"
        "    assert 8\n"
        "    return f'{9}' + str(10)\n"
        "def _check_f(a): return 11\n"
    )
    seen = {node.value for _, node, _, _ in mutated_jax.walk(tree) if isinstance(node, ast.Constant)}
    assert seen == {6, 10}
    assert {function for _, _, function, _ in mutated_jax.walk(tree)} == {"f"}


def changes_of(record) -> list[mutated_jax.Change]:
    lines = sorted({line for _, _, line in FUNCTION.__code__.co_lines() if line})
    record.write_text(
        json.dumps({"case": "psum", "verdicts": ["pass"], "lines": {FILE: lines}})
        + "\n"
        + json.dumps({"case": "fails", "verdicts": ["fail"], "lines": {FILE: lines}})
        + "\n"
    )
    found = mutated_jax.draw([str(record)], [FILE], 100, 100, 0)
    assert all(names == ["psum"] for _, names in found)  # a case that fails shows nothing
    return [change for change, _ in found]


def test_a_change_is_in_the_function_that_jax_calls(tmp_path):
    seen = set()
    for number in range(len(changes_of(tmp_path / "lines.jsonl"))):
        change = changes_of(tmp_path / "lines.jsonl")[number]  # a new tree, since `put` changes it
        assert change.function == FUNCTION.__name__
        code = FUNCTION.__code__
        try:
            assert mutated_jax.put(change, mutated_jax.functions_by_file()) == 1
            try:
                seen.add(jnp.iscomplexobj(jnp.ones(2)))
            except Exception as error:
                seen.add(type(error))
        finally:
            FUNCTION.__code__ = code
    assert True in seen and jnp.iscomplexobj(jnp.ones(2)) is False


@pytest.mark.parametrize(("number", "names"), [(0, ["goes around"]), (1, ["goes in"])])
def test_a_condition_is_asked_of_the_cases_that_it_sends_elsewhere(number, names):
    node = ast.parse("if a:\n    b()\nc()").body[0]
    change = mutated_jax.Change("a.py", "f", node, node, 0, number)
    by_line = {("a.py", 1): ["goes in", "goes around"], ("a.py", 2): ["goes in"]}
    assert mutated_jax.affected(change, by_line) == names
    assert mutated_jax.affected(change, {("a.py", 1): ["all"], ("a.py", 2): ["all"] * (1 - number)}) == [
        "all"
    ]


def test_cases_run_in_a_process_of_their_own(tmp_path):
    """A change that makes wrong programs is shown, one of a function that no case calls is not, and a hang ends."""
    script = tmp_path / "judges.py"
    script.write_text(
        "import ast\n"
        "import time\n"
        "import jax\n"
        "from meshmark.operations.cases import cases\n"
        "from meshmark.operations.selection import Selection\n"
        "from tests.studies import mutated_jax as m\n"
        "case = next(c for c in cases(Selection('smoke'), 8) if c.id.startswith('psum/') and '/manual/' in c.id)\n"
        "functions = m.functions_by_file()\n"
        "node = ast.parse('1').body[0]\n"
        "change = m.Change('', '', node, node, 0, 0)\n"
        "def judged(put, seconds=100.0):\n"
        "    m.put = put\n"
        "    return m.judge_change(change, functions, [case], seconds)\n"
        "def wrong(*_):\n"
        "    jax.lax.psum = lambda x, *_, **__: x\n"
        "    return 1\n"
        "print(judged(wrong)['shown'].split(':')[1].strip())\n"
        "print(judged(lambda *_: 1)['held'])\n"
        "print(judged(lambda *_: 0)['skipped'])\n"
        "print(judged(lambda *_: time.sleep(60), 2.0)['shown'])\n"
        "def dies(*_):\n"
        "    import os\n"
        "    os._exit(3)\n"
        "print(judged(dies)['shown'])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown, held, skipped, hang, crash = done.stdout.splitlines()
    assert shown in ("fail", "error") and held == "1"
    assert (skipped, hang, crash) == ("no function has it", "hang", "crash")


def test_what_no_case_shows_is_told(tmp_path, capsys, monkeypatch):
    record = tmp_path / "changes.jsonl"
    lines = [
        {
            "place": "a.py:1:5:0",
            "function": "f",
            "change": "x",
            "of": 3,
            "case": "psum",
            "shown": "crash",
            "held": 0,
        },
        {"place": "a.py:2:7:0", "function": "g", "change": "1 -> 2", "of": 3, "held": 3, "cases": ["psum"]},
        {"place": "a.py:3:9:0", "function": "h", "change": "y", "of": 3, "skipped": "no function has it"},
    ]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(sys, "argv", ["mutated_jax", "tell", str(record)])
    mutated_jax.main()
    said = capsys.readouterr().out
    assert "   1 of    2 shown  a.py" in said and "a.py:2 g\n  1 -> 2\n  3 of 3 cases" in said
    assert "a.py:1" not in said and "a.py:3" not in said
