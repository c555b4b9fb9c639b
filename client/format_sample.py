"""Literal samples of a format's calls, written from its table and read back by its parser.

A sample is shown only if the parser makes exactly the call of it, with nothing left over: what the page
prints is therefore what is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, permutations, product
from typing import Any, Final

from tristream.parsers import ChatOptions, Format, parse
from tristream.parsers.arguments import ArgumentSyntax
from tristream.parsers.arguments.json_calls import JsonCall, KeyedCall
from tristream.parsers.arguments.json_object import JsonObject
from tristream.parsers.arguments.literals import Literals
from tristream.parsers.arguments.nested import NestedElements
from tristream.parsers.arguments.tagged import Tagged
from tristream.parsers.format import Opener, ToolSyntax
from tristream.parsers.header import Blanks, Either, Item, Lit, Maybe, Name, Pattern, Until

__all__ = ["SAMPLE_ARGUMENTS", "SAMPLE_NAME", "call_samples", "literal"]

SAMPLE_NAME: Final = "get_weather"
SAMPLE_ARGUMENTS: Final[dict[str, Any]] = {"city": "Oslo", "days": 3}

_PARAMETERS: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
}
_OPTIONS: Final = ChatOptions.from_openai(
    {"tools": [{"type": "function", "function": {"name": SAMPLE_NAME, "parameters": _PARAMETERS}}]}
)
_OBJECT: Final = json.dumps(SAMPLE_ARGUMENTS)

_HEADERS: Final = (f"functions.{SAMPLE_NAME}:0", f"{SAMPLE_NAME}.call", SAMPLE_NAME)
"""Headers that formats with a reader of names may understand."""

_MESSAGE_HEADERS: Final = (
    f"assistant<|channel|>commentary to=functions.{SAMPLE_NAME} <|constrain|>json",
    f"assistant to={SAMPLE_NAME}",
)

_PAIRS: Final = (
    ("</", "<"), ("[/", "["), ("end", "begin"), ("END", "START"), ("end", "start"), ("close", "open"),
    ("suffix", "prefix"), ("]", "["), ("```", "```json"),
)  # fmt: skip
"""How a closing spelling differs from its opening one."""


@dataclass(frozen=True, slots=True)
class _Choices:
    """What a sample chooses where the table leaves a choice.

    Args:
        optional: optional parts are written.
        option: which alternative, where they differ in more than their quotes.
        value_closer: which of the closers of a value.
        captures: what is written for a capture.
    """

    optional: bool
    option: int
    value_closer: int
    captures: dict[str, str]

    def having(self, **captures: str) -> _Choices:
        return replace(self, captures={**self.captures, **captures})


def literal(pattern: Pattern) -> str:
    """The pattern's literals, as text for people; a name or other captured text is an ellipsis."""
    parts = []
    for item in pattern:
        match item:
            case Lit(text):
                parts.append(text)
            case Name():
                parts.append("…")
            case Until(stop):
                parts.append(f"…{stop}")
            case Either(options):
                parts.append(literal(options[0]))
    return "".join(parts)


@lru_cache(maxsize=1024)
def call_samples(format: Format) -> tuple[str, ...]:
    """One call in each form that the format's table declares; () for a format without calls."""
    tools = format.tools
    if tools is None:
        return ()
    found: dict[str, None] = {}
    for opener in _openers(tools):
        for optional, option in product((True, False), range(3)):
            sample = _best(format, tools, opener, _Choices(optional, option, 0, {}))
            if sample is not None:
                found.setdefault(sample)
    if format.messages is not None:
        for header in _MESSAGE_HEADERS:
            sample = _message(format, tools, header)
            if sample is not None:
                found.setdefault(sample)
    return tuple(found)


