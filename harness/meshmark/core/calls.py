"""Calling a spelling with those options of the plan that its signature names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any


@cache
def option_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The keyword-only parameters of a spelling."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def chosen(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the function names; KeyError for one that the plan does not have."""
    return {name: options[name] for name in option_names(function)}


def call(function: Callable[..., Any], arrays: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """function(*arrays, **those options that it names)."""
    return function(*arrays, **chosen(function, options))
