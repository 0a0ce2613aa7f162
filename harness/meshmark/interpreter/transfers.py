# SPDX-License-Identifier: Apache-2.0
"""Sends and receives: to and from the host, and between devices.

A program that uses the host's answer is refused, because the text does not have the answer. Between devices, XLA
makes a send and a recv of a collective-permute in a loop. They meet on a channel, in the order of the program. A device
to which nobody sends receives zeros (openxla/xla, recv_thunk.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from meshmark.core.hlo import pairs_of_send
from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import AnyShape, Refused, TupleShape
from meshmark.interpreter.agreement import check_equal_types, to_host
from meshmark.interpreter.collectives import pairs_of, permuted
from meshmark.interpreter.control import fresh
from meshmark.interpreter.faults import Fault, Hang
from meshmark.interpreter.meanings import means
from meshmark.interpreter.values import AnyValue, Pending, Value, array

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_SOME_TURNS = "_xla_send_recv_validation"
"""The frontend attribute of transfers that happen in some turns of a loop only."""


@means("send", attributes=("is_host_transfer",))
def _send(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The result is a tuple of the data, a context and a token."""
    if not to_host(instruction):
        channel, value = _channel(evaluator, instruction), array(operands[0], instruction.name)
        if instruction.name in evaluator.delivered_early:
            evaluator.delivered_early.remove(instruction.name)
        else:
            evaluator.sends.setdefault(channel, []).append((instruction, value))
    return fresh(instruction.shape)


@means("recv", attributes=("is_host_transfer",))
def _recv(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The result is a tuple of the data, a context and a token."""
    started = fresh(instruction.shape)
    if to_host(instruction):
        return started
    evaluator.receives.setdefault(_channel(evaluator, instruction), []).append(instruction)
    if not isinstance(started, tuple):
        raise Refused(f"recv of type {instruction.shape}")
    return (Pending(started[0]), *started[1:])


@means("send-done", attributes=("is_host_transfer",))
def _sent(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return ()


@means("recv-done", attributes=("is_host_transfer",))
def _received(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The result is a tuple of the data and a token. Refused if anything of the host's answer but the token is used."""
    if not isinstance(instruction.shape, TupleShape):
        raise Refused(f"recv-done of type {instruction.shape}")
    if not to_host(instruction):
        return _delivered(evaluator, instruction, operands[0])
    users = [i for i in evaluator.computation_now.instructions if instruction.name in i.operands]
    tokens = all(i.opcode == "get-tuple-element" and i.attributes["index"] == "1" for i in users)
    if not tokens or instruction is evaluator.computation_now.root:
        raise Refused("what the host answers")
    return fresh(instruction.shape)


# Between devices ---------------------------------------------------------------------------------------------


def _channel(evaluator: Evaluator, instruction: Instruction) -> str:
    """The channel of a transfer between devices, in which all devices must take part."""
    if "channel_id" not in instruction.attributes:
        raise Refused(f"{instruction.opcode} between devices without channel_id")
    if evaluator.devices != evaluator.module.num_devices:
        raise Refused(f"{instruction.opcode} between devices where some of them do not reach it")
    return instruction.attributes["channel_id"]


def _delivered(evaluator: Evaluator, done: Instruction, started: AnyValue) -> AnyValue:
    """What a recv has received: the oldest send on its channel, or a later one for which it waits."""
    channel = _channel(evaluator, done)
    if not isinstance(started, tuple) or not isinstance(started[0], Pending):
        raise Fault(f"{done.name} awaits what is no recv")
    sends, receives = evaluator.sends.get(channel), evaluator.receives.get(channel)
    if not receives:
        raise Hang(f"{done.name} awaits a recv on another channel than {channel}")
    recv = receives.pop(0)
    send, value = sends.pop(0) if sends else _sent_later(evaluator, done, channel)
    check_equal_types(f"what {send.name} sends", _data(send), _data(recv))
    pairs = _pairs(evaluator, send)
    if _pairs(evaluator, recv) != pairs:
        raise Hang(f"{send.name} and {recv.name} name other pairs of devices")
    return permuted(evaluator, send.name, [value], pairs)[0], ()


def _sent_later(evaluator: Evaluator, done: Instruction, channel: str) -> tuple[Instruction, Value]:
    """The next send on the channel, and its value, where the text has it after the done of its recv.

    Devices to which nobody sends go on, so that those after them receive one after the other. Hang if each device waits
    for another, if there is no send, or if it needs what is received."""
    following = iter(evaluator.computation_now.instructions)
    while next(following) is not done:
        pass
    for instruction in following:
        if instruction.opcode == "send" and instruction.attributes.get("channel_id") == channel:
            pairs = dict(_pairs(evaluator, instruction))
            if any(_returns(pairs, device) for device in pairs):
                raise Hang(f"{done.name} waits for {instruction.name}, which waits for it")
            if not evaluator.computed(instruction.operands[0]):
                raise Refused(f"{instruction.name} of what is computed after {done.name}")
            evaluator.delivered_early.add(instruction.name)
            return instruction, array(evaluator.value(instruction.operands[0]), instruction.name)
    raise Hang(f"{done.name} waits for a send on channel {channel}, and there is none")


def _returns(pairs: Mapping[int, int], device: int) -> bool:
    """Whether a device sends to itself, over others or directly."""
    now = device
    for _ in pairs:
        if now not in pairs:
            return False
        now = pairs[now]
        if now == device:
            return True
    return False


def _data(instruction: Instruction) -> AnyShape:
    """The type of what is sent or received."""
    if not isinstance(instruction.shape, TupleShape):
        raise Refused(f"{instruction.opcode} of type {instruction.shape}")
    return instruction.shape.parts[0]


def _pairs(evaluator: Evaluator, transfer: Instruction) -> tuple[tuple[int, int], ...]:
    if not pairs_of_send(transfer) or _SOME_TURNS in transfer.frontend:
        raise Refused(f"{transfer.opcode} between devices without its pairs, or in some turns of a loop only")
    return pairs_of(evaluator, transfer)
