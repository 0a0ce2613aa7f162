# SPDX-License-Identifier: Apache-2.0
"""The child process of `meshmark repro`: judges one case on the devices of this machine, and prints the findings.

python -m meshmark.judge.repro.judging CASE DEVICES SEED
"""

from __future__ import annotations

import json
import sys

MARK = "meshmark-judged "
"""Begins the child's line: a plugin may print lines of its own."""


def main(case_id: str, number: int, seed: int) -> None:
    """Judge the case. Print its lines, JAX's release and the devices, and the unit roundoff of factors of products."""
    import jax

    from meshmark.judge.checks import Judge
    from meshmark.judge.precision import factor_roundoff
    from meshmark.operations import cases

    case = cases.find(case_id, number)
    devices = tuple(jax.devices())
    where = f"jax {jax.__version__} on {len(devices)} {devices[0].device_kind} devices"
    if len(devices) < case.mesh.size:
        print(MARK + json.dumps({"where": where, "lines": None}))
        return
    lines = Judge(devices, seed).run(case)
    found = {
        "where": where,
        "lines": [[line.check, line.verdict, line.reason] for line in lines],
        "u_factor": factor_roundoff(case.plan, case.cell.request.dtype),
    }
    print(MARK + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
