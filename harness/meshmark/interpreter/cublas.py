# SPDX-License-Identifier: Apache-2.0
"""Matrix products by cuBLAS, on GPU: alpha A B + beta C with an epilogue, rounded once.

Most products of a GPU program are plain dots inside fusions, which XLA compiles itself. Complex ones call cuBLAS
(openxla/xla, xla/service/gpu/backend_configs.proto, GemmBackendConfig). The second result is the library's workspace,
which no program may read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshmark.core.hlo_module import Instruction
from meshmark.core.hlo_types import Refused, Shape, TupleShape
from meshmark.interpreter.contraction import dot, factor_bits, factors
from meshmark.interpreter.control import fresh
from meshmark.interpreter.custom_calls import check_names, target
from meshmark.interpreter.elementwise import rounded, wide
from meshmark.interpreter.values import AnyValue, Value, array, spread_poison

if TYPE_CHECKING:
    from meshmark.interpreter.evaluator import Evaluator

_EPILOGUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "DEFAULT": lambda a: a,
    "RELU": lambda a: np.maximum(a, 0),
}
"""The function after the product, by epilogue."""

_NAMES = (
    *("alpha_real", "alpha_imag", "beta", "epilogue", "dot_dimension_numbers", "precision_config"),
    *("lhs_stride", "rhs_stride", "damax_output", "scale_mode"),
    *("grad_x", "grad_y", "selected_algorithm", "autotune_workspace_size"),
)
"""The entries that the configuration of a product may have. `scale_mode` must be 0. The last four do not change
numbers."""

_DIMENSIONS = ("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting")


@target("__cublas$gemm", "__cublas$lt$matmul")
def _matmul(evaluator: Evaluator, instruction: Instruction, operands: Sequence[AnyValue]) -> AnyValue:
    config = json.loads(instruction.backend_config)["gemm_backend_config"]
    check_names("a product of cuBLAS", config, _NAMES)
    check_names(
        "a product of cuBLAS",
        config["dot_dimension_numbers"],
        [f"{name}_dimensions" for name in _DIMENSIONS],
    )
    if int(config.get("scale_mode", 0)):
        raise Refused("a product of cuBLAS with scale_mode")
    alpha = complex(config["alpha_real"], config.get("alpha_imag", 0))
    beta = float(config.get("beta", 0))
    if config.get("epilogue", "DEFAULT") not in _EPILOGUES or config.get("damax_output"):
        raise Refused(f"a product of cuBLAS with epilogue {config.get('epilogue')}")
    if len(operands) != (3 if beta else 2):
        raise Refused(f"a product of cuBLAS of {len(operands)} operands with beta {beta:g}")
    values = [array(operand, instruction.name) for operand in operands]
    dims = [
        [int(d) for d in config["dot_dimension_numbers"].get(f"{name}_dimensions", ())]
        for name in _DIMENSIONS
    ]
    for which, value, batch in (("lhs", values[0], dims[0]), ("rhs", values[1], dims[2])):
        _whole(config, which, value.data.shape[1:], batch)
    bits = factor_bits(evaluator, _asked(instruction, config["precision_config"]), values[0].data.dtype)
    total = dot(factors(values[0].data, bits), factors(values[1].data, bits), *dims)
    total = total * (alpha if alpha.imag else alpha.real)
    if beta:
        total = total + beta * wide(values[2].data)
    shape = instruction.shape
    first = shape.parts[0] if isinstance(shape, TupleShape) else shape
    if not isinstance(first, Shape):
        raise Refused(f"a product of cuBLAS of type {shape}")
    data = rounded(_EPILOGUES[config.get("epilogue", "DEFAULT")](total), first.numpy)
    found = Value(data, spread_poison(values, data.ndim - 1))
    return (found, *(fresh(part) for part in shape.parts[1:])) if isinstance(shape, TupleShape) else found


def _whole(config: Mapping[str, Any], which: str, dims: Sequence[int], batch: Sequence[int]) -> None:
    """Refused if the matrices of a batch are not contiguous in memory."""
    stride = int(config.get(f"{which}_stride", 0))
    if batch and stride and stride != math.prod(n for d, n in enumerate(dims) if d not in batch):
        raise Refused(f"a product of cuBLAS with {which}_stride {stride}")


def _asked(instruction: Instruction, precision: Mapping[str, Any]) -> Instruction:
    """The instruction with its precision in the attributes of a dot."""
    operands = ",".join(precision.get("operand_precision", ["DEFAULT"])).lower()
    algorithm = precision.get("algorithm", "ALG_UNSET").removeprefix("ALG_").lower()
    named = {} if algorithm == "unset" else {"algorithm": algorithm}
    return instruction.changed(attributes={"operand_precision": f"{{{operands}}}", **named})
