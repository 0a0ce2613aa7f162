# SPDX-License-Identifier: Apache-2.0
"""Which products a pull request changes: no path below results/ is left unvalidated."""

import re
import subprocess
import sys

import pytest

from tests.checkout import ROOT

SCRIPT = ROOT / ".github" / "changed_products.py"


@pytest.fixture
def pull(tmp_path):
    """A function that commits files to a branch of a small repository and runs the script there."""

    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    git("init", "-q", "-b", "main")
    (tmp_path / "README.md").write_text("a")
    git("add", ".")
    git("commit", "-q", "-m", "a")
    git("checkout", "-q", "-b", "pull")

    def run(*paths, base="main"):
        for path in paths:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("a")
        git("add", ".")
        git("commit", "-q", "--allow-empty", "-m", "b")
        command = [sys.executable, str(SCRIPT), str(tmp_path), base]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.split(), done.stderr

    return run


def test_each_changed_product_is_named_once(pull):
    files = [f"results/0.12.0.1/v5e-8/{name}" for name in ("manifest.json", "conformance.jsonl.gz")]
    code, found, said = pull(*files, "results/0.11.2/h100-1/manifest.json", "results/page/index.html")
    assert (code, found) == (0, ["results/0.11.2/h100-1", "results/0.12.0.1/v5e-8"])
    assert said == "not of a product, so no validation looks at it: 'results/page/index.html'\n"


def test_a_product_that_a_file_leaves_has_changed(pull, tmp_path):
    old, new = (tmp_path / "results/0.12.0.1" / name for name in ("v5e-4", "v5e-8"))
    pull("results/0.12.0.1/v5e-4/manifest.json")
    subprocess.run(["git", "branch", "-f", "main"], cwd=tmp_path, check=True, timeout=60)
    old.rename(new)
    assert pull()[1] == ["results/0.12.0.1/v5e-4", "results/0.12.0.1/v5e-8"]


def test_variables_of_git_lead_to_no_other_repository(pull, tmp_path, monkeypatch):
    pull("results/0.12.0.1/v5e-8/manifest.json")
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "main"], capture_output=True, text=True
    )
    assert done.stdout.split() == ["results/0.12.0.1/v5e-8"]


def test_the_label_of_a_pull_request_knows_products_as_the_script_does():
    """Paths that no validation looks at give another label than `validated`."""
    text = (ROOT / ".github/workflows/submission-label.yml").read_text()
    (pattern,) = re.findall(r'select\(test\("([^"]+)"\) \| not\)', text)
    for path in ("results/0.12.0.1/v5e-8/manifest.json", "results/0.11.2/a/conformance.jsonl.gz"):
        assert re.search(pattern, path)
    for path in (
        "results/page/a.html",
        "results/page/a/b",
        "results/weather/a",
        "docs/a.md",
        "a/results/1/b/c",
    ):
        assert not re.search(pattern, path)
    assert "previous_filename" in text


@pytest.mark.parametrize(
    "path",
    [
        "results/0.12.0.1/\u00e9-8/manifest.json",
        "results/dev/x/manifest.json",
        "results/0.12.0.1/a/b/c",
        "results/x",
    ],
)
def test_a_path_that_nobody_would_validate_is_refused(pull, path):
    code, found, said = pull("results/0.12.0.1/v5e-8/manifest.json", path)
    assert (code, found) == (1, []) and "belongs to no product" in said


def test_no_product_and_no_base_are_refused(pull):
    assert pull("docs/a.md")[0] == 1
    assert pull("results/0.12.0.1/v5e-8/manifest.json", base="nothing")[0] == 1
