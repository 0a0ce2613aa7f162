# SPDX-License-Identifier: Apache-2.0
"""The same collectives across processes of one machine by JAX, torch.distributed and MPI, timed in turns.

    python -m benchmarks.others --record FILE [--plot FILE] [--page FILE]
    python -m benchmarks.others --table FILE          tables and plot again, from records

docs/others.md says what is compared and how. Nothing here is imported by a benchmark of asv, and importing a module of
this package imports neither JAX nor torch nor MPI: asv imports every module below benchmarks/ to list what it can time.

    operations   sizes, values and their NumPy answers     (plain arithmetic)
    rank         what one process of a contestant does when it is told to
    jax_gloo, torch_gloo, mpi                               the contestants, one module each
    contestants  their names, and how their processes are started
    groups       starts the processes of one contestant, talks to them, ends them
    rounds       the interleaved run, and its records
    tables       figures, Markdown and plot of records
"""
