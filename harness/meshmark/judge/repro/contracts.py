# SPDX-License-Identifier: Apache-2.0
"""The communication that a case's compiled program must have, in words and as the statements that judge it."""

from __future__ import annotations

import textwrap

from meshmark.core import hlo
from meshmark.judge import communication
from meshmark.judge.repro import printer, text
from meshmark.judge.repro.members import members
from meshmark.judge.repro.sources import Bundle, literal
from meshmark.operations.base import Traffic
from meshmark.operations.cases import Case

KINDS = "all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|ragged-all-to-all|reduce-scatter"
"""The collectives of HLO."""


def words(case: Case) -> str:
    """The communication that the case must have in its mode, in words."""
    plan = case.plan
    if case.mode not in communication.SPELLED:
        if not plan.connected:
            return "none that is needed"
        return f"any that connects the mesh positions {list(map(list, plan.connected))}"
    if plan.traffic is None:
        return "what the transformation makes of it"
    spelled = [f"{t.kind} of {t.nbytes} B per device over {list(map(list, t.groups))}" for t in plan.traffic]
    return ", ".join(spelled) or "none"


def contract(case: Case, bundle: Bundle, reader: str = "kinds") -> printer.Contract | None:
    """The contract of a case, judged by a reader of `Form.reader`; None if there is nothing to judge."""
    if reader == "suite":
        return printer.Contract(words(case), tuple(_strict(case, bundle)))
    code = _kinds(case)
    if reader == "groups":
        code += _groups(case, bundle)
    elif reader == "bytes":
        code += _bytes(case)
    return printer.Contract(words(case), tuple(code)) if code else None


def _kinds(case: Case) -> list[str]:
    """The statements that judge by the kinds of collectives alone."""
    plan = case.plan
    if case.mode not in communication.SPELLED:
        rule = "bool(found)" if plan.connected else ""
    elif plan.traffic is None:
        rule = ""
    else:
        kinds = sorted({t.kind for t in plan.traffic})
        equivalents = communication.EQUIVALENTS | communication.EQUIVALENTS_BY_PLATFORM["tpu"]
        sets = (
            [{kinds[0]}, *({e} for e in equivalents.get(kinds[0], ()))] if len(kinds) == 1 else [set(kinds)]
        )
        spelled = ["{" + ", ".join(f'"{k}"' for k in sorted(s)) + "}" for s in sets]
        rule = f"{{kind for _, kind in found}} in ({', '.join(spelled)})"
        if len(spelled) == 1:
            rule = f"{{kind for _, kind in found}} == {spelled[0]}"
        if not kinds:
            rule = "not found"
    if not rule:
        return []
    return [
        *_told(case),
        f'kinds = "{KINDS}"',
        'found = re.findall(rf" = (.* ({kinds})(?:-start)?\\(.*)", compiled.as_text())',
        'print("compiled:", *[line.partition(", metadata")[0] for line, _ in found] or ["nothing"], sep="\\n  ")',
        f"good &= {rule}",
    ]


def readers(case: Case) -> list[str]:
    """The readers of `Form.reader` that can judge a case, the shortest first."""
    traffic = case.plan.traffic or () if case.mode in communication.SPELLED else ()
    found = ["kinds"]
    if len({t.kind for t in traffic}) == 1:
        found.append("groups")
    one = len(traffic) == 1 and traffic[0].kind == "all-reduce" and case.plan.repeats == 1
    if one and _itemsize(case) >= 2:
        found.append("bytes")
    return [*found, "suite"]


def _itemsize(case: Case) -> int:
    """The bytes of an element of a case's only collective."""
    assert case.plan.traffic is not None
    return case.plan.traffic[0].itemsize or communication.itemsize_of(case)


def _groups(case: Case, bundle: Bundle) -> list[str]:
    """The statements that also judge by the groups of the collectives; they follow those of `_kinds`.

    Collectives of another kind may stand for the spelled ones. Their groups are not judged.
    """
    assert case.plan.traffic is not None
    kind, n = case.plan.traffic[0].kind, case.mesh.size
    pairs = kind == "collective-permute"
    given = {tuple(g) if pairs else tuple(sorted(g)) for t in case.plan.traffic for g in t.groups}
    wanted = sorted(group for group in given if len(set(group)) > 1)
    read = bundle.add(members)
    return [
        f'over = [group for line, kind in found if kind == "{kind}" for group in {read}(line, {n})]',
        *text.call("wanted = sorted", [literal(wanted)]),
        'print("expected groups:", wanted, "compiled groups:", sorted(set(over)), sep="\\n  ")',
        "good &= not over or sorted(set(over)) == wanted",
    ]


def _bytes(case: Case) -> list[str]:
    """The statements that also judge by the bytes of an all-reduce; they follow those of `_kinds`.

    The result of an all-reduce, asynchronous or not, is its payload. A compiler may reduce 16-bit types in 32 bits."""
    assert case.plan.traffic is not None
    [traffic] = case.plan.traffic
    widened = f" or {2 * traffic.nbytes} B in 32 bits" if _itemsize(case) == 2 else ""
    allowed = f"in ({traffic.nbytes}, {2 * traffic.nbytes})" if widened else f"== {traffic.nbytes}"
    return [
        'results = " ".join(line.partition(f" {kind}")[0] for line, kind in found)',
        r'arrays = re.findall(r"[a-z]+(\d+)\w*\[([\d,]*)\]", results)',
        'sent = sum(int(bits) // 8 * math.prod(map(int, filter(None, dims.split(",")))) for bits, dims in arrays)',
        f'print(f"expected {traffic.nbytes} B{widened} per device, compiled {{sent}} B")',
        f"good &= sent {allowed}",
    ]


def _told(case: Case) -> list[str]:
    """The lines of the statement that prints the contract."""
    lines = textwrap.wrap(f"expected communication: {words(case)}", text.WIDTH - 12)
    if len(lines) == 1:
        return [f"print({text.literal(lines[0])})"]
    return ["print(", *(f"    {text.literal(line)}," for line in lines), '    sep="\\n    ",', ")"]


def _strict(case: Case, bundle: Bundle) -> list[str]:
    """The statements that judge as the suite does."""
    plan, n = case.plan, case.mesh.size
    read, wire = bundle.add(hlo.collectives), bundle.add(hlo.wire_bytes)
    lines = [*_told(case), f"found = {read}(compiled.as_text(), {n})"]
    lines.append('print("compiled:", *found, sep="\\n  ")')
    if case.mode in communication.SPELLED:
        judge, traffic = bundle.add(communication.traffic_difference), bundle.add_class(Traffic)
        spelled = ", ".join(
            f"{traffic}({literal(t.kind)}, {t.nbytes}, {literal(t.groups)}, {t.itemsize})"
            for t in plan.traffic or ()
        )
        equivalents, itemsize = literal(dict(communication.EQUIVALENTS)), communication.itemsize_of(case)
        lines.append(f"reason = {judge}(found, [{spelled}], {equivalents}, {itemsize})")
    else:
        judge = bundle.add(communication.missing_connection)
        limit = communication.ceiling(case)
        lines.append(f"sent = sum(map({wire}, found))")
        lines.append(f"reason = {judge}(found, sent, {literal(plan.connected)}, {n}, {limit})")
    return [*lines, 'print(reason or "the communication is as expected")', "good &= not reason"]
