"""Operations that pass, crash or hang; `when` says in which mode, so that a cell holds both."""

import ctypes
import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from harness.operations import OPERATIONS
from harness.operations.base import Argument, Operation, Plan, Result


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


class Trouble(Operation):
    """x + 1, after the trouble."""

    family = "trouble"
    level = "L0"
    modes = ("auto", "explicit", "manual")
    trouble = staticmethod(lambda: None)

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


def make(trouble):
    def manual(x):
        trouble()
        return x + 1

    return type(trouble.__name__, (Trouble,), {"name": trouble.__name__, "manual": staticmethod(manual)})


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

for cls in (*map(make, CRASHES + HANGS), Deadlock):
    if os.environ.get("MESHMARK_TROUBLE", cls.name) == cls.name:
        OPERATIONS[cls.name] = cls()

if os.environ.get("MESHMARK_SLOW"):  # many cases that take their time, to be interrupted

    def slow(seconds=float(os.environ["MESHMARK_SLOW"])):
        time.sleep(seconds)

    OPERATIONS.clear()
    for number in range(12):
        OPERATIONS[f"slow{number}"] = type(f"slow{number}", (make(slow),), {"name": f"slow{number}"})()

jax  # the import is part of what a worker pays
