"""A format described as plain data (from TOML or JSON): the same fields as the literals of this package.

    name = "acme"
    source = "chat template of acme/one (2026-11)"
    turns = ["<|user|>", "<|assistant|>"]
    swallowed = ["<|end|>"]
    [reasoning]
    starts = ["<think>"]
    ends = ["</think>"]
    [tools]
    arguments = { syntax = "json_object" }
    entries = [["<call:", { item = "name" }, ">", { item = "blanks" }, { item = "ahead", options = [["{"]] }]]
    closers = [["</call>"]]

`reasoning`, `tools` and the argument syntaxes take the fields of `ReasoningSyntax`, `ToolSyntax` and the classes in
SYNTAXES. A pattern is a list of items: a string is a literal, a table one of ITEMS with its fields. No regular
expressions anywhere: nothing that a file says can run for long. Everything is checked; an error names the key,
what was found and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final, get_args

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall, KeyedCall, keyed_ahead
from ..arguments.json_object import JsonObject
from ..arguments.literals import Literals, Quote
from ..arguments.nested import NestedElements
from ..arguments.tagged import Tagged
from ..errors import FormatDefinitionError
from ..format import Format, IdStyle, Opener, ReasoningSyntax, ToolSyntax
from ..header import Ahead, Blanks, Either, Lit, Maybe, Name, Until, here

__all__ = ["ITEMS", "SYNTAXES", "define"]

SYNTAXES: Final[Mapping[str, type]] = {
    "json_object": JsonObject,
    "json_call": JsonCall,
    "keyed_call": KeyedCall,
    "tagged": Tagged,
    "literals": Literals,
    "nested": NestedElements,
}
"""Argument syntaxes by name; further keys are the fields of the class."""

ITEMS: Final[Mapping[str, tuple[str, ...]]] = {
    "blanks": (),
    "name": (),
    "until": ("stop", "capture", "forbidden", "limit"),
    "maybe": ("items",),
    "either": ("options",),
    "ahead": ("options", "end"),
    "here": ("literal",),
    "call_object": (),
    "keyed_object": (),
}
"""Items of a pattern, by name, with their fields. `call_object` looks ahead to `{"name":` and its like,
`keyed_object` to `{"FUNCTION":`; `here` is a literal that text may contain: it counts only where it is expected."""

MAX_LITERAL: Final = 200
MAX_ITEMS: Final = 64
MAX_DEPTH: Final = 6
MAX_UNTIL: Final = 400

_name_shape: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_FORMAT_KEYS: Final = tuple(field.name for field in fields(Format) if field.name not in ("messages", "constraint"))


def define(data: Any, where: str) -> Format:
    """Make a format of a mapping.

    Args:
        data: the mapping.
        where: file (and key) for messages.

    Raises:
        FormatDefinitionError: a key is unknown, missing or of a wrong kind, or the format contradicts itself.
    """
    table = _table(data, where, _FORMAT_KEYS)
    name = _text(table.get("name"), f"{where}: name")
    if not _name_shape(name):
        raise _wrong(f"{where}: name", repr(name), "1 to 64 characters of A-Z a-z 0-9 _ . -")
    where = f"{where}: {name}"
    try:
        return Format(
            name=name,
            source=_text(table.get("source"), f"{where}: source"),
            reasoning=_optional(table, "reasoning", where, _reasoning),
            tools=_optional(table, "tools", where, _tools),
            **{key: _READERS[key](table[key], f"{where}: {key}") for key in _PLAIN_KEYS if key in table},
        )
    except FormatDefinitionError as error:
        if str(error).startswith(where):
            raise
        raise FormatDefinitionError(f"{where}: {error}") from None


def _reasoning(data: Any, where: str) -> ReasoningSyntax:
    return ReasoningSyntax(**_fields(ReasoningSyntax, data, where))


def _tools(data: Any, where: str) -> ToolSyntax:
    return ToolSyntax(**_fields(ToolSyntax, data, where))


def _fields(kind: type, data: Any, where: str, *also: str) -> dict[str, Any]:
    """The fields of a dataclass from a table, each by its own reader."""
    known: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}
    table = _table(data, where, (*known, *also))
    values = {}
    for name, field in known.items():
        if name in table:
            read = _READERS.get(f"{kind.__name__}.{name}") or _READERS[name]
            values[name] = read(table[name], f"{where}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _wrong(f"{where}.{name}", "nothing", "a value; it has no default")
    return values


def _arguments(data: Any, where: str) -> Any:
    if not isinstance(data, Mapping) or data.get("syntax") not in SYNTAXES:
        found = repr(data.get("syntax")) if isinstance(data, Mapping) else _kind(data)
        raise _wrong(f"{where}.syntax", found, ", ".join(SYNTAXES))
    kind = SYNTAXES[data["syntax"]]
    return kind(**_fields(kind, data, where, "syntax"))


def _openers(data: Any, where: str) -> tuple[Any, ...]:
    """Patterns, or tables with a pattern and an argument syntax of its own."""
    openers: list[Any] = []
    for number, opener in enumerate(_list(data, where)):
        place = f"{where}[{number}]"
        if not isinstance(opener, Mapping):
            openers.append(_pattern(opener, place))
            continue
        table = _table(opener, place, ("pattern", "arguments", "wrapper"))
        pattern = _pattern(table.get("pattern"), f"{place}.pattern")
        arguments = _arguments(table.get("arguments"), f"{place}.arguments")
        openers.append(Opener(pattern, arguments, _flag(table.get("wrapper", True), f"{place}.wrapper")))
    return tuple(openers)


def _pattern(data: Any, where: str, depth: int = 0) -> tuple[Any, ...]:
    if depth > MAX_DEPTH:
        raise _wrong(where, "items within items", f"at most {MAX_DEPTH} levels")
    items: list[Any] = []
    for number, item in enumerate(_list(data, where)):
        place = f"{where}[{number}]"
        if isinstance(item, str):
            items.append(Lit(_text(item, place)))
        else:
            items += _item(item, place, depth)
    if not items:
        raise _wrong(where, "an empty pattern", "at least one item")
    return tuple(items)


def _item(data: Any, where: str, depth: int) -> tuple[Any, ...]:
    kind = data.get("item") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in ITEMS:
        found = repr(kind) if isinstance(data, Mapping) else _kind(data)
        raise _wrong(where, f"item {found}", f"a string, or a table with item = {', '.join(ITEMS)}")
    table = _table(data, where, ("item", *ITEMS[kind]))

    def options() -> tuple[Any, ...]:
        listed = _list(table.get("options"), f"{where}.options")
        return tuple(_pattern(option, f"{where}.options", depth + 1) for option in listed)

    match kind:
        case "blanks":
            return (Blanks(),)
        case "name":
            return (Name(),)
        case "until":
            return (_until(table, where),)
        case "maybe":
            return (Maybe(_pattern(table.get("items"), f"{where}.items", depth + 1)),)
        case "either":
            return (Either(options()),)
        case "ahead":
            return (Ahead(options(), _flag(table.get("end", False), f"{where}.end")),)
        case "here":
            return here(_text(table.get("literal"), f"{where}.literal"))
        case "call_object":
            return (CALL_OBJECT_AHEAD,)
        case _:
            return (keyed_ahead(),)


def _until(table: Mapping[str, Any], where: str) -> Until:
    limit = table.get("limit", 256)
    if type(limit) is not int or not 1 <= limit <= MAX_UNTIL:
        raise _wrong(f"{where}.limit", repr(limit), f"1 to {MAX_UNTIL} characters")
    stop = _text(table.get("stop"), f"{where}.stop")
    capture = table.get("capture", "name")
    if capture not in ("name", "key", "type", "id"):
        raise _wrong(f"{where}.capture", repr(capture), "name, key, type or id")
    forbidden = table.get("forbidden", "\n<")
    if not isinstance(forbidden, str):
        raise _wrong(f"{where}.forbidden", _kind(forbidden), "a string of characters")
    return Until(stop, capture, forbidden, limit)


def _quotes(data: Any, where: str) -> tuple[Quote, ...]:
    return tuple(
        Quote(**_fields(Quote, quote, f"{where}[{number}]")) for number, quote in enumerate(_list(data, where))
    )


def _patterns(data: Any, where: str) -> tuple[Any, ...]:
    return tuple(_pattern(pattern, f"{where}[{number}]") for number, pattern in enumerate(_list(data, where)))


def _texts(data: Any, where: str) -> tuple[str, ...]:
    return tuple(_text(text, f"{where}[{number}]") for number, text in enumerate(_list(data, where)))


def _pairs(data: Any, where: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for number, pair in enumerate(_list(data, where)):
        texts = _texts(pair, f"{where}[{number}]")
        if len(texts) != 2:
            raise _wrong(f"{where}[{number}]", f"{len(texts)} strings", "an opener and its closer")
        pairs.append((texts[0], texts[1]))
    return tuple(pairs)


def _ids(data: Any, where: str) -> Any:
    if data not in get_args(IdStyle):
        raise _wrong(where, repr(data), " or ".join(get_args(IdStyle)))
    return data


def _flag(data: Any, where: str) -> bool:
    if not isinstance(data, bool):
        raise _wrong(where, _kind(data), "true or false")
    return data


def _text(data: Any, where: str) -> str:
    if not isinstance(data, str) or not 0 < len(data) <= MAX_LITERAL:
        found = f"a string of {len(data)} characters" if isinstance(data, str) else _kind(data)
        raise _wrong(where, found, f"a string of 1 to {MAX_LITERAL} characters")
    return data


def _any_text(data: Any, where: str) -> str:
    return "" if data == "" else _text(data, where)


def _list(data: Any, where: str) -> list[Any]:
    if not isinstance(data, list) or len(data) > MAX_ITEMS:
        found = f"a list of {len(data)}" if isinstance(data, list) else _kind(data)
        raise _wrong(where, found, f"a list of at most {MAX_ITEMS}")
    return data


def _table(data: Any, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise _wrong(where, _kind(data), f"a table with {', '.join(known)}")
    for key in data:
        if key not in known:
            raise _wrong(where, f"key {str(key)[:64]!r}", ", ".join(known))
    return data


def _optional(table: Mapping[str, Any], key: str, where: str, read: Callable[[Any, str], Any]) -> Any:
    return read(table[key], f"{where}: {key}") if key in table else None


def _kind(data: Any) -> str:
    return "nothing" if data is None else f"a {type(data).__name__}"


def _wrong(where: str, found: str, allowed: str) -> FormatDefinitionError:
    return FormatDefinitionError(f"{where}: found {found}; allowed: {allowed}")


_PLAIN_KEYS: Final = ("swallowed", "turns", "prepend", "text_markers", "models")
_READERS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    **dict.fromkeys(("swallowed", "turns", "models", "starts", "ends", "switches", "wrappers", "leftovers"), _texts),
    **dict.fromkeys(("value_closers", "call_closers", "wrapper_closers", "call_openers", "string_words"), _texts),
    **dict.fromkeys(("text_markers", "opens_by_default", "interleaved", "trusts_unmarked", "ends_reasoning"), _flag),
    **dict.fromkeys(("framed", "json_body", "bare_strings", "escapes", "typed"), _flag),
    **dict.fromkeys(("entries", "inner", "bare", "unmarked"), _openers),
    **dict.fromkeys(("ToolSyntax.closers", "frames", "skipped"), _patterns),
    **dict.fromkeys(("prepend", "typed_by"), _any_text),
    **dict.fromkeys(("separator", "mark", "prefix", "call"), _text),
    "Literals.closers": _text,
    "arguments": _arguments,
    "parameter": _pattern,
    "quotes": _quotes,
    "empty": _pairs,
    "ids": _ids,
}
"""Field -> its reader, or CLASS.FIELD where classes differ."""
