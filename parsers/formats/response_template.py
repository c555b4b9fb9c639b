"""Hugging Face's `response_template` -> Format.

Checkpoints may say in tokenizer_config.json how an answer is to be parsed (transformers 5.24,
`utils/chat_parsing/response_templates.py`, read 2026-12): `fields` of a message, each with `open` and `close` (literals
or regular expressions), a `content` parser and a `transform`. What can be said with literals, blanks and names becomes
rows of a format, so that it streams and costs what every format costs. Regular expressions are not run: of those in
`open_pattern`, `close_pattern` and `tag_pattern` the literal parts, `\\s*`, `\\n?` and the named groups `name`, `key`
and `value` are read; anything else is refused with a message that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..arguments import ArgumentSyntax
from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..arguments.json_object import JsonObject
from ..arguments.literals import Literals, Quote
from ..arguments.tagged import Tagged
from ..errors import FormatDefinitionError
from ..format import Format, Opener, ReasoningSyntax, ToolSyntax
from ..header import Ahead, Blanks, Item, Lit, Name, Pattern, Until, here

__all__ = ["convert"]

_REASONING: Final = ("thinking", "reasoning", "reasoning_content")
_CONTENT: Final = "content"
_CALLS: Final = "tool_calls"
_KEYS: Final = ("version", "defaults", "fields", "start_anchor", "start_anchor_pattern")
_FIELD_KEYS: Final = (
    "open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats", "join", "optional",
    "transform", "transform_each",
)  # fmt: skip
_MAX_TEXT: Final = 400
_MAX_LITERALS: Final = 32

_blank: Final = re.compile(r"(?:\\[sn]|\\\n|\n| |\[\\s\\n\])(?:[*+?]\??)").match
_group: Final = re.compile(r"\(\?P<([a-z_]{1,32})>((?:[^()\\]|\\.){1,80})\)").match
_escaped: Final = re.compile(r"\\([^A-Za-z0-9])|\\(n)|([^\\^$.|?*+()\[\]{}])").match
_ANY_VALUE: Final = frozenset({".*?", ".+?", "[\\s\\S]*?", "[\\s\\S]+?"})


def convert(data: Any, name: str, where: str) -> Format:
    """Make a format of a `response_template`.

    Args:
        data: the metadata.
        name: the format's name.
        where: file and key, for messages.

    Raises:
        FormatDefinitionError: it is malformed, or says what no format can.
    """
    table = _table(data, where, _KEYS)
    if table.get("version", 1) != 1:
        raise _wrong(f"{where}.version", repr(table["version"]), "1")
    fields = table.get("fields")
    if not isinstance(fields, Mapping) or not fields:
        raise _wrong(f"{where}.fields", "nothing", "a table of message fields")
    reasoning: ReasoningSyntax | None = None
    tools: ToolSyntax | None = None
    swallowed: tuple[str, ...] = ()
    for key, spec in fields.items():
        place = f"{where}.fields.{key}"
        field = _table(spec, place, _FIELD_KEYS)
        if key in _REASONING and reasoning is None:
            reasoning = _reasoning(field, place)
        elif key == _CONTENT:
            swallowed = (*_literals(field, "open", place), *_literals(field, "close", place))
        elif key == _CALLS:
            tools = _calls(field, place)
        else:
            allowed = f"{', '.join(_REASONING)} (one of them), {_CONTENT}, {_CALLS}"
            raise _wrong(place, "a field that a chat message of OpenAI's API lacks", allowed)
    return Format(
        name=name,
        source=where,
        reasoning=reasoning,
        tools=tools,
        swallowed=tuple(dict.fromkeys(swallowed)),
        turns=_literals(table, "start_anchor", where),
        text_markers=True,
    )


def _reasoning(field: Mapping[str, Any], where: str) -> ReasoningSyntax:
    if field.get("content", "text") != "text":
        raise _wrong(f"{where}.content", repr(field["content"]), "text")
    ends = _literals(field, "close", where)
    if not ends:
        raise _wrong(f"{where}.close", "nothing", "what ends the reasoning")
    starts = _literals(field, "open", where)
    # A field without an opener is where the answer begins.
    return ReasoningSyntax(starts, ends, opens_by_default=not starts, interleaved=field.get("repeats") is True)


def _calls(field: Mapping[str, Any], where: str) -> ToolSyntax:
    heads = _heads(field, where)
    ends = _closers(field, where)
    closers: list[Pattern] = [(Lit(end),) for end in ends]
    named = any(isinstance(item, Name) for head in heads for item in head)
    arguments = field.get("content_args") or {}
    if not isinstance(arguments, Mapping):
        raise _wrong(f"{where}.content_args", type(arguments).__name__, "a table")
    content = field.get("content", "text")
    if content == "xml-inline":
        syntax: ArgumentSyntax = _tagged(arguments, ends, heads, where)
    elif content == "python-call-list":
        from .python_calls import PYTHON_ARGUMENTS

        call: Pattern = (Name(), Blanks(), Lit("("))
        return ToolSyntax(
            arguments=PYTHON_ARGUMENTS,
            entries=tuple((*head, Blanks(), Lit("["), Blanks(), *call) for head in heads),
            inner=((*here(","), Blanks(), *call),),
            closers=(*closers, (*here("]"), Blanks(), *closers[0])) if closers else ((Lit("]"),),),
            ends_reasoning=True,
        )
    elif content == "json" and named:
        return _named_json(arguments, heads, closers, where)
    elif content == "json":
        _check_transform(field.get("transform"), f"{where}.transform")
        array = tuple((*head, Blanks(), Lit("["), Blanks(), CALL_OBJECT_AHEAD) for head in heads)
        one = tuple(Opener((*head, Blanks(), CALL_OBJECT_AHEAD), JsonCall()) for head in heads)
        bracket: tuple[Pattern, ...] = tuple((*here("]"), Blanks(), *closer) for closer in closers)
        return ToolSyntax(
            arguments=JsonCall(),
            entries=(*one, *array),
            inner=((CALL_OBJECT_AHEAD,), (*here(","), Blanks(), CALL_OBJECT_AHEAD)),
            closers=(*closers, *bracket) if closers else (here("]"),),
            ends_reasoning=True,
        )
    else:
        raise _wrong(f"{where}.content", repr(content), "json, xml-inline or python-call-list")
    if not named:
        raise _wrong(f"{where}.open_pattern", "no group (?P<name>...)", "an opener that captures the function's name")
    return ToolSyntax(arguments=syntax, entries=heads, closers=tuple(closers), ends_reasoning=True)


def _named_json(
    arguments: Mapping[str, Any], heads: tuple[Pattern, ...], closers: list[Pattern], where: str
) -> ToolSyntax:
    """The header has the name; the arguments are an object, in JSON or in a dialect of it."""
    delimiters = arguments.get("string_delims") or []
    brace: Item = Ahead(((Lit("{"),),))
    syntax: ArgumentSyntax = JsonObject()
    if delimiters or arguments.get("unquoted_keys"):
        marks = [pair[0] for pair in delimiters if isinstance(pair, list) and len(pair) == 2 and pair[0] == pair[1]]
        if len(marks) != len(delimiters) or not all(isinstance(mark, str) and mark for mark in marks):
            raise _wrong(f"{where}.content_args.string_delims", repr(delimiters)[:80], "pairs of one and the same mark")
        quotes = (*(Quote(mark) for mark in marks), Quote('"', escapes=True))
        syntax = Literals(closers="}", separator=":", quotes=quotes, bare_strings=True)
        brace = Lit("{")
    entries = []
    for head in heads:
        # The expression may have taken the brace already.
        bare = head[:-1] if head[-1] == Lit("{") else head
        entries.append((*bare, Blanks(), brace))
    return ToolSyntax(arguments=syntax, entries=tuple(entries), closers=tuple(closers), ends_reasoning=True)


def _tagged(arguments: Mapping[str, Any], ends: tuple[str, ...], heads: tuple[Pattern, ...], where: str) -> Tagged:
    """`tag_pattern`: text, the key, text, the value, text."""
    place = f"{where}.content_args.tag_pattern"
    items = _pattern(arguments.get("tag_pattern"), place, groups=("key", "value"))
    spots = [at for at, item in enumerate(items) if isinstance(item, Until) and item.capture == "value"]
    tail = [item.text for item in items[spots[0] + 1 :] if isinstance(item, Lit)] if spots else []
    if not tail or not isinstance(items[0], Lit) or not ends:
        raise _wrong(
            place, "a shape other than these", "TEXT(?P<key>…)TEXT(?P<value>.*?)TEXT, and a close of the field"
        )
    header = items[: spots[0]]
    framed = isinstance(header[-1], Blanks)
    opener = next((item.text for head in heads for item in head if isinstance(item, Lit)), "")
    return Tagged(
        parameter=header[:-1] if framed else header,
        value_closers=(tail[0],),
        call_closers=ends[:1],
        wrapper_closers=ends[1:],
        call_openers=(opener,) if opener else (),
        framed=framed,
    )


def _heads(field: Mapping[str, Any], where: str) -> tuple[Pattern, ...]:
    literals = _literals(field, "open", where, patterns=True)
    if literals:
        return tuple((Lit(literal),) for literal in literals)
    if "open_pattern" not in field:
        raise _wrong(f"{where}.open", "nothing", "what a call begins with")
    return (_pattern(field["open_pattern"], f"{where}.open_pattern"),)


def _closers(field: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """What closes a call, then its wrapper: literals, or those of an expression, in its order."""
    if "close_pattern" not in field:
        return _literals(field, "close", where)
    items = _pattern(field["close_pattern"], f"{where}.close_pattern", groups=())
    return tuple(item.text for item in items if isinstance(item, Lit))


def _literals(field: Mapping[str, Any], key: str, where: str, *, patterns: bool = False) -> tuple[str, ...]:
    """`key` as literals; an expression that is a literal is one, unless the caller reads `patterns` itself."""
    value = field.get(key)
    if value is None and f"{key}_pattern" in field and not patterns:
        items = [item for item in _pattern(field[f"{key}_pattern"], f"{where}.{key}_pattern") if item != Blanks()]
        texts = [item.text for item in items if isinstance(item, Lit)]
        if len(texts) != len(items) or len(texts) != 1:
            raise _wrong(
                f"{where}.{key}_pattern", repr(field[f"{key}_pattern"])[:80], "one literal, with blanks around"
            )
        return (texts[0],)
    values = [value] if isinstance(value, str) else value or []
    if not isinstance(values, list) or len(values) > _MAX_LITERALS:
        raise _wrong(f"{where}.{key}", type(values).__name__, "a string or a list of strings")
    for literal in values:
        if not isinstance(literal, str) or not 0 < len(literal) <= _MAX_TEXT:
            raise _wrong(f"{where}.{key}", repr(literal)[:80], f"strings of 1 to {_MAX_TEXT} characters")
    return tuple(values)


def _pattern(expression: Any, where: str, groups: tuple[str, ...] = ("name",)) -> Pattern:
    """The part of regular expressions that a header pattern can say."""
    if not isinstance(expression, str) or not 0 < len(expression) <= _MAX_TEXT:
        raise _wrong(where, repr(expression)[:80], f"an expression of 1 to {_MAX_TEXT} characters")
    items: list[Item] = []
    captured = ""  # a group that waits for the literal that ends it
    at = 0
    while at < len(expression):
        group = _group(expression, at)
        literal = None if group else _literal_run(expression, at)
        if blank := (None if group else _blank(expression, at)):
            if not captured:
                items.append(Blanks())
            at = blank.end()
        elif group and group[1] in groups and not captured:
            captured = group[1]
            if captured == "value" and group[2] not in _ANY_VALUE:
                raise _wrong(where, repr(group[0]), "(?P<value>.*?)")
            if captured == "name":
                items.append(Name())
                captured = ""
            at = group.end()
        elif literal:
            text, at = literal
            items.append(Until(text, captured, limit=256) if captured == "key" else Lit(text))
            if captured == "value":
                items.insert(-1, Until(text, "value"))
            captured = ""
        else:
            allowed = f"text, \\s*, \\n?, and the groups {', '.join(f'(?P<{name}>...)' for name in groups)}"
            raise _wrong(where, f"{expression[at : at + 40]!r}", allowed)
    return tuple(items)


def _literal_run(expression: str, at: int) -> tuple[str, int] | None:
    """Literal text from `at` up to what is none; a character that is repeated or optional is none."""
    text = ""
    while (match := _escaped(expression, at)) and not _blank(expression, at):
        if expression[match.end() : match.end() + 1] in ("*", "+", "?", "{"):
            break
        text += "\n" if match[2] else match[1] or match[3]
        at = match.end()
    return (text, at) if text else None


def _check_transform(transform: Any, where: str) -> None:
    """The call object's own keys must be those that mean name and arguments."""
    if transform is None:
        return
    words = re.findall(r"\{(?:content\.)?(\w{1,64})\}", repr(transform)[:4096])
    known = {"content", "name", "tool_name", "arguments", "parameters", "args", "id", "tool_call_id"}
    for word in words:
        if word not in known:
            raise _wrong(where, f"{{{word}}}", f"the keys {', '.join(sorted(known))}")


def _table(data: Any, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise _wrong(where, f"a {type(data).__name__}", f"a table with {', '.join(known)}")
    for key in data:
        if key not in known:
            raise _wrong(where, f"key {str(key)[:64]!r}", ", ".join(known))
    return data


def _wrong(where: str, found: str, allowed: str) -> FormatDefinitionError:
    return FormatDefinitionError(f"{where}: found {found}; allowed: {allowed}")
