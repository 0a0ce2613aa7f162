# SPDX-License-Identifier: Apache-2.0
"""The communication that a case's compiled program must have, in words and as the statements that judge it."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping

import jax

from meshmark.judge import communication, theory
from meshmark.judge.repro import members, printer, text
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
    """The contract of a case, judged by a reader of `READERS`; None if there is nothing to judge."""
    code = list(READERS[reader](case, bundle))
    return printer.Contract(words(case), tuple(code)) if code else None


def readers(case: Case) -> list[str]:
    """The names of the readers that can judge a case, the shortest first."""
    bundle = Bundle()
    return [name for name, statements in READERS.items() if any(True for _ in statements(case, bundle))]


def _spelled(case: Case) -> tuple[Traffic, ...] | None:
    """The collectives that the case's mode spells; None if it spells none by itself."""
    return case.plan.traffic if case.mode in communication.SPELLED else None


def _itemsize(case: Case) -> int:
    """The bytes of an element of what a case's collectives send."""
    widths = {t.itemsize for t in case.plan.traffic or ()}
    return max(widths, default=0) or communication.itemsize_of(case)


# Readers ----------------------------------------------------------------------------------------------------


def _found(case: Case, loops: Bundle | None = None) -> Iterator[str]:
    """The statements that find and print the compiled collectives.

    loops: for programs with loops, with each collective as often as it runs. The function that counts is copied into
    this bundle.
    """
    yield from _told(case)
    yield f'kinds = "{KINDS}"'
    find = loops.add(members.executed) if loops else "re.findall"
    yield f'found = {find}(rf" = (.* ({{kinds}})(?:-start)?\\(.*)", compiled.as_text())'
    lines = '[line.partition(", metadata")[0] for line, _ in found]'
    yield f'print("compiled:", *{f"dict.fromkeys({lines})" if loops else lines} or ["nothing"], sep="\\n  ")'


def _kinds(case: Case, bundle: Bundle, loops: bool = False) -> Iterator[str]:
    """Judges by the kinds of collectives alone."""
    plan, traffic = case.plan, _spelled(case)
    if case.mode not in communication.SPELLED:
        rule = "bool(found)" if plan.connected else ""
    elif traffic is None:
        rule = f"{literal(set(plan.kinds))} <= {{kind for _, kind in found}}" if plan.kinds else ""
    elif not traffic:
        rule = "not found"
    else:
        kinds = sorted({t.kind for t in traffic})
        equivalents = communication.EQUIVALENTS | communication.EQUIVALENTS_BY_PLATFORM["tpu"]
        stand_ins = equivalents.get(kinds[0], ()) if len(kinds) == 1 else ()
        sets = [set(kinds), *({e} for e in stand_ins)]
        spelled = ["{" + ", ".join(f'"{k}"' for k in sorted(s)) + "}" for s in sets]
        rule = f"{{kind for _, kind in found}} in ({', '.join(spelled)})"
        if len(spelled) == 1:
            rule = f"{{kind for _, kind in found}} == {spelled[0]}"
    if rule:
        yield from _found(case, bundle if loops else None)
        yield f"good &= {rule}"


