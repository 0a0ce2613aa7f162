# SPDX-License-Identifier: Apache-2.0
"""The documentation site: generated pages hold all of their sources, and broken links are found."""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter

import pytest

from docs import commands_page, offline, operations_page, package, pages, records_page, rooms
from meshmark.levels import known_issues
from meshmark.operations import OPERATIONS
from tests.checkout import ROOT

SOURCES = sorted(pages.DOCS.rglob("*.md"))


# Made pages -------------------------------------------------------------------------------------------------


def test_the_page_of_commands_has_every_command_and_option():
    text = commands_page.page()
    top = package.commands()
    subparsers = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    for name, parser in subparsers.choices.items():
        assert f"## meshmark {name}\n" in text
        for action in parser._actions:
            if action.help != argparse.SUPPRESS and action.option_strings not in ([], ["-h", "--help"]):
                assert action.option_strings[-1] in text, action.option_strings
    for action in package.test_options()._actions:
        assert f"`{action.option_strings[-1]}" in text
    assert "%(" not in text  # placeholders of argparse are filled in


def test_the_page_of_records_has_every_field_of_every_kind():
    schema = json.loads(package.SCHEMA.read_text())
    parts = re.split(r"^## Kind `(\w+)`$|^## Facts of a run$", records_page.page("x"), flags=re.MULTILINE)
    kinds = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert set(schema["properties"]["kind"]["enum"]) == {k for k in kinds if k}
    for name in (*schema["properties"]["kind"]["enum"], "facts"):
        text = kinds.get(name, kinds.get(None))
        for field in schema["$defs"][name]["properties"]:
            assert f"| `{field}` |" in text, (name, field)


def test_the_page_of_records_tells_the_limits_of_the_reader():
    text = " ".join(records_page.page("x").split())
    assert "1,000,000 lines and 1 GiB, unpacked; 1,048,576 characters in a line; 60 brackets" in text


def test_a_field_that_is_added_is_on_the_page(tmp_path, monkeypatch):
    schema = json.loads(package.SCHEMA.read_text())
    schema["$defs"]["timing"]["properties"]["colour"] = {
        "type": "object",
        "description": "What a | b means.",
        "properties": {"depth": {"type": "integer", "minimum": 3, "unit": "B"}},
        "required": ["depth"],
    }
    changed = tmp_path / "records.schema.json"
    changed.write_text(json.dumps(schema))
    monkeypatch.setattr(package, "SCHEMA", changed)
    text = records_page.page("x")
    assert "| `colour` | object |  | What a \\| b means. |" in text
    assert "| `colour.depth` | integer from 3, in B | yes |  |" in text


def test_the_page_of_operations_has_every_operation_with_its_modes():
    text = operations_page.page()
    rows = {row.name: row for row in package.rows()}
    assert list(rows) == list(OPERATIONS)
    assert rows["psum"].modes == ("auto", "explicit", "manual", "manual-novma", "pmap", "pjit")
    assert rows["device_put"].modes == ("host",)
    for name, row in rows.items():
        assert row.modes and row.levels and row.description, name
        assert f"| `{name}` | {' '.join(row.levels)} | {', '.join(row.modes)} |" in text


def test_the_picture_of_the_rooms_is_that_of_the_contract():
    assert rooms.PICTURE.read_text() == rooms.drawn(), "run python -m docs.rooms"


