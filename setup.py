# SPDX-License-Identifier: Apache-2.0
"""The build's two steps of its own. Everything else about the project stands in pyproject.toml.

Each wheel and source distribution says which commit it was made from. Its readme is the README without links into the
repository, which a package index can't follow.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "harness"))

from meshmark.core import installation  # noqa: E402

STATE = {name: installation.suite()[name] for name in ("commit", "clean")}
"""From git, or from the unpacked source distribution; None where neither knows. Asked before the build writes files."""


def write_state(package: Path) -> None:
    """Write the state into this copy of the package."""
    path = package / installation.BUILD.name
    path.unlink(missing_ok=True)  # it may be a hard link to the file that was copied
    path.write_text(json.dumps(STATE) + "\n", encoding="utf-8")


def readme() -> str:
    """The README for a package index: a link to a file of the repository becomes the name of the file, and pictures
    of the repository are left out."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", text)

    def named(link: re.Match[str]) -> str:
        label, path = link[1], link[2].partition("#")[0]
        return label if label == path else f"{label} (`{path}`)"

    return re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)", named, text)


class BuildPackage(build_py):
    """Copies the package, and nothing that an earlier build left behind."""

    def run(self) -> None:
        """Copy into the build directory, state included."""
        if self.editable_mode:  # an editable installation reads git
            super().run()
            return
        package = Path(self.build_lib) / "meshmark"
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        write_state(package)


class SourceDistribution(sdist):
    """Carries the commit on to the wheel that is built from it."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy into the directory that is packed, state included."""
        super().make_release_tree(base_dir, files)
        write_state(Path(base_dir) / "harness" / "meshmark")


class Metadata(egg_info):
    """Writes the metadata with the readme for a package index."""

    def run(self) -> None:
        """Replace the README by it first."""
        self.distribution.metadata.long_description = readme()
        super().run()


setup(cmdclass={"build_py": BuildPackage, "egg_info": Metadata, "sdist": SourceDistribution})
