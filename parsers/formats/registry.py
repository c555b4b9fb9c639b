"""Names to formats. Family modules load when one of their names is asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Final

from ..errors import RequestError
from ..format import Format, compose
from ..request import ToolChoice
from .forced import FORCED_NAMED, FORCED_REQUIRED

__all__ = ["forced_form", "format_names", "load_format"]

_FORMATS: Final = {
    "deepseek_r1": ("deepseek", "DEEPSEEK_R1"),
    "hermes": ("hermes", "HERMES"),
    "identity": ("identity", "IDENTITY"),
    "qwen3": ("qwen", "QWEN3"),
    "qwen3_coder": ("qwen", "QWEN3_CODER"),
}
"""Canonical name -> module of this package, and the literal in it."""


def format_names() -> tuple[str, ...]:
    """The canonical names, sorted."""
    return tuple(sorted(_FORMATS))


@lru_cache(maxsize=1024)
def load_format(name: str) -> Format:
    """The format called `name`, or `REASONING+TOOLS` composed of two.

    Raises:
        RequestError: there is none of that name.
    """
    reasoning, plus, tools = name.partition("+")
    if plus and "+" not in tools:
        return compose(load_format(reasoning), load_format(tools))
    if name not in _FORMATS:
        known = ", ".join(format_names())
        raise RequestError("format", repr(name[:80]), f"{known}; or REASONING+TOOLS of two of them")
    module, literal = _FORMATS[name]
    loaded: Format = getattr(import_module(f".{module}", __package__), literal)
    return loaded


@lru_cache(maxsize=1024)
def forced_form(format: Format, choice: ToolChoice) -> Format:
    """The format with its calls written as forced JSON; reasoning and the rest stay."""
    return replace(format, tools=FORCED_NAMED if choice == "named" else FORCED_REQUIRED)
