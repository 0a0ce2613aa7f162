# SPDX-License-Identifier: Apache-2.0
"""The timing child with the operations that make trouble: `python -m tests.trouble.timer`.

MESHMARK_TROUBLE also names the operations of this module: `later` dies after a few calls, while it is timed; `wrong`
gives wrong values.
"""

import os
import signal
import sys

import jax
import numpy as np

from meshmark.operations import OPERATIONS
from meshmark.operations.base import Argument, Operation, Plan, Result
from meshmark.timing.timer import main
from tests.trouble import operations


class Hosted(Operation):
    """Puts an array on the devices."""

    family = "trouble"
    level = "L0"
    modes = ("host",)
    calls = 0

    def plan(self, request):
        spec = (request.mesh.names, None)
        argument = Argument((request.mesh.size, 4), "float32", spec)
        return Plan((argument,), (Result(argument.shape, "float32", spec),), {}, judge="bits")

    @staticmethod
    def reference(x):
        return x


def put(mesh, x):
    return jax.device_put(x, jax.NamedSharding(mesh, jax.P(mesh.axis_names, None)))


def dies(mesh, x):
    Hosted.calls += 1
    if Hosted.calls > 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return put(mesh, x)


HOSTED = {
    "later": dies,
    "wrong": lambda mesh, x: put(mesh, x + np.float32(1)),
    "fine": put,
}
OPERATIONS |= {
    name: type(name, (Hosted,), {"name": name, "host": staticmethod(f)})() for name, f in HOSTED.items()
}
TROUBLES = [*HOSTED, *(cls.name for cls in operations.classes)]

if __name__ == "__main__":
    sys.exit(main())
