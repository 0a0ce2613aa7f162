# SPDX-License-Identifier: Apache-2.0
"""Settings that XLA's MPI collectives need in a JAX process: `import tests.cluster.over_mpi`, or pytest's `-p` with it.

Seen with JAX 0.10.2, 0.11.2 and 0.12.0.1 over Open MPI 4.1.4. Only the thread that initialized MPI may request
communicators. JAX's CPU backend runs a larger program in this thread only if its dispatch is synchronous, and never if
a process has several devices (openxla/xla#16430). JAX also frees the communicators after it has ended MPI. MPI then
aborts the process, so a process that has done all its work ends with exit code 1.
"""

from __future__ import annotations

import atexit
import os
import sys

import jax

NEEDED = (
    "MPI as JAX's transport needs MPIwrapper, which no package holds: MPITRAMPOLINE_LIB names its library"
)

CODE = [1]
"""The exit code of this process, once it is known."""


def variables() -> dict[str, str]:
    """The variables that make MPI the transport, where MPITRAMPOLINE_LIB says how; else {}."""
    library = os.environ.get("MPITRAMPOLINE_LIB", "")
    return {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi", "MPITRAMPOLINE_LIB": library} if library else {}


def _leave() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(CODE[0])


def pytest_sessionfinish(session, exitstatus) -> None:
    """Keep pytest's exit code."""
    CODE[0] = int(session.exitstatus)


if jax.config.jax_cpu_collectives_implementation == "mpi":
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    # JAX ends MPI in a function that it registers when its backend starts. What was registered before that runs after
    # it, and before the destructors which free the communicators.
    atexit.register(_leave)