def _none(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges whether a global program that needs no data of other devices sends none."""
    if case.mode not in communication.SPELLED and case.operation.complete and not theory.needed_axes(case):
        yield from _found(case)
        yield "good &= not found"


def _host(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges whether the program waits for the host."""
    if not case.operation.calls_host(case.cell.request.variant):
        yield from _told(case)
        yield f"host = r'{theory.HOST.pattern}'"
        yield "waits = [line.strip() for line in compiled.as_text().splitlines() if re.search(host, line)]"
        yield 'print("waits for the host:", *waits or ["never"], sep="\\n  ")'
        yield "good &= not waits"


def _groups(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges by the groups of the collectives too.

    Collectives of another kind may stand for the spelled ones. Their groups are not judged.
    """
    traffic = _spelled(case) or ()
    if len({t.kind for t in traffic}) != 1:
        return
    kind, n = traffic[0].kind, case.mesh.size
    wanted = sorted(set().union(*(_members(t) for t in traffic)))
    read = bundle.add(members.members)
    yield from _kinds(case, bundle)
    yield f'over = [group for line, kind in found if kind == "{kind}" for group in {read}(line, {n})]'
    yield from text.call("wanted = sorted", [literal(wanted)])
    yield r'print(f"expected groups: {wanted}\ncompiled groups: {sorted(set(over))}")'
    yield "good &= not over or sorted(set(over)) == wanted"


def _members(traffic: Traffic) -> set[tuple[int, ...]]:
    """The groups or pairs of spelled collectives, without those of one member."""
    pairs = traffic.kind == "collective-permute"
    return {tuple(g) if pairs else tuple(sorted(g)) for g in traffic.groups if len(set(g)) > 1}


def _connected(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges whether the collectives of a global mode connect the devices that must exchange data."""
    if case.mode in communication.SPELLED or not case.plan.connected:
        return
    yield from _found(case)
    yield f"over = [group for line, _ in found for group in {bundle.add(members.members)}(line, {case.mesh.size})]"
    yield from text.call("wanted = list", [literal(sorted({tuple(c) for c in case.plan.connected}))])
    yield f"apart = [devices for devices in wanted if not {bundle.add(members.connects)}(over, devices)]"
    yield 'print("not connected:", *apart or ["none"])'
    yield "good &= not apart"


def _axes(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges whether the collectives run along the axes that the computation needs, and no others."""
    mesh = case.mesh
    needed = theory.needed_axes(case)
    spared = [i for i, name in enumerate(mesh.names) if name not in needed and mesh.shape[i] > 1]
    if not spared or not case.operation.complete or _spelled(case) is not None:
        return
    yield from _found(case)
    yield f"over = [group for line, _ in found for group in {bundle.add(members.members)}(line, {mesh.size})]"
    yield f"places = [np.array(np.unravel_index(group, {mesh.shape})) for group in over]"
    names = ", ".join(mesh.names[i] for i in spared)
    yield f'print("no data needs to move along {names}")'
    yield f"good &= not any(np.ptp(place[axis]) for place in places for axis in {spared})"


def _limit(case: Case) -> float | None:
    """The most bytes that a device may send; None if there is no such limit."""
    if case.mode not in communication.SPELLED:
        return communication.limit_traffic(case)
    return theory.limit(case, jax.default_backend())


def _bytes(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges by the bytes of the results of one kind of collective.

    Collectives of another kind may stand for the spelled ones. Their bytes are not judged. An asynchronous collective
    counts once, by its done. A compiler may reduce 16-bit types in 32 bits.
    """
    traffic = _spelled(case) or ()
    if len({t.kind for t in traffic}) != 1 or case.plan.repeats != 1 or _itemsize(case) < 2:
        return
    kind = traffic[0].kind
    scattered = kind == "reduce-scatter"
    nbytes = sum(t.nbytes // (max(map(len, t.groups)) if scattered else 1) for t in traffic)
    wider = _itemsize(case) == 2 and kind in ("all-reduce", "reduce-scatter")
    widened = f" or {2 * nbytes} B in 32 bits" if wider else ""
    allowed = f"in ({nbytes}, {2 * nbytes})" if widened else f"== {nbytes}"
    yield from _kinds(case, bundle)
    yield from _once()
    yield f'results = " ".join(re.findall(r" = (.*?) {kind}(?:-done)?\\(", compiled.as_text()))'
    yield r'arrays = re.findall(r"[a-z]+(\d+)\w*\[([\d,]*)\]", results)'
    yield 'sent = sum(int(bits) // 8 * math.prod(map(int, filter(None, dims.split(",")))) for bits, dims in arrays)'
    yield f'print(f"expected {nbytes} B{widened} per device, compiled {{sent}} B")'
    yield f"good &= not results or sent {allowed}"


def _payloads(case: Case, bundle: Bundle, loops: bool = False) -> Iterator[str]:
    """Judges by the groups and the bytes of all spelled collectives together.

    A kind that stands for another one has the same payload. So one kind is not told from its stand-in here.
    """
    traffic = _spelled(case) or ()
    kinds = {t.kind for t in traffic}
    several = len(kinds) > 1
    if not traffic or (several and kinds & set(communication.EQUIVALENTS)):
        return
    wanted: dict[tuple[object, ...], int] = {}
    for t in traffic:
        if not (groups := sorted(_members(t))):
            continue  # of one member: it sends nothing, and a compiler may drop it
        key = (*([t.kind] if several else []), *groups)
        wanted[key] = wanted.get(key, 0) + t.nbytes
    n, size = case.mesh.size, _itemsize(case)
    over, counted = bundle.add(members.members), bundle.add(members.payload)
    yield from _kinds(case, bundle, loops)
    yield from _once(loops)
    yield "wanted = {"
    yield from (f"    {literal(key)}: {nbytes}," for key, nbytes in wanted.items())
    yield "}"
    yield "sent = {}"
    yield "for line, kind in found:"
    yield f"    if over := sorted({over}(line, {n})):"
    yield f"        key = ({'kind, ' if several else ''}*over,)"
    yield f"        sent[key] = sent.get(key, 0) + {counted}(line, kind, {n}, {size})"
    yield r'print(f"expected bytes: {wanted}\ncompiled bytes: {sent}")'
    yield "good &= sent == wanted"


def _total(case: Case, bundle: Bundle, loops: bool = False) -> Iterator[str]:
    """Judges by the bytes that a device sends in all."""
    limit = _limit(case)
    if limit is None:
        return
    yield from _found(case, bundle if loops else None)
    yield from _once(loops)
    yield f"sent = sum({bundle.add(members.wire)}(line, kind, {case.mesh.size}) for line, kind in found)"
    yield f'print(f"a device sends {{sent:.0f}} B, and may send {limit:.0f} B")'
    yield f"good &= sent <= {limit}"


def _operations(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges by the operations of a device, as the compiler counts them."""
    if case.operation.complete:
        most = theory.most_operations(case)
        yield from _told(case)
        yield 'operations = (compiled.cost_analysis() or {}).get("flops", 0)'
        yield f'print(f"a device computes {{operations:.0f}} operations, and may compute {most}")'
        yield f"good &= operations <= {most}"


def _memory(case: Case, bundle: Bundle) -> Iterator[str]:
    """Judges by the temporary memory of a device. It refuses programs with custom calls, whose libraries ask for
    memory of their own."""
    if case.operation.complete:
        most = theory.most_temporaries(case)
        yield from _told(case)
        yield 'assert "custom_call_target" not in compiled.as_text(), "a library"'
        yield "held = compiled.memory_analysis().temp_size_in_bytes"
        yield f'print(f"a device holds {{held}} B of temporaries, and may hold {most} B")'
        yield f"good &= held <= {most}"


def _once(loops: bool = False) -> Iterator[str]:
    """The statement that refuses a program in which a line of text is not one run of a collective: one with a loop,
    unless the turns are counted, or with a chain of fusions (TPU), which all print the same collective."""
    refused = ["chain_id="] if loops else [" while(", "chain_id="]
    yield f'assert not re.search(r"{"|".join(map(re.escape, refused))}", compiled.as_text()), "loop or chain"'


READERS: Mapping[str, Callable[[Case, Bundle], Iterator[str]]] = {
    "kinds": _kinds,
    "none": _none,
    "host": _host,
    "groups": _groups,
    "bytes": _bytes,
    "connected": _connected,
    "axes": _axes,
    "payloads": _payloads,
    "total": _total,
    "operations": _operations,
    "memory": _memory,
    "payloads of loops": functools.partial(_payloads, loops=True),
    "total of loops": functools.partial(_total, loops=True),
}
"""The readers of compiled text, the shortest first, and last those of programs with loops. Each yields the statements
that judge by what it reads; none if it can't judge the case."""


def _told(case: Case) -> list[str]:
    """The lines of the statement that prints the contract."""
    lines = textwrap.wrap(f"expected communication: {words(case)}", text.WIDTH - 12)
    if len(lines) == 1:
        return [f"print({text.literal(lines[0])})"]
    return ["print(", *(f"    {text.literal(line)}," for line in lines), '    sep="\\n    ",', ")"]
