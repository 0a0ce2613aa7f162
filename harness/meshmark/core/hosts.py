# SPDX-License-Identifier: Apache-2.0
"""By how much the references and bounds of two hosts may differ, whose CPUs add in another order."""

from __future__ import annotations

from meshmark.core import bounds


def host_error(u: float) -> float:
    """The most that the float64 references of two hosts differ, as a share of the bound.

    A bound holds for every implementation that rounds to `u`, in any order of summation. A host is one that rounds to
    2**-53, so its own error is at most the bound times 2**-53 / u. Two hosts differ by at most twice that: their CPUs
    add in another order, and their libraries have other elementary functions.

    u: the finest unit roundoff of the implementation, which is that of its accumulator.
    """
    return 2.0 * 2.0**-53 / u


def host_share(u: float) -> float:
    """The most that the bounds of two hosts differ, as a share of the bound; `u` as for `host_error`.

    The rules of `bounds` compute bounds in float64. They add and multiply magnitudes, which costs a few roundings, but
    `bounds._contract` takes the difference of two sums of n magnitudes: what the operands' errors add. In float64 this
    difference is as small as the roundings of the sums, which are up to n each. So two hosts differ by up to 4 n
    roundings. The same rule adds (n + 8) HOST to the bound, which is 8 (n + 8) roundings. So the difference is less
    than half of that part of a bound that comes from HOST, in which each operation has u and HOST.
    """
    return 0.5 * bounds.HOST / (u + bounds.HOST)
