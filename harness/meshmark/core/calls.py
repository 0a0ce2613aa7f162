# SPDX-License-Identifier: Apache-2.0
"""Calls a mode's function with the options of the plan that its signature names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any


@cache
def option_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the function's keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def select_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the function's signature names; KeyError if the plan lacks one of them."""
    return {name: options[name] for name in option_names(function)}


def call(function: Callable[..., Any], arrays: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call function(*arrays) with the options that its signature names."""
    return function(*arrays, **select_options(function, options))
