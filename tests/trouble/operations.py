# SPDX-License-Identifier: Apache-2.0
"""Operations that pass, crash or hang.

MESHMARK_TROUBLE=NAME keeps one of them, or makes every worker fail as it starts ("start").
MESHMARK_SLOW=SECONDS puts operations in their place that pass, and take their time in mode manual.
MESHMARK_FLAG=FILE is made when the trouble begins.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import lax

from meshmark.operations import OPERATIONS
from meshmark.operations.base import Argument, Operation, Plan, Result

SLOW = 8
"""How many slow operations there are, of three cases each on one mesh."""


def abort():
    print("last words of the process", file=sys.stderr, flush=True)
    os.abort()


def segmentation_fault():
    ctypes.string_at(0)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def leaves():
    os._exit(7)


def spin():
    while True:
        pass


def sleep_with_the_gil():
    ctypes.PyDLL(None).sleep(600)


def sleep_without_the_gil():
    ctypes.CDLL(None).sleep(600)


def slow():
    time.sleep(float(os.environ["MESHMARK_SLOW"]))


class Trouble(Operation):
    """x + 1, after the trouble."""

    family = "trouble"
    level = "L0"
    modes = ("auto", "explicit", "manual")

    def plan(self, request):
        mesh = request.mesh
        spec = (mesh.names, None)
        argument = Argument((mesh.size, 4), "float32", spec)
        return Plan((argument,), (Result((mesh.size, 4), "float32", spec),), {}, judge="exact")

    @staticmethod
    def auto(x):
        return x + 1

    explicit = auto

    @staticmethod
    def reference(x):
        return x.astype(np.float32) + np.float32(1)


def make(trouble, name=""):
    def manual(x):
        if "MESHMARK_FLAG" in os.environ:
            Path(os.environ["MESHMARK_FLAG"]).touch()
        trouble()
        return x + 1

    name = name or trouble.__name__
    return type(name, (Trouble,), {"name": name, "manual": staticmethod(manual)})


class Deadlock(Trouble):
    """A collective that only some devices reach."""

    name = "deadlock"
    modes = ("auto", "manual-novma")

    @staticmethod
    def manual(x):
        stuck = lax.cond(lax.axis_index("x") == 0, lambda v: lax.psum(v, ("x", "y")), lambda v: v, x)
        return x + 1 + jnp.float32(0) * stuck


CRASHES = (abort, segmentation_fault, killed, leaves)
HANGS = (spin, sleep_with_the_gil, sleep_without_the_gil)

asked = os.environ.get("MESHMARK_TROUBLE", "")
if "MESHMARK_SLOW" in os.environ:
    classes = [make(slow, f"slow{number}") for number in range(SLOW)]
else:
    classes = [*map(make, CRASHES + HANGS), Deadlock]
for cls in classes:
    if not asked or asked in (cls.name, "start"):
        OPERATIONS[cls.name] = cls()
