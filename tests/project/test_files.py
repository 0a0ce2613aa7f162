# SPDX-License-Identifier: Apache-2.0
"""Files at the root of the repository that people and services read, and the commands that documents name."""

import argparse
import configparser
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from docs import package, pages
from meshmark import __version__
from tests.checkout import ROOT

yaml = pytest.importorskip("yaml", reason="the extra test brings PyYAML")

FORMS = sorted(p for p in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def loaded(path: Path):
    return yaml.safe_load(path.read_text())


# Services ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=lambda p: p.stem)
def test_an_issue_form_has_what_forms_need(form):
    found = loaded(form)
    assert found["name"] and found["description"] and isinstance(found["labels"], list)
    fields = [part for part in found["body"] if part["type"] != "markdown"]
    assert fields and all(f["type"] in ("input", "textarea", "dropdown", "checkboxes") for f in fields)
    assert all(f["attributes"]["label"] for f in fields)
    ids = [f["id"] for f in fields]
    assert len(set(ids)) == len(ids)
    assert any(f.get("validations", {}).get("required") for f in fields)


def test_the_names_of_the_forms_differ():
    assert len({loaded(form)["name"] for form in FORMS}) == len(FORMS) >= 3


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_reads_only_unless_it_says_so_and_ends_in_time(workflow):
    found = loaded(workflow)
    assert found["permissions"] == {"contents": "read"}
    for job in found["jobs"].values():
        assert "timeout-minutes" in job
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            if "run" in step:  # an input in a script would be code of whoever gives it
                assert not re.search(r"\$\{\{\s*(inputs|github)\.", step["run"]), step["run"]


def test_the_environments_of_the_workflow_are_those_of_tox():
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    names = set()
    for section in tox.sections():
        label = section.removeprefix("testenv:")
        names |= set(label.strip("{}").split(",")) if section.startswith("testenv:") else set()
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    used = set(re.findall(r"tox run -e ([\w.-]+)", text)) | set(re.findall(r"environment: ([\w.-]+)", text))
    assert used and used <= names, used - names


def test_the_reusable_workflow_can_be_called():
    called = loaded(ROOT / ".github/workflows/conformance.yml")[True]["workflow_call"][
        "inputs"
    ]  # `on` is True
    assert {name for name, one in called.items() if one.get("required")} == {"meshmark", "plugin"}
    assert all(
        one["description"] and one["type"] in ("string", "number", "boolean") for one in called.values()
    )


def test_the_citation_is_of_this_version_and_names_nobody():
    found = loaded(ROOT / "CITATION.cff")
    assert str(found["version"]) == __version__
    assert found["authors"] == [{"name": "Meshmark maintainers"}]
    assert not {"url", "repository-code", "doi"} & set(found)


def test_addresses_are_whole_where_they_are_set():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, address in project.get("urls", {}).items():
        assert re.match(r"https://\S+\.\S+$", address), name


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "results/README.md"])
def test_the_links_of_a_file_outside_of_the_site_lead_somewhere(name):
    file = ROOT / name
    for link in re.findall(r"\]\(([^)#]+)", file.read_text()):
        assert (file.parent / link).exists(), link


# Commands ---------------------------------------------------------------------------------------------------

PYTEST = {"-k", "-x", "-q", "-n", "-p", "--junit-xml", "--collect-only", "--maxfail"}
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(pages.DOCS.rglob("*.md")),
]


def parsers() -> dict[str, argparse.ArgumentParser]:
    top = package.commands()
    subparsers = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    return {**subparsers.choices, "test": package.test_options()}


def complaint(line: str) -> str:
    """What is wrong with a command line of `meshmark`, or ""."""
    words = shlex.split(line, comments=True)
    if words[1].startswith("--"):
        return "" if words[1] in ("--version", "--help") else f"no option {words[1]}"
    parser = parsers().get(words[1])
    if parser is None:
        return f"no command {words[1]}"
    own = words[2 : words.index("--")] if "--" in words else words[2:]
    known = set(parser._option_string_actions) | {"--help"} | (PYTEST if words[1] == "test" else set())
    unknown = [w for w in own if re.match(r"--?[a-z]", w) and w.split("=")[0] not in known]
    return f"no option {unknown[0]} of {words[1]}" if unknown else ""


def commands(text: str) -> list[str]:
    """The command lines of `meshmark` in code blocks and between backticks."""
    text = re.sub(r"```(?:console|text|json)\n.*?```", "", text, flags=re.DOTALL)
    blocks = re.findall(
        r"^(?:    |\t| *\$ )*(?:srun |meshmark launch [^\n]*-- )?(meshmark [a-z-].*)$", text, re.MULTILINE
    )
    spans = re.findall(r"`(?:\S+ )?(meshmark [a-z-][^`]*)`", text)
    whole = re.findall(r"^    (meshmark launch .*)$", text, re.MULTILINE)
    return [c for c in (*blocks, *spans, *whole) if "..." not in c and c.split()[1] != "COMMAND"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_every_command_that_a_document_names_is_one(document):
    for command in commands(document.read_text()):
        assert complaint(command) == "", command


def test_commands_that_are_none_are_found():
    assert len(commands((ROOT / "README.md").read_text())) > 10
    assert "no command brew" in complaint("meshmark brew tea")
    assert "no option --colour" in complaint("meshmark list --colour red  # --why")
    assert "no option --why" in complaint("meshmark test --why")
    assert complaint("meshmark launch -n 2 -- meshmark test --profile smoke") == ""
    assert commands("x\n\n    meshmark list --why   # all\n\nand `meshmark devices` and `meshmark`\n") == [
        "meshmark list --why   # all",
        "meshmark devices",
    ]
