"""What a format's table says, in words and as JSON: for `tristream formats` and `docs/formats.md` alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tristream.parsers import Format, format_names, load_format
from tristream.parsers.arguments import ArgumentSyntax
from tristream.parsers.arguments.json_calls import JsonCall, KeyedCall
from tristream.parsers.arguments.json_object import JsonObject
from tristream.parsers.arguments.literals import Literals
from tristream.parsers.arguments.nested import NestedElements
from tristream.parsers.arguments.tagged import Tagged
from tristream.parsers.format import Opener, ToolSyntax, table
from tristream.parsers.formats.registry import reasoning_aliases, tool_aliases
from tristream.parsers.header import Pattern, Until, first_literals

from .format_sample import call_samples, literal

__all__ = ["all_facts", "count_wire_forms", "facts_of"]

_AS_THEY_COME: Final = "as they come"
_STRINGS: Final = "strings as they come, other types at their end"
_FIRST_THE_NAME: Final = "as they come, once the name is known"

_DERIVED: Final = {
    "call": "`call_` and 24 hex digits",
    "mistral": "9 letters and digits",
    "kimi": "`functions.NAME:INDEX`",
}


class _Syntax(NamedTuple):
    written: str
    streaming: str


def _syntax(arguments: ArgumentSyntax) -> _Syntax:
    match arguments:
        case JsonObject():
            return _Syntax("one JSON object", _AS_THEY_COME)
        case JsonCall():
            return _Syntax(
                "a JSON call object, keys in any order: `name` or `tool_name`; `arguments`, `parameters` or `args`; "
                "also nested under `function`",
                _FIRST_THE_NAME,
            )
        case KeyedCall():
            return _Syntax("a JSON object whose only key is the name", _AS_THEY_COME)
        case Tagged():
            notes = ["tagged parameters"]
            if arguments.framed:
                notes.append("one newline on each side of a value is framing")
            if arguments.typed_by:
                notes.append("a value's type is written beside its key")
            if arguments.json_body:
                notes.append("or one JSON object in their place")
            return _Syntax("; ".join(notes), _STRINGS)
        case Literals():
            kind = "Python keyword arguments" if arguments.separator == "=" else "pairs of bare keys and literals"
            return _Syntax(kind, _STRINGS)
        case NestedElements():
            return _Syntax("nested elements", _STRINGS)
    return _Syntax(f"{type(arguments).__name__}, from outside", "as its decoder does")


def _openers(tools: ToolSyntax) -> Iterator[Opener]:
    for entry in (*tools.entries, *tools.inner, *tools.unmarked):
        yield entry if isinstance(entry, Opener) else Opener(entry, tools.arguments)


def _ids(tools: ToolSyntax) -> str:
    openers = list(_openers(tools))
    derived = f"{_DERIVED[tools.ids]}, derived"
    if tools.ids == "kimi" and any(opener.read_name is not None for opener in openers):
        return f"the model's `functions.NAME:INDEX`; where it writes none, {derived}"
    if any(isinstance(item, Until) and item.capture == "id" for opener in openers for item in _flat(opener.pattern)):
        return f"the model's, where it precedes the arguments; else {derived}"
    if any(isinstance(opener.arguments, JsonCall) for opener in openers):
        return f"the model's, where the call object has an `id` or `tool_call_id` before its arguments; else {derived}"
    return derived


def _flat(pattern: Pattern) -> Iterator[object]:
    for item in pattern:
        yield item
        for part in getattr(item, "options", ()):
            yield from _flat(part)
        yield from _flat(getattr(item, "items", ()))


def _tool_facts(format: Format, tools: ToolSyntax) -> dict[str, Any]:
    openers = [*tools.wrappers]
    for opener in _openers(tools):
        openers.extend(first_literals(opener.pattern))
    if format.messages is not None:
        for header in format.messages.headers:
            openers.extend(first_literals(header))
    closers = [literal(pattern) for pattern in (*tools.frames, *tools.closers)]
    own: list[str] = []
    for syntax in dict.fromkeys((tools.arguments, *(opener.arguments for opener in _openers(tools)))):
        if isinstance(syntax, Tagged):
            own.extend(syntax.call_closers)
    syntaxes = [_syntax(opener.arguments) for opener in _openers(tools)] or [_syntax(tools.arguments)]
    return {
        "arguments": list(dict.fromkeys(syntax.written for syntax in syntaxes)),
        "streaming": list(dict.fromkeys(syntax.streaming for syntax in syntaxes)),
        "openers": list(dict.fromkeys(openers)),
        "counts_alone": list(tools.wrappers),
        "unmarked": bool(tools.unmarked),
        "closers": list(
            dict.fromkeys((*own, *closers, *(format.messages.ends if format.messages is not None else ())))
        ),
        "ends_reasoning": tools.ends_reasoning,
        "ids": _ids(tools),
        "samples": list(call_samples(format)),
    }


def _wire(format: Format) -> str:
    """A digest of the terminals and argument syntaxes, ends of turn left out: two formats that share it read alike."""
    bare = replace(format, swallowed=(), turns=())
    rows = table(bare)
    parts = {repr(pattern) for _, pattern in rows}
    for transition in rows.values():
        arguments = transition.arguments
        if isinstance(arguments, Tagged):
            arguments = replace(arguments, swallowed=())
        if arguments is not None:
            parts.add(repr(arguments))
        parts.update(read.__qualname__ for read in (transition.message, transition.read_name) if read is not None)
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:12]


@lru_cache(maxsize=1024)
def facts_of(name: str) -> dict[str, Any]:
    """One format as a JSON object.

    Raises:
        RequestError: there is none of that name.
    """
    format = load_format(name)
    reasoning = format.reasoning
    return {
        "name": format.name,
        "aliases": {
            "reasoning": sorted(alias for alias, known in reasoning_aliases().items() if known == format.name),
            "tools": sorted(alias for alias, known in tool_aliases().items() if known == format.name),
        },
        "models": list(format.models),
        "reasoning": None
        if reasoning is None
        else {
            "starts": list(reasoning.starts),
            "ends": list(reasoning.ends),
            "opens_by_default": reasoning.opens_by_default,
            "interleaved": reasoning.interleaved,
            "switches": list(reasoning.switches),
        },
        "message_frames": format.messages is not None,
        "tools": None if format.tools is None else _tool_facts(format, format.tools),
        "swallowed": list(format.swallowed),
        "turns": list(format.turns),
        "prepend": format.prepend,
        "constraint": format.constraint,
        "text_markers": format.text_markers,
        "wire": _wire(format),
        "source": format.source,
    }


def all_facts() -> list[dict[str, Any]]:
    """Every format of the registry, by name."""
    return [facts_of(name) for name in format_names()]


def count_wire_forms() -> int:
    """How many formats differ in their terminals or their argument syntax; ends of turn do not count."""
    return len({facts["wire"] for facts in all_facts()})
