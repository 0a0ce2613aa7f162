"""What JAX sees, asked once in a short child process.

The pytest controller and the command line never start a JAX backend themselves: a process that holds a TPU,
or most of a GPU's memory, takes it from its own workers.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.privacy import redact

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_CPU_DEVICES = 8
FLAGS = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "CUDA_VISIBLE", "NCCL_", "ROCR_", "HIP_")
"""Prefixes of the environment variables that are recorded."""


MARK = "meshmark-facts "
"""Begins the child's line: a plugin may print lines of its own."""


class NoBackend(RuntimeError):
    """JAX could not be imported or found no device; the message is one line."""


@dataclass(frozen=True)
class Facts:
    """The environment in which programs run, read where they run."""

    versions: dict[str, str]
    backend: str
    device_kind: str
    num_devices: int
    num_processes: int
    devices: list[dict[str, Any]]
    flags: dict[str, str]
    host: dict[str, Any]
    suite: dict[str, Any] = field(default_factory=dict)

    @property
    def virtual(self) -> bool:
        """Whether the devices are CPU devices that share the cores of this machine."""
        return self.backend == "cpu"

    @property
    def jax(self) -> str:
        """Version of JAX."""
        return self.versions["jax"]

    def describe(self) -> list[str]:
        """Lines that say what is under test."""
        virtual = " (virtual: they share the cores)" if self.virtual else ""
        lines = [
            f"jax {self.versions['jax']}, jaxlib {self.versions['jaxlib']}, numpy {self.versions['numpy']},"
            f" python {self.versions['python']}",
            f"{self.num_devices} {self.device_kind} devices, backend {self.backend}{virtual},"
            f" {self.num_processes} process{'es' * (self.num_processes > 1)}",
        ]
        if self.flags:
            lines.append("flags: " + " ".join(f"{k}={v}" for k, v in sorted(self.flags.items())))
        return lines

    def to_json(self) -> dict[str, Any]:
        """The facts in JSON types."""
        return asdict(self) | {"virtual": self.virtual}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Facts:
        """The inverse of to_json."""
        return cls(**{k: v for k, v in data.items() if k != "virtual"})


def ask_for_cpu_devices(number: int | None) -> None:
    """Ask for so many virtual CPU devices, in this process and those that it starts (before JAX is imported).

    Without a number, what the environment says, or eight.
    """
    if number is not None or "JAX_NUM_CPU_DEVICES" not in os.environ:
        os.environ["JAX_NUM_CPU_DEVICES"] = str(number or DEFAULT_CPU_DEVICES)


def probe(timeout: float = 300.0) -> Facts:
    """Start a child that lists the devices and ends; NoBackend when that fails."""
    command = [sys.executable, "-m", "harness.devices"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired:
        raise NoBackend(f"listing the devices took more than {timeout:.0f} s: see JAX_PLATFORMS") from None
    marked = [line for line in child.stdout.splitlines() if line.startswith(MARK)]
    if child.returncode or not marked:
        last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        raise NoBackend(
            f"JAX found no device: {last} (JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')!r})"
        )
    return Facts.from_json(json.loads(marked[-1].removeprefix(MARK)))


def facts() -> Facts:
    """The facts, read in this process; starts the JAX backend."""
    import jax
    import jaxlib
    import ml_dtypes
    import numpy

    devices = jax.devices()
    return Facts(
        versions={
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": numpy.__version__,
            "ml_dtypes": ml_dtypes.__version__,
            "python": platform.python_version(),
        },
        backend=jax.default_backend(),
        device_kind=devices[0].device_kind,
        num_devices=len(devices),
        num_processes=jax.process_count(),
        devices=[
            {"id": d.id, "process": d.process_index, "coords": list(getattr(d, "coords", None) or [])}
            for d in devices
        ],
        flags={k: redact(v) for k, v in os.environ.items() if k.startswith(FLAGS)},
        host={"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()},
        suite=suite(),
    )


def suite() -> dict[str, Any]:
    """Version and commit of the suite, and whether the checkout was clean; no commit outside a checkout."""
    from harness import __version__

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("rev-parse", "--show-toplevel") != str(ROOT):  # installed somewhere below another checkout
        return {"version": __version__, "commit": None, "clean": None}
    status = git("status", "--porcelain")
    return {
        "version": __version__,
        "commit": git("rev-parse", "HEAD"),
        "clean": None if status is None else not status,
    }


if __name__ == "__main__":
    print(MARK + json.dumps(facts().to_json()))
