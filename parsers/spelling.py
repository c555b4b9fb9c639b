"""Spellings that a tokenizer decides: `{S}` in a format's literals stands for the suffix of its markers.

Hunyuan spells all its markers with one suffix (`<think:6124c78e>`), and each tokenizer has its own. A format's
literals hold the template; the registry fills it when it hands the format out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, Final

from .format import Format

__all__ = ["fill", "find_suffix", "is_template", "split_suffix"]

_HOLE: Final = "{S}"
_suffixed: Final = re.compile(r"([^{}]+)\{([^\s<>{}+]{1,32})\}").fullmatch
_suffix: Final = re.compile(r"[^\s<>{}+]{0,32}").fullmatch


def split_suffix(name: str) -> tuple[str, str]:
    """`hy_v4{:6124c78e}` -> the format's name and the suffix of its markers, "" where none is named."""
    match = _suffixed(name)
    return (match[1], match[2]) if match else (name, "")


def is_template(format: Format) -> bool:
    """Does its tokenizer decide how its markers are spelled?"""
    return bool(_templates(format))


@lru_cache(maxsize=64)
def fill(format: Format, suffix: str = "") -> Format:
    """The format with its markers spelled out; the same one where nothing is to be filled.

    Args:
        format: the format.
        suffix: what the markers end with.
    """
    if not is_template(format):
        return format
    filled: Format = _filled(format, suffix)
    return replace(filled, name=f"{format.name}{{{suffix}}}") if suffix else filled


def find_suffix(format: Format, added: Collection[str]) -> str:
    """The suffix with which most of the format's markers are tokens; "" where no suffix fits half of them.

    Args:
        format: a template.
        added: spellings of the tokenizer's added tokens.
    """
    templates = _templates(format)
    found: Counter[str] = Counter()
    for template in templates:
        before, _, after = template.partition(_HOLE)
        for spelling in added:
            inner = spelling.removeprefix(before).removesuffix(after)
            if spelling == f"{before}{inner}{after}" and _suffix(inner):
                found[inner] += 1
    if not found:
        return ""
    suffix, count = max(found.items(), key=lambda item: (item[1], -len(item[0]), item[0]))
    return suffix if 2 * count >= len(templates) else ""


@lru_cache(maxsize=256)
def _templates(format: Format) -> frozenset[str]:
    """The literals that have a place for the suffix."""
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, str) and _HOLE in value:
            found.add(value)
        for inner in _parts(value):
            collect(inner)

    collect(format)
    return frozenset(found)


def _filled(value: Any, suffix: str) -> Any:
    if isinstance(value, str):
        return value.replace(_HOLE, suffix)
    if isinstance(value, tuple):
        return tuple(_filled(item, suffix) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in fields(value):
            old = getattr(value, field.name)
            new = _filled(old, suffix) if field.init else old
            if new is not old and new != old:
                changed[field.name] = new
        return replace(value, **changed) if changed else value
    return value


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(getattr(value, field.name) for field in fields(value) if field.init)
    return ()
