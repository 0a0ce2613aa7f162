# SPDX-License-Identifier: Apache-2.0
"""Differences between results: which elements are wrong, of what kind the wrongness is, and what an exception says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict, cast

import numpy as np


class DifferenceData(TypedDict):
    """A `Difference` as JSON values: what workers answer, and what records keep."""

    mode: str
    kind: str
    what: str
    text: str
    data: dict[str, Any]


@dataclass
class Difference:
    """A deviation of one mode of a program from the plain program.

    kind: "numbers", "refused" (an exception of JAX), "internal" (one of the compiler), "crash", "hang", or "oracles"
    (the plain program differs from NumPy, from a CPU, from its operations run one by one, from its derivative in
    float64 or by differences, or from another release).
    """

    mode: str
    kind: str
    what: str
    """For wrong numbers their kind of wrongness, else the first line of the message without its numbers."""
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> DifferenceData:
        """The difference as JSON values."""
        return cast(DifferenceData, asdict(self))


@dataclass
class Truth:
    """The right results of a program."""

    results: list[np.ndarray]
    largest: float
    """The largest absolute value of all floats in the program; of the finite ones if it has special values."""


EXACT = 2.0**20
"""Programs of integers below this size are exact in float32: a result has at most 16 terms of this size."""


def derive_tolerance(known: Truth, want: np.ndarray, rounded: bool) -> float:
    """The largest absolute error that `want` may have.

    It is 0.0 if all values are integers that the dtype holds. Otherwise it is a share of the largest value in the
    program, because another order of additions, or another algorithm of a dot, may round differently. rounded: whether
    the program has operations that round.
    """
    if want.dtype.kind not in "fcV":
        return 0.0
    small = want.dtype.name in ("bfloat16", "float16")
    exact = not rounded and known.largest < (16 if small else EXACT)
    if exact:
        sizes = np.abs(want.astype(np.float64)) if want.dtype.kind != "c" else np.zeros(1)
        biggest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
        exact = biggest < (256 if small else EXACT)
    if exact:
        return 0.0
    scale = max(known.largest, float(np.abs(want.astype(np.complex128)).max(initial=0.0)), 1.0)
    return scale * (0.1 if small else 2e-4)


def find_difference(known: Truth, found: Sequence[Any], mode: str, rounded: bool) -> Difference | None:
    """The first result that differs from the truth on any device, with its first wrong element; None if none does.

    found: one jax.Array per output, or an object with its shape, dtype and addressable shards."""
    for k, (want, out) in enumerate(zip(known.results, found, strict=True)):
        if out.shape != want.shape or out.dtype != want.dtype:
            return Difference(
                mode, "numbers", "type", f"result {k}: {out.dtype}{out.shape} for {want.dtype}{want.shape}"
            )
        allowed = derive_tolerance(known, want, rounded)
        wrong_anywhere = np.zeros(want.shape, bool)
        first = None
        seen_whole = np.array(want)
        replicas: dict[str, np.ndarray] = {}
        differing_replicas = False
        for shard in out.addressable_shards:
            seen, right = np.asarray(shard.data), want[shard.index]
            if seen.shape != right.shape:
                return Difference(
                    mode, "numbers", "shape", f"result {k}: shard {seen.shape} for {right.shape}"
                )
            wrong = mark_wrong(seen, right, allowed)
            if wrong.any():
                wrong_anywhere[shard.index] |= wrong
                seen_whole[shard.index] = seen
                if first is None:
                    at = tuple(np.argwhere(wrong)[0].tolist())
                    first = (str(shard.device), at, right[at].item(), seen[at].item())
            key = str(shard.index)
            if key in replicas:
                differing_replicas |= bool(mark_wrong(seen, replicas[key], allowed).any())
            replicas.setdefault(key, seen)
        if first is not None:
            device, at, expected, seen_value = first
            text = (
                f"result {k}: {wrong_anywhere.sum()} of {want.size} elements differ, first on {device} at {at}:"
                f" expected {expected}, seen {seen_value}"
            )
            what = describe_wrongness(want, seen_whole, wrong_anywhere, differing_replicas)
            return Difference(
                mode, "numbers", what, text, {"result": k, "share": float(wrong_anywhere.mean())}
            )
    return None


def first_difference(
    found: Sequence[np.ndarray], right: Sequence[np.ndarray], known: Truth, rounded: bool, said: str
) -> str:
    """A description of the first result that differs; "" if none does."""
    for k, (want, seen) in enumerate(zip(right, found, strict=True)):
        text = f"result {k} of {said}"
        if want.shape != seen.shape:
            return text
        wrong = mark_wrong(seen, want, derive_tolerance(known, want, rounded))
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            return f"{text}: {wrong.sum()} of {want.size}, at {at} expected {want[at]}, seen {seen[at]}"
    return ""


def first_wrongness(known: Truth, right: Sequence[np.ndarray]) -> str:
    """The kind of wrongness of the first result that is not the right one, as `describe_wrongness` tells it."""
    for want, seen in zip(right, known.results, strict=True):
        if want.shape != seen.shape:
            return "shape"
        wrong = mark_wrong(seen, want, 0.0)
        if wrong.any():
            return describe_wrongness(want, seen, wrong, False)
    return ""


def mark_wrong(seen: np.ndarray, right: np.ndarray, allowed: float) -> np.ndarray:
    """Which elements are wrong, as a boolean array of their shape. NaN is right where NaN is right. allowed: the
    largest absolute error of floats."""
    wrong = np.asarray(seen != right)
    if right.dtype.kind not in "fcV":
        return wrong
    wrong &= ~(np.isnan(seen) & np.isnan(right))
    if allowed == 0.0:
        return wrong
    wide = np.complex128 if right.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        return wrong & ~(np.abs(seen.astype(wide) - right.astype(wide)) <= allowed)


LOST_NAN = "a NaN is lost"


def describe_wrongness(want: np.ndarray, seen: np.ndarray, wrong: np.ndarray, replicas: bool) -> str:
    """The kind of wrongness of a result: "a NaN is lost", "replicas differ", "factor F", "zeros", "not finite", "moved"
    or "values".

    want, seen: the whole result, right and as seen. wrong: a boolean array of that shape. replicas: whether two devices
    hold different numbers for one part."""
    if want.dtype.kind in "fV" and np.isnan(want[wrong]).all():
        return LOST_NAN
    if replicas:
        return "replicas differ"
    if want.dtype.kind in "b":
        return "values"
    w, s = want[wrong].astype(np.complex128), seen[wrong].astype(np.complex128)
    if len(w) and (w != 0).all():
        ratio = s / w
        if np.allclose(ratio, ratio[0], rtol=1e-3):
            factor = ratio[0].real
            return "zeros" if factor == 0 else f"factor {factor:.3g}"
    if not s.any():
        return "zeros"
    if not np.isfinite(s).all():
        return "not finite"
    if wrong.all() or set(np.round(s, 3).tolist()) <= set(
        np.round(want.astype(np.complex128), 3).ravel().tolist()
    ):
        return (
            "moved"
            if sorted(np.round(seen.astype(np.complex128), 3).ravel().tolist(), key=repr)
            == sorted(np.round(want.astype(np.complex128), 3).ravel().tolist(), key=repr)
            else "values"
        )
    return "values"


INTERNAL = re.compile(
    r"INTERNAL|Internal|RET_CHECK|Check failed|verifier|Verif|Assertion|UNIMPLEMENTED", re.I
)


def make_difference(mode: str, error: BaseException) -> Difference:
    """The difference of an exception: "internal" if the compiler raised it, else "refused"."""
    text = f"{type(error).__name__}: {error}".partition("Suspected Python Code Location")[0].strip()
    kind = "internal" if INTERNAL.search(text) else "refused"
    return Difference(mode, kind, normalize(text), text[:2000])


def normalize(text: str) -> str:
    """The first line of a message without numbers, shapes and instruction names, so that similar messages are equal; at
    most 160 characters."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    line = re.sub(r"0x[0-9a-f]+|%[\w.-]+|\d+", "N", line)
    line = re.sub(r"\[[N,\s]*\]|\([N,\s]*\)|\{[N,\s]*\}", "[]", line)
    return line[:160]
