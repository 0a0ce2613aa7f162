# SPDX-License-Identifier: Apache-2.0
"""Sends to the host, and receives from it. A program that uses the host's answer is refused, because the text does not
have the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused, TupleShape
from meshmark.interpreter.control import fresh
from meshmark.interpreter.meanings import means
from meshmark.interpreter.values import AnyValue

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator


@means("send", "recv", attributes=("is_host_transfer",))
def _transfer(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The result is a tuple of the data, a context and a token."""
    if instruction.attributes.get("is_host_transfer") != "true":
        raise Refused(f"{instruction.opcode} between devices")
    return fresh(instruction.shape)


@means("send-done", attributes=("is_host_transfer",))
def _sent(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    return ()


@means("recv-done", attributes=("is_host_transfer",))
def _received(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    """The result is a tuple of the data and a token. Refused if anything else than the token is used."""
    users = [i for i in evaluator.computation_now.instructions if instruction.name in i.operands]
    tokens = all(i.opcode == "get-tuple-element" and i.attributes["index"] == "1" for i in users)
    if (
        not tokens
        or instruction is evaluator.computation_now.root
        or not isinstance(instruction.shape, TupleShape)
    ):
        raise Refused("what the host answers")
    return fresh(instruction.shape)