def test_the_page_of_the_architecture_names_every_room_in_the_order_of_the_contract():
    page = (pages.DOCS / "architecture.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)
    assert listed == [room for layer in rooms.layers() for room in layer]


def test_a_room_that_moves_makes_the_picture_another(monkeypatch):
    monkeypatch.setattr(rooms, "layers", lambda: [["core"], ["commands"]])
    assert rooms.PICTURE.read_text() != rooms.drawn()


# Sources ----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A small repository with two pages and a file; gives the folder of the pages."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (tmp_path / "LICENSE").write_text("licence")
    (folder / "index.md").write_text(
        "# A\n\n[b](sub/b.md), [licence](../LICENSE), [out](https://example.org)\n"
    )
    (folder / "sub").mkdir()
    (folder / "sub/b.md").write_text("# B\n\n[licence](../../LICENSE#top)\n\n    [code](gone.md)\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "DOCS", folder)
    monkeypatch.setattr(pages, "made_pages", lambda: {"made.md": lambda: "# M\n\n[a](index.md)\n"})
    return folder


def test_a_linked_file_of_the_repository_comes_along(site, tmp_path):
    out = tmp_path / "out"
    assert pages.assemble(out) == []
    assert "[licence](repository/LICENSE)" in (out / "index.md").read_text()
    assert "[licence](../repository/LICENSE#top)" in (out / "sub/b.md").read_text()
    assert (out / "repository/LICENSE").read_text() == "licence"
    assert (out / "made.md").is_file()


def test_the_front_page_shows_the_addresses_that_are_set(site, tmp_path):
    pages.assemble(tmp_path / "out")
    assert "Addresses" not in (tmp_path / "out/index.md").read_text()
    (tmp_path / "pyproject.toml").write_text(
        '[project.urls]\nSource = "https://example.org/r"\nIssues = ""\n'
    )
    pages.assemble(tmp_path / "out")
    assert "- Source: <https://example.org/r>\n" in (tmp_path / "out/index.md").read_text()
    assert "Issues" not in (tmp_path / "out/index.md").read_text()


@pytest.mark.parametrize("link", ["gone.md", "../gone.txt", "../../outside.txt", ".."])
def test_a_link_that_leads_nowhere_is_told(site, tmp_path, link):
    (site / "index.md").write_text(f"# A\n\n[x]({link})\n")
    assert [line for line in pages.assemble(tmp_path / "out") if f"docs/index.md: {link} leads to" in line]


def test_every_page_of_the_documentation_has_whole_links(tmp_path):
    assert pages.assemble(tmp_path / "out") == []


def test_every_page_is_in_the_navigation():
    def named(node):
        if isinstance(node, str):
            yield node
        for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from named(inner)

    listed = set(named(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    there = {p.relative_to(pages.DOCS).as_posix() for p in SOURCES} | set(pages.made_pages())
    assert listed == there


@pytest.mark.parametrize("page", SOURCES, ids=lambda p: p.name)
def test_files_that_a_page_names_are_there(page):
    """Paths below the folders of the repository, and modules by room: judge/checks.py."""
    text = page.read_text()
    for path in re.findall(r"`((?:docs|harness|conformance|tests|benchmarks|results)/[\w./-]*\w)`", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?!docs|harness|conformance|tests|benchmarks|jax)\w+/\w+\.py)`", text):
        assert (ROOT / "harness/meshmark" / path).exists() or (ROOT / path).exists(), path


def test_the_number_of_smoke_cases_is_the_one_that_the_pages_name():
    cases = list(package.table(package.Selection("smoke"), 8))
    number, tutorial = len(cases), (pages.DOCS / "tutorials/accelerator.md").read_text()
    for level, many in Counter(case.level for case in cases).items():
        assert f"{level}: {many} of {many} pass" in tutorial
    assert f"the shortest profile: {number} cases" in (pages.DOCS / "index.md").read_text()
    assert f"{number} cases: {number} pass" in tutorial


def test_the_example_of_a_known_issue_can_be_used(tmp_path):
    [example] = re.findall(r"```toml\n(.*?)```", (pages.DOCS / "verdicts.md").read_text(), re.DOTALL)
    file = tmp_path / "own.toml"
    file.write_text(example)
    assert len(known_issues.read_known_issues(file)) == 1
    [issue] = known_issues.load("0.12.0.1", "my_platform", file)
    assert issue.covers("all_to_all/axes=x,split=0,concat=0,tiled/manual/8/int8/4KiB")


# The built site ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/a.js"></script>',
        '<link rel="stylesheet" href="//example.org/a.css">',
        '<img srcset="https://example.org/a.png 2x">',
        "<style>@font-face { src: url(https://example.org/a.woff2) }</style>",
        '<pre class="mermaid"><code>graph TD</code></pre>',
    ],
)
def test_what_comes_from_the_network_is_found(tmp_path, text):
    (tmp_path / "index.html").write_text(f"<html>{text}</html>")
    assert len(list(offline.taken(tmp_path))) == 1


def test_links_to_follow_and_own_files_are_fine(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="https://example.org">x</a><img src="a.png"><link href="a.css"><b class="other">y</b>'
    )
    (tmp_path / "a.css").write_text("b { background: url(a.png) }")
    assert list(offline.taken(tmp_path)) == []


@pytest.fixture(scope="module")
def build():
    """Builds a site from a folder of pages; gives the exit code and the output."""
    pytest.importorskip("zensical", reason="the extra docs is not installed")

    def run(folder):
        settings = '[project]\nsite_name = "x"\ndocs_dir = "in"\nsite_dir = "out"\n'
        (folder / "zensical.toml").write_text(settings)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        return made.returncode, made.stdout + made.stderr

    return run


def test_the_generator_is_strict_about_links_and_anchors(build, tmp_path):
    shutil.copytree(ROOT / "docs/tutorials", tmp_path / "in")
    (tmp_path / "in/accelerator.md").write_text("# A\n\n[b](modes.md#decide)\n")
    (tmp_path / "in/modes.md").write_text("# B\n\n## Decide\n\ntext\n")
    assert build(tmp_path)[0] == 0
    (tmp_path / "in/accelerator.md").write_text("# A\n\n[b](modes.md#gone)\n")
    code, said = build(tmp_path)
    assert code != 0 and "anchor" in said
