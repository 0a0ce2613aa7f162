# SPDX-License-Identifier: Apache-2.0
"""Operations that pass, crash or hang.

MESHMARK_TROUBLE=NAME,... keeps some of them, or makes every worker fail at its start ("start").
MESHMARK_PAUSE=SECONDS replaces them with operations that pass, and take this time in mode manual.
MESHMARK_FLAG=FILE is a file that is made when the trouble begins.
"""

import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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
    time.sleep(float(os.environ["MESHMARK_PAUSE"]))


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


# What is told in a way that gets lost ------------------------------------------------------------------------


class Unspeakable(Exception):
    """An exception whose text can't be had."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class UnspeakableAndGone(Exception):
    """An exception whose text ends the process."""

    def __str__(self):
        raise SystemExit(0)

    __repr__ = __str__


def surrogate():
    raise RuntimeError("a lone surrogate \udcff")


def nul():
    raise RuntimeError("a NUL \0 and an escape \x1b[2J\x1b]0;title\x07")


def long_line():
    raise RuntimeError("x" * (1 << 24))


def unspeakable():
    raise Unspeakable


def unspeakable_and_gone():
    raise UnspeakableAndGone


def unspeakable_warning():
    logging.getLogger("trouble").warning("a log line with a lone surrogate \udcff")
    warnings.warn("a warning with a lone surrogate \udcff", UserWarning, stacklevel=1)
    raise RuntimeError("and an error")


def system_exit():
    raise SystemExit(0)


def keyboard_interrupt():
    raise KeyboardInterrupt


def generator_exit():
    raise GeneratorExit


def skips():
    pytest.skip("not today")


def expects_failure():
    pytest.xfail("as ever")


def exits_pytest():
    pytest.exit("enough", returncode=0)


def recursion():
    recursion()


def memory():
    raise MemoryError


def much_memory():
    np.zeros(1 << 60)


# What ends the process, or what watches it -------------------------------------------------------------------


def leaves_well():
    os._exit(0)


def becomes_another_program():
    os.execv("/bin/true", ["true"])


def forks_and_goes_on():
    os.fork()


def forks_and_dies():
    """The child holds the pipes of its dead parent."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)


def forks_and_passes():
    """The child of a child outlives neither."""
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        os._exit(0)
    os.wait()


def closes_every_file():
    os.closerange(0, 4096)


def cancels_the_timer():
    faulthandler.cancel_dump_traceback_later()
    time.sleep(600)


def blocks_every_signal():
    faulthandler.cancel_dump_traceback_later()
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    time.sleep(600)


def stops():
    os.kill(os.getpid(), signal.SIGSTOP)


def interrupted():
    os.kill(os.getpid(), signal.SIGINT)


def terminated():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def dies_after_its_verdict():
    threading.Timer(1.0, lambda: os._exit(0)).start()


def never_ends():
    """A thread that the interpreter waits for at its end."""
    threading.Thread(target=lambda: time.sleep(600)).start()


def blinds_the_judge():
    """It is right itself; what is judged behind it in the same process is found equal to anything."""
    np.array_equal = lambda *arguments, **options: True


def hides_its_shards():
    with jax.ensure_compile_time_eval():
        real = type(jnp.zeros(1))
    real.addressable_shards = property(lambda self: [])


LOST = (
    *(surrogate, nul, long_line, unspeakable, unspeakable_and_gone, unspeakable_warning, system_exit),
    *(
        keyboard_interrupt,
        generator_exit,
        skips,
        expects_failure,
        exits_pytest,
        recursion,
        memory,
        much_memory,
    ),
    *(leaves_well, becomes_another_program, forks_and_goes_on, forks_and_dies, forks_and_passes),
    *(closes_every_file, cancels_the_timer, blocks_every_signal, stops, interrupted, terminated),
    *(dies_after_its_verdict, never_ends, hides_its_shards, blinds_the_judge),
)
"""Ways to lose a verdict on its way; only where MESHMARK_TROUBLE names them."""


def compiles_in_turn():
    """Three programs of two seconds each; only where MESHMARK_TROUBLE names it."""
    for number in range(3):
        time.sleep(2)
        jax.jit(lambda x, number=number: x + number).lower(1.0).compile()


CRASHES = (abort, segmentation_fault, killed, leaves)
HANGS = (spin, sleep_with_the_gil, sleep_without_the_gil)

asked = tuple(filter(None, os.environ.get("MESHMARK_TROUBLE", "").split(",")))
if "MESHMARK_PAUSE" in os.environ:
    classes = [make(slow, f"slow{number}") for number in range(SLOW)]
else:
    classes = [*map(make, CRASHES + HANGS), Deadlock]
    classes += [make(one) for one in (*LOST, compiles_in_turn) if one.__name__ in asked]
for cls in classes:
    if not asked or cls.name in asked or "start" in asked:
        OPERATIONS[cls.name] = cls()