def _openers(tools: ToolSyntax) -> Iterator[Opener]:
    """Every declared way into a call, but not the recovered ones."""
    for entry in (*tools.entries, *tools.unmarked):
        yield entry if isinstance(entry, Opener) else Opener(entry, tools.arguments)
    for wrapper in tools.wrappers[:1]:
        for entry in tools.inner:
            inner = entry if isinstance(entry, Opener) else Opener(entry, tools.arguments)
            yield replace(inner, pattern=(Lit(wrapper), Blanks(), *inner.pattern))


def _best(format: Format, tools: ToolSyntax, opener: Opener, choices: _Choices) -> str | None:
    """The sample that reads back and closes best what it opened."""
    name = SAMPLE_NAME
    header = next(
        (text for text in _HEADERS if opener.read_name is None or opener.read_name(text, (name,))[0] == name), name
    )
    choices = choices.having(header=header)
    tagged = isinstance(opener.arguments, Tagged)
    ranked: list[tuple[int, int, int, int, int, str]] = []
    for value_closer in range(len(opener.arguments.value_closers) if isinstance(opener.arguments, Tagged) else 1):
        begun = _write(opener.pattern, choices, lines=tagged)
        begun = _joined(begun, _arguments(opener.arguments, replace(choices, value_closer=value_closer)))
        for pieces in _tails(tools, begun):
            text = begun + "".join(f"\n{piece}" if tagged and piece.startswith("</") else piece for piece in pieces)
            places = [_place(piece, begun) for piece in pieces]
            crossed = sum(earlier <= later for earlier, later in pairwise(places))
            ranked.append((_unbalanced(text), crossed, -len(pieces), value_closer, len(ranked), text))
    return next((text for *_, text in sorted(ranked) if _reads_back(format, text)), None)


def _message(format: Format, tools: ToolSyntax, header: str) -> str | None:
    """A call whose frame is a whole message."""
    assert format.messages is not None
    if not isinstance(tools.arguments, JsonObject):
        header = header.removesuffix(" <|constrain|>json")
    choices = _Choices(True, 0, 0, {"header": header})
    text = _write(format.messages.headers[0], choices)
    if isinstance(tools.arguments, Tagged):
        text += "\n".join(_write(pattern, choices) for pattern in tools.arguments.skipped)
    text = _joined(text, _arguments(tools.arguments, choices))
    ends = format.messages.ends
    end = next((spelling for spelling in ends if "call" in spelling), ends[0])
    for tail in ("".join(literal(closer) for closer in tools.closers) + end, end, ""):
        if not (tail and text.endswith(tail)) and _reads_back(format, text + tail):
            return text + tail
    return None


def _tails(tools: ToolSyntax, begun: str) -> Iterator[tuple[str, ...]]:
    """What may follow the arguments, in pieces."""
    frames = tuple(frame for frame in map(literal, tools.frames) if _place(frame, begun) >= 0)
    closers = {_pieces(pattern): None for pattern in tools.closers if not begun.endswith(literal(pattern))}
    paired = [pieces for pieces in closers if all(_place(piece, begun) >= 0 for piece in pieces)]
    chosen = paired or list(closers)[: len(closers) == 1]
    several = [(*first, *second) for first, second in permutations(chosen, 2)]
    for framed, closer in product({frames: None, (): None}, [*chosen, *several, ()]):
        yield (*framed, *closer)
        yield (*closer, *framed)


def _pieces(closer: Pattern) -> tuple[str, ...]:
    """A closer's literals; a list's own bracket is a piece of its own."""
    text = literal(closer)
    return ("]", text[1:]) if text.startswith("]") and text[1:2] == "<" and not text[1:].startswith("<]") else (text,)


def _place(closer: str, text: str) -> int:
    """Where the text holds what this closes, the last of it; -1: nowhere."""
    openings = [closer.replace(old, new) for old, new in _PAIRS if old in closer]
    openings.append(closer.replace("<", "<|").replace("|>", ">"))
    return max((text.rfind(opening) for opening in openings if opening != closer), default=-1)


def _unbalanced(text: str) -> int:
    return sum(abs(text.count(opening) - text.count(closing)) for opening, closing in ("[]", "{}", "()"))


