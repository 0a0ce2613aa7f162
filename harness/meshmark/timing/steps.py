# SPDX-License-Identifier: Apache-2.0
"""Computes figures of the decoder's steps for the choice of a mode: tokens/s, MFU, bytes by collective, memory.

tokens/s: the tokens of one call over its time. A forward pass and a training step take all tokens of the batch, a
decode step one token per sequence. MFU (model flops utilization, A. Chowdhery et al., "PaLM",
https://arxiv.org/abs/2204.02311, appendix B): the flops of the model over the peak of the devices in the same time,
without recomputation and without what a pipeline's stages compute before their first micro-batch and
after their last. It is None if no peak of arithmetic is known, published or measured by the same run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshmark.core.errors import BadInput
from meshmark.core.text import number
from meshmark.operations import cases
from meshmark.operations.base import Plan
from meshmark.records.definition import TimingLine
from meshmark.records.reading import Records
from meshmark.timing import figures
from meshmark.timing.rooflines import Rooflines

STEPS = ("decoder", "decoder_training", "staged_decoder", "staged_decoder_training", "decode_step")
"""The operations that are steps of the decoder: forward, training, both as a pipeline, decode. Their first argument
holds the tokens."""


def step_rows(records: Records) -> Iterator[dict[str, Any]]:
    """One row per case and cadence of the decoder's steps: step, where, mode, cadence, seconds, spread (the relative
    half width of the time's interval; inf without one), low_s and high_s (its ends), tokens_per_s, mfu and the name of
    its peak, sent (bytes of a device's payload by collective), memory (bytes of a device's arguments, results and
    temporaries).

    A case whose values were not verified, or which the table does not have, is left out."""
    of = Rooflines.of(records.runs[0]["facts"], records.ceilings)
    found: dict[tuple[str, str], list[TimingLine]] = {}
    for record in records.timings:
        if record["operation"] in STEPS and record["verdict"] == "pass" and record.get("verified") is True:
            found.setdefault((record["case"], record["cadence"]), []).append(record)
    for (case, cadence), own in found.items():
        time, first = figures.pooled(own), own[0]
        plan = _plan(case, int(first.get("devices") or 1)) if time else None
        if time is None or plan is None:
            continue
        tokens = math.prod(plan.arguments[0].shape)
        flops = (first.get("cost") or {}).get("flops", 0) - plan.cost.idle
        peak = of.flops(first["dtype"], str(first.get("precision", "")), int(first.get("devices") or 1))
        yield {
            "step": first["operation"],
            "where": f"{first['variant']} {first['mesh']} {first['dtype']} {case.split('/')[-1]}",
            "mode": first["mode"],
            "cadence": cadence,
            "seconds": time.value,
            "tokens_per_s": tokens / time.value,
            "spread": time.relative,
            "low_s": time.low,
            "high_s": time.high,
            "mfu": flops / peak[0] / time.value if flops and peak else None,
            "peak": peak[1] if peak else "",
            "sent": sent(first.get("communication") or ()),
            "memory": _memory(first),
        }


def _rate_of(rate: float, relative: float) -> str:
    """Tokens/s as text, with the relative half width of their time, if it has an interval."""
    return f"{rate:,.0f}{_width(relative)}"


def _width(relative: float) -> str:
    return f" ±{100 * relative:.0f}%" if math.isfinite(relative) else ""


def _share_of(row: Mapping[str, Any]) -> str:
    """MFU in percent as text, with the ends that follow from the time's interval."""
    percents = 100 * row["mfu"]
    if not math.isfinite(row["spread"]):
        return f"{percents:.2g} %"
    low, high = (percents * row["seconds"] / row[end] for end in ("high_s", "low_s"))
    return f"{percents:.2g} % ({low:.2g}-{high:.2g})"


def _plan(case: str, devices: int) -> Plan | None:
    """The plan of a case; None for a case that this table does not have."""
    try:
        return cases.find(case, devices).plan
    except (BadInput, ValueError, IndexError):
        return None


def sent(communication: Sequence[Any]) -> dict[str, float]:
    """Bytes of a device's payload by kind of collective, in one call; an unknown number of trips counts as one."""
    found: dict[str, float] = {}
    for one in communication:
        trips = number(one.get("trips"))
        nbytes = number(one.get("bytes")) * (trips if math.isfinite(trips) else 1)
        if math.isfinite(nbytes):
            found[str(one.get("kind"))] = found.get(str(one.get("kind")), 0.0) + nbytes
    return dict(sorted(found.items()))


def _memory(record: TimingLine) -> float | None:
    parts = [number(record.get(name)) for name in ("argument_bytes", "output_bytes", "temp_bytes")]
    return sum(parts) if all(map(math.isfinite, parts)) else None


def cells(records: Records) -> list[list[str]]:
    """The rows as text: step, where, mode, cadence, tokens/s, MFU, payload by collective, memory."""
    return [
        [
            row["step"],
            row["where"],
            row["mode"],
            row["cadence"],
            _rate_of(row["tokens_per_s"], row["spread"]),
            "-" if row["mfu"] is None else _share_of(row),
            ", ".join(f"{kind} {nbytes:,.0f}" for kind, nbytes in row["sent"].items()) or "none",
            "-" if row["memory"] is None else f"{row['memory']:,.0f}",
        ]
        for row in step_rows(records)
    ]


HEADER = ("step", "of", "mode", "cadence", "tokens/s", "MFU", "payload per device, B", "memory, B")
