"""JSON text from outside -> values: bounded, and without what JSON parsers disagree about."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from tristream.parsers.errors import RequestError

__all__ = ["MAX_DEPTH", "json_type", "parse_json", "shown"]

MAX_DEPTH: Final = 160
"""Deepest nesting of a body. A schema may have 64 levels (DESIGN 8), each of two: `{"properties": {"a": ...}}`."""


def parse_json(text: str, field: str, *, max_bytes: int | None = None, bound: str = "") -> Any:
    """Parse JSON from outside: no NaN, no member twice, no deep nesting, no lone surrogates.

    Args:
        text: the JSON.
        field: how an error names it.
        max_bytes: most bytes of UTF-8.
        bound: name of the setting that is the bound.

    Raises:
        RequestError: it is none, or over a bound.
    """
    size = len(text.encode("utf-8", "replace")) if max_bytes is not None else 0
    if max_bytes is not None and size > max_bytes:
        raise RequestError(field, f"{size} bytes", f"at most {max_bytes} ({bound})")
    if not text.strip():
        raise RequestError(field, "nothing", "a JSON object")
    try:
        value = json.loads(text, object_pairs_hook=_members, parse_constant=_no_constant)
    except RequestError as error:
        raise RequestError(f"{field}", error.found, error.allowed) from None
    except RecursionError:
        raise RequestError(field, "nesting too deep to read", f"at most {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        where = f"no JSON ({error.msg} at character {error.pos})"
        raise RequestError(field, where, "a JSON object") from None
    except ValueError as error:  # a number with thousands of digits
        raise RequestError(field, f"a value that cannot be read ({str(error)[:80]})", "ordinary JSON") from None
    depth = _depth(value)
    if depth > MAX_DEPTH:
        raise RequestError(field, f"{depth} levels of nesting", f"at most {MAX_DEPTH}")
    return _without_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RequestError("", f"the member {shown(twice)} twice in one object", "each member once")
    return members


def _no_constant(name: str) -> NoReturn:
    raise RequestError("", name, "JSON numbers")


def _depth(value: Any) -> int:
    """Levels of lists and objects, without recursion."""
    depth, level = 0, [value]
    while True:
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return depth
        depth += 1
        if depth > MAX_DEPTH:
            return depth


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return [None, *value.values()]
    return [None, *value] if isinstance(value, list) else ()


def _without_surrogates(value: Any) -> Any:
    """JSON escapes can spell half a character, which no UTF-8 can: it becomes U+FFFD, as decoders do it."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value


def shown(value: Any) -> str:
    """A value, short enough for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."


def json_type(value: Any) -> str:
    """JSON's name of a parsed value's type."""
    if value is None:
        return "null"
    return {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}[type(value)]