def _reads_back(format: Format, text: str) -> bool:
    ends = format.reasoning.ends if format.reasoning is not None else ()
    message = parse(text, format, _OPTIONS, prompt_tail=ends[0] if ends else None)
    if message.content or message.reasoning or message.notices or len(message.tool_calls) != 1:
        return False
    call = message.tool_calls[0]
    return call.name == SAMPLE_NAME and call.status == "complete" and json.loads(call.arguments) == SAMPLE_ARGUMENTS


def _joined(header: str, arguments: str) -> str:
    if header.endswith("```json"):
        return f"{header}\n{arguments}\n"
    if header.endswith(">") and _is_tag(arguments):
        return f"{header}\n{arguments}"
    return header + arguments


def _arguments(syntax: ArgumentSyntax, choices: _Choices) -> str:
    """The sample's arguments, as this syntax writes them."""
    match syntax:
        case JsonCall():
            return f'{{"name": "{SAMPLE_NAME}", "arguments": {_OBJECT}}}'
        case KeyedCall():
            return f'{{"{SAMPLE_NAME}": {_OBJECT}}}'
        case Literals():
            mark = syntax.quotes[0].mark
            space = " " if syntax.separator == "=" else ""
            pairs = (
                f"{key}{syntax.separator}{mark + value + mark if isinstance(value, str) else value}"
                for key, value in SAMPLE_ARGUMENTS.items()
            )
            return f",{space}".join(pairs) + syntax.closers[0]
        case NestedElements():
            prefix = syntax.prefix
            elements = (f"{prefix}<{key}>{value}{prefix}</{key}>" for key, value in SAMPLE_ARGUMENTS.items())
            return "".join(elements) + f"{prefix}</{syntax.call}>"
        case Tagged():
            return _tagged(syntax, choices)
    return _OBJECT


def _tagged(syntax: Tagged, choices: _Choices) -> str:
    frame = "\n" if syntax.framed else ""
    # A call that a special token ends is written in one line; one in tags, a tag a line.
    line = "\n" if syntax.call_closers[0].startswith("</") else ""
    parts = []
    for key, value in SAMPLE_ARGUMENTS.items():
        text = isinstance(value, str)
        written = choices.having(key=key, type="string" if text else "integer", string="true" if text else "false")
        header = _write(syntax.parameter, written)
        parts.append(f"{header}{frame}{value}{frame}{syntax.value_closers[choices.value_closer]}")
    return line.join((*parts, syntax.call_closers[0]))


def _write(pattern: Pattern, choices: _Choices, *, lines: bool = False) -> str:
    """A text that the pattern matches; blanks only where words would touch, or tags start a line."""
    text = ""
    blank = False
    quoted = False  # the text ends with the quote that closes something
    for item in pattern:
        if isinstance(item, Blanks):
            blank = True
            continue
        piece = _piece(item, choices)
        if piece and blank:
            if piece[0].isalnum() and (text[-1:].isalnum() or quoted):
                text += " "
            elif piece.startswith("```") or (lines and text.endswith(">") and _is_tag(piece)):
                text += "\n"
        blank = blank and not piece
        quoted = isinstance(item, Until) and item.stop == '"'
        text += piece
    return text


def _is_tag(text: str) -> bool:
    return text.startswith("<") and not text.startswith("<|")


def _piece(item: Item, choices: _Choices) -> str:
    match item:
        case Lit(text):
            return text
        case Name():
            return SAMPLE_NAME
        case Until(stop, capture):
            known = {"id": "a1b2c3d4e", "label": SAMPLE_NAME, "attributes": ' index="1"', **choices.captures}
            return known.get(capture, capture) + stop
        case Maybe(items):
            return _write(items, choices) if choices.optional else ""
        case Either(options):
            telling = any(isinstance(part, Lit) and len(part.text) > 1 for option in options for part in option)
            return _write(options[choices.option if telling and choices.option < len(options) else 0], choices)
    return ""
