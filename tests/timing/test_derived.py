# SPDX-License-Identifier: Apache-2.0
"""Figures of several timings have intervals over processes: fits, dispatch, efficiency."""

import math

import numpy as np
import pytest

from meshmark.timing import derived, timing_tables
from meshmark.timing.cells import by_cell

SIZES = {"4KiB": 4096, "64KiB": 65536, "1MiB": 2**20}
ALPHA, PACE = 1e-4, 1e-9
"""Seconds, and seconds per byte."""


def timing(case, process, seconds, cadence="stream", **cost):
    operation, variant, mode, mesh, dtype, _ = case.split("/")
    return {
        "case": case, "operation": operation, "variant": variant, "mode": mode, "mesh": mesh, "dtype": dtype,
        "cadence": cadence, "process": process, "samples_s": [seconds] * 9, "cost": cost, "devices": 8,
    }  # fmt: skip


def sweep(factors, cadence="stream", extra=0.0):
    """A psum at three sizes, in a process for each factor, by which that process is slower."""
    return [
        timing(
            f"psum/axes=x/manual/8/float32/{label}",
            p,
            f * (ALPHA + extra + s * PACE),
            cadence,
            nbytes=s,
            factor=1.75,
        )
        for p, f in enumerate(factors)
        for label, s in SIZES.items()
    ]


def test_a_fit_is_made_in_each_process():
    (fit,) = derived.fits(by_cell(sweep([1.0, 1.1, 0.9, 1.2, 1.0, 0.8])))
    assert (fit.cell, fit.mode, fit.points) == ("psum/axes=x/*/8/float32", "manual", 3)
    assert fit.alpha.value == pytest.approx(ALPHA) and fit.beta.value == pytest.approx(1 / PACE)
    assert (fit.alpha.low, fit.alpha.high) == pytest.approx((0.8 * ALPHA, 1.2 * ALPHA))
    assert (fit.beta.low, fit.beta.high) == pytest.approx((1 / PACE / 1.2, 1 / PACE / 0.8))


def test_five_processes_give_a_fit_without_an_interval():
    (fit,) = derived.fits(by_cell(sweep([1.0, 1.1, 0.9, 1.2, 1.0])))
    assert (
        fit.alpha.value == pytest.approx(ALPHA) and math.isinf(fit.alpha.high) and math.isinf(fit.beta.high)
    )
    (row,) = timing_tables._fits(by_cell(sweep([1.0] * 5)))
    assert row[4:6] == ["100 us", "1.00 GB/s"]
    (row,) = timing_tables._fits(by_cell(sweep([1.0, 1.1, 0.9, 1.2, 1.0, 0.8])))
    assert row[4:6] == ["100 us (80 us-120 us)", "1.00 GB/s (0.83 GB/s-1.25 GB/s)"]


def test_sizes_of_different_processes_are_one_fit_without_an_interval():
    timed = [r for r in sweep([1.0] * 9) if r["process"] % 3 == list(SIZES).index(r["case"].split("/")[-1])]
    (fit,) = derived.fits(by_cell(timed))
    assert fit.alpha.value == pytest.approx(ALPHA) and math.isinf(fit.alpha.low)


def test_a_time_that_does_not_grow_has_no_upper_end():
    timed = [r | {"samples_s": [1e-4 * (1 + 0.01 * r["process"])] * 9} for r in sweep([1.0] * 6)]
    (fit,) = derived.fits(by_cell(timed))
    assert fit.beta.value == fit.beta.high == math.inf and fit.beta.low == math.inf
    assert timing_tables._fits(by_cell(timed)).__next__()[5] == "no growth"


def test_intervals_hold_as_often_as_they_say():
    """Processes that are 10 percent apart: in at least 93 of 100 runs the interval of alpha holds the truth."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        (fit,) = derived.fits(by_cell(sweep(np.exp(rng.normal(0, 0.1, 6)))))
        held += fit.alpha.low <= ALPHA <= fit.alpha.high
    assert held >= 0.93 * 200


def test_dispatch_is_of_processes_that_timed_both():
    factors = [1.0, 1.1, 0.9, 1.2, 1.0, 0.8]
    cells = by_cell(sweep(factors) + sweep([*factors, 50.0], "isolated", extra=2e-4))
    for found in (*derived.dispatch(cells).values(), derived.usual_dispatch(cells)):
        assert found.value == pytest.approx(2e-4)
        assert (found.low, found.high) == pytest.approx((1.6e-4, 2.4e-4))
    assert len(derived.dispatch(cells)) == 3
    assert derived.usual_dispatch(by_cell(sweep(factors))) is None


def test_dispatch_that_noise_hides_is_told():
    factors = [1.0, 1.1, 0.9, 1.2, 1.0, 0.8]
    positive, negative = (
        timing_tables._dispatch(
            derived.usual_dispatch(
                by_cell(sweep(factors, extra=of_stream) + sweep(factors, "isolated", of_call))
            ),
            3,
        )
        for of_stream, of_call in ((0.0, 2e-4), (2e-4, 0.0))
    )
    assert positive == "dispatch (isolated minus stream), median of 3 cases: 200 us (160 us-240 us)"
    assert negative.endswith("cases: not resolved, since the streams took 200 us longer")


def test_efficiency_is_of_each_process():
    """All processes slow down alike on all meshes: their times are 50 percent apart, and their efficiencies agree."""
    factors = [1.0, 1.2, 0.8, 1.5, 1.1, 0.9]
    timed = [
        timing(f"matmul/rows=x,check=exact/manual/{n}/float32/n64", p, f * t, flops=1000)
        for p, f in enumerate(factors)
        for n, t in ((1, 8.0), (2, 4.4), (4, 4.0))
    ]
    (series,) = derived.scaling(by_cell(timed))
    (_, _, one), (_, _, two), (_, _, four) = series["points"]
    assert (one.value, one.low, one.high) == (1, 1, 1)
    assert (two.value, two.low, two.high) == pytest.approx((8 / 8.8,) * 3)
    assert four.value == pytest.approx(0.5)
    strange = [timing("matmul/rows=x,check=exact/manual/L9/float32/n64", 0, 1.0, flops=1000)]
    assert len(derived.scaling(by_cell(timed + strange))) == 1, "a file may name anything as its mesh"
    (series,) = derived.scaling(by_cell([r for r in timed if r["process"] < 3]))
    assert math.isinf(series["points"][1][2].high)
