"""Which spellings a format's data holds, and which of them a tokenizer must have as tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Final

from .format import Format, Opener, table
from .header import Lit, Pattern, first_literals, translate

__all__ = ["canonical", "marker_literals", "missing_tokens", "opening_markers"]

_SHORTEST: Final = 3
"""Shorter literals are punctuation."""


@lru_cache(maxsize=256)
def marker_literals(format: Format) -> frozenset[str]:
    """Every literal of the format that looks like a marker, those of its arguments among them."""
    found: set[str] = set()

    def collect(literal: str) -> str:
        found.add(literal)
        return literal

    for (_, pattern), transition in table(format).items():
        translate(pattern, collect)
        if transition.arguments is not None:
            transition.arguments.translated(collect)
    stripped = (literal.strip() for literal in found)
    return frozenset(filter(_is_marker, stripped))


def _is_marker(literal: str) -> bool:
    """Is it more than a word or punctuation?"""
    return len(literal.strip()) >= _SHORTEST and not literal.strip().isalnum()


def opening_markers(format: Format) -> tuple[str, ...]:
    """What a call, or a message with a call, begins with; () where nothing marks it."""
    tools = format.tools
    if tools is None:
        return ()
    patterns: list[Pattern] = [(Lit(wrapper),) for wrapper in tools.wrappers]
    patterns += [opener.pattern if isinstance(opener, Opener) else opener for opener in tools.entries]
    if format.messages is not None:
        patterns += format.messages.headers
    return tuple(dict.fromkeys(literal for pattern in patterns for literal in first_literals(pattern)))


def missing_tokens(format: Format, added: Collection[str]) -> tuple[str, ...]:
    """Markers that are tokens in the family's tokenizers, and that this one does not have.

    A marker is there if one of its spellings is, or holds, an added token (DeepSeek's `｜DSML｜` stands within tags).
    The end of reasoning is needed only where output starts inside it: others may do without reasoning.

    Args:
        format: the format.
        added: spellings of the tokenizer's added tokens.
    """
    if format.text_markers:
        return ()
    groups = []
    if format.tools is not None and not format.tools.unmarked:
        groups.append(opening_markers(format))
    if format.reasoning is not None and format.reasoning.opens_by_default:
        groups.append(format.reasoning.ends)
    tokens = [spelling for spelling in added if _is_marker(spelling)]
    missing = [
        group[0] for group in groups if group and not any(token in spelling for spelling in group for token in tokens)
    ]
    return tuple(dict.fromkeys(missing))


def canonical(format: Format) -> Format:
    """The format with the first form of its calls alone: what its own template writes."""
    tools = format.tools
    assert tools is not None, "it has just read calls"
    return replace(
        format,
        tools=replace(tools, entries=tools.entries[:1], inner=tools.inner[:1], bare=(), unmarked=tools.unmarked[:1]),
    )
