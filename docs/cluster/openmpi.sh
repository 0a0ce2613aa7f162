#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Meshmark under Open MPI, from a checkout that every host sees:
#
#   docs/cluster/openmpi.sh -n 2                                            # two ranks on this machine
#   docs/cluster/openmpi.sh --hostfile hosts -n 16 -- --level L4 -x         # mpirun's options -- pytest's and the suite's
#
# JAX finds the ranks from Open MPI's variables, up to version 4; from version 5 on it asks mpi4py, which must then be
# installed (pip install mpi4py). On GPUs it takes one GPU a rank: start as many ranks a host as it has GPUs.
#
# MESHMARK_PYTHON   the interpreter, with JAX, pytest and pytest-xdist (default: python)
# MESHMARK_RECORD   the record file (default: meshmark.jsonl); a run that was ended early is gone on with

set -u
cd "$(dirname "$0")/../.." || exit 2
python=${MESHMARK_PYTHON:-python}
record=${MESHMARK_RECORD:-meshmark.jsonl}

options=()
while (($#)); do
    if [[ $1 == -- ]]; then shift; break; fi
    options+=("$1")
    shift
done

# Unbound: with one or two ranks mpirun would bind each to one core, and XLA has a thread for each core.
options=(--bind-to none "${options[@]}")
# mpirun refuses root unless told; in a container there is often nobody else.
if ((EUID == 0)); then options+=(--allow-run-as-root); fi
# The variables that choose backend, devices and flags go to other hosts only when named.
for name in $(compgen -e); do
    case $name in JAX_* | XLA_* | NCCL_* | MESHMARK_*) options+=(-x "$name") ;; esac
done

# A run that a killed rank ended has left the files of its ranks, and none for all.
keep=(--record "$record")
if [[ ! -e $record ]] && compgen -G "$record.rank*" >/dev/null; then keep=(--resume "$record"); fi
exec mpirun "${options[@]}" "$python" -m pytest conformance --distributed "${keep[@]}" "$@"
