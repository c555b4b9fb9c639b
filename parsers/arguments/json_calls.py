"""A call written as one JSON object: `{"name": "f", "arguments": {...}}`.

Keys in any order, `arguments`, `parameters` or `args`, the whole nested under `function`, other
members skipped. Arguments that come before the name are checked and held until the name is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..header import BLANK_CHARS, HEADER_LIMIT, Ahead, Blanks, Either, Lit, Name
from ..request import valid_name
from .decoder import CallContext, End
from .json_object import JsonArguments
from .json_value import JsonValue

__all__ = [
    "CALL_KEYS",
    "CALL_OBJECT_AHEAD",
    "JsonCall",
    "JsonCallDecoder",
    "KeyedCall",
    "KeyedCallDecoder",
    "call_object_ahead",
    "keyed_ahead",
]

CALL_KEYS: Final = (
    "name", "arguments", "parameters", "args", "type", "function", "id", "tool_name", "tool_call_id",
)  # fmt: skip
"""First keys that make an object plausible as a call (PROTOCOL 5)."""

_NAME_KEYS: Final = frozenset({"name", "tool_name"})
_ARGUMENT_KEYS: Final = frozenset({"arguments", "parameters", "args"})
_ID_KEYS: Final = frozenset({"id", "tool_call_id"})

_string: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match


def call_object_ahead(keys: tuple[str, ...]) -> Ahead:
    """Look-ahead: `{` and one of `keys` with its colon, blanks aside."""
    quoted = Either(tuple((Lit(f'"{key}"'),) for key in keys))
    return Ahead(((Lit("{"), Blanks(), quoted, Blanks(), Lit(":")),))


CALL_OBJECT_AHEAD: Final = call_object_ahead(CALL_KEYS)


# Where in the call object the decoder is (plain numbers: a match on an Enum costs more than the step).
_OPEN: Final = 0
_FIRST_KEY: Final = 1
_KEY: Final = 2
_COLON: Final = 3
_VALUE: Final = 4
_AFTER: Final = 5


_PUNCTUATION: Final = {_OPEN: "{", _COLON: ":", _AFTER: ","}
_FOLLOWING: Final = {_OPEN: _FIRST_KEY, _COLON: _VALUE, _AFTER: _KEY}


class JsonCallDecoder:
    """Reads one call object; see `Decoder`."""

    __slots__ = ("_arguments", "_at", "_depth", "_early", "_key", "_skipped", "end", "id", "name")

    def __init__(self, context: CallContext) -> None:
        self.name = context.name
        self.id = context.id
        self.end: End | None = None
        self._at = _OPEN
        self._depth = 0
        self._key = ""
        self._arguments: JsonArguments | None = None
        self._skipped: JsonValue | None = None
        self._early: list[str] = []  # arguments that came before the name

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        while self.end is None:
            if self._at != _VALUE:
                while pos < len(text) and text[pos] in BLANK_CHARS:
                    pos += 1
            if pos == len(text):
                break
            before = pos, self._at
            pos = self._step(text, pos, out)
            if before == (pos, self._at):
                break  # held: a string or an escape is not whole yet
        return pos

    def quick(self) -> Callable[[str], str | None] | None:
        if self._at == _VALUE and self.name is not None and self._arguments is not None and not self._arguments.end:
            return self._arguments.quick()
        return None

    def _step(self, text: str, pos: int, out: list[str]) -> int:
        at = self._at
        if at == _VALUE:
            return self._read_value(text, pos, out)
        char = text[pos]
        if at in (_FIRST_KEY, _KEY):
            return self._close(pos, out) if char == "}" and at == _FIRST_KEY else self._read_key(text, pos)
        if char == _PUNCTUATION[at]:
            self._depth += at == _OPEN
            self._at = _FOLLOWING[at]
            return pos + 1
        if at == _AFTER:
            if char == "}":
                return self._close(pos, out)
            if self.name is not None and self._arguments is not None:
                self.end = End.UNCLOSED
                return pos
        return self._broken(pos)

    def _read_key(self, text: str, pos: int) -> int:
        key, end = self._read_string(text, pos)
        if key is not None:
            self._key = key
            self._at = _COLON
        return end

    def _read_string(self, text: str, pos: int) -> tuple[str | None, int]:
        """A short JSON string at `pos`: its value and end; None while it is held or when it is broken."""
        match = _string(text, pos) if text[pos] == '"' else None
        if match is None and text[pos] == '"' and len(text) - pos < HEADER_LIMIT:
            return None, pos
        if match is None or len(match[0]) > HEADER_LIMIT:
            return None, self._broken(pos)
        if "\\" not in match[0]:
            return match[0][1:-1], match.end()
        try:
            return str(json.loads(match[0], strict=False)), match.end()
        except ValueError:
            return None, self._broken(pos)

    def _read_value(self, text: str, pos: int, out: list[str]) -> int:
        if self._skipped is not None:
            return self._skip(text, pos)
        if self._arguments is not None and self._arguments.end is None:
            return self._read_arguments(text, pos, out)
        while pos < len(text) and text[pos] in BLANK_CHARS:
            pos += 1
        if pos == len(text):
            return pos
        key, char = self._key, text[pos]
        if key in _ARGUMENT_KEYS and self._arguments is None:
            self._arguments = JsonArguments()
            return self._read_arguments(text, pos, out)
        if key == "function" and char == "{" and self.name is None and self._depth == 1:
            self._at = _OPEN
            return pos
        if self.name is None and (key in _NAME_KEYS or (key == "function" and char == '"')):
            name, pos = self._read_string(text, pos)
            if name is not None:
                if not valid_name(name):
                    return self._broken(pos)
                self.name = name
                out.extend(self._early)
                self._early.clear()
                self._at = _AFTER
            return pos
        if key in _ID_KEYS and char == '"' and not self.id and self._arguments is None:
            value, pos = self._read_string(text, pos)
            if value is not None:
                self.id = value
                self._at = _AFTER
            return pos
        self._skipped = JsonValue()
        return self._skip(text, pos)

    def _skip(self, text: str, pos: int) -> int:
        value = self._skipped
        assert value is not None
        pos = value.feed(text, pos, [])
        if value.done or (value.invalid and value.is_complete_scalar):
            self._skipped = None
            self._at = _AFTER
        elif value.invalid:
            return self._broken(pos)
        return pos

    def _read_arguments(self, text: str, pos: int, out: list[str]) -> int:
        arguments = self._arguments
        assert arguments is not None
        pos = arguments.feed(text, pos, out if self.name is not None else self._early)
        if arguments.end is End.COMPLETE:
            self._at = _AFTER
        elif arguments.end is End.INVALID:
            return self._broken(pos)
        return pos

    def _close(self, pos: int, out: list[str]) -> int:
        self._depth -= 1
        self._at = _AFTER
        if self._depth == 0:
            if self.name is None:
                self.end = End.FAILED
                return pos
            if self._arguments is None:
                out.append("{}")
            self.end = End.COMPLETE
        return pos + 1

    def _broken(self, pos: int) -> int:
        self.end = End.FAILED if self.name is None else End.INVALID
        return pos


@dataclass(frozen=True, slots=True)
class JsonCall:
    """Syntax: one call object, which begins at the `{` that the header looked ahead to."""

    def decoder(self, context: CallContext) -> JsonCallDecoder:
        return JsonCallDecoder(context)

    def translated(self, spell: Callable[[str], str]) -> JsonCall:
        return self


def keyed_ahead() -> Ahead:
    """Look-ahead: `{"NAME":`, the keyed form of a call; captures the name."""
    return Ahead(((Lit("{"), Blanks(), Lit('"'), Name(), Lit('"'), Blanks(), Lit(":")),))


class KeyedCallDecoder:
    """Reads `{"NAME": {...}}`; see `Decoder`. The header has looked at the name."""

    __slots__ = ("_arguments", "_at", "end", "id", "name")

    def __init__(self, context: CallContext) -> None:
        self.name = context.name
        self.id = context.id
        self.end: End | None = None
        self._at = _OPEN
        self._arguments = JsonArguments()

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        if self._at == _OPEN:
            # The header has looked as far as the colon; a name may hold colons too, so look behind its quote.
            quote = text.find('"', text.find('"', pos) + 1)
            colon = text.find(":", quote) if quote >= 0 else -1
            if colon < 0:
                return pos
            pos = colon + 1
            self._at = _VALUE
        if self._at == _VALUE:
            pos = self._arguments.feed(text, pos, out)
            if self._arguments.end is End.INVALID:
                self.end = End.INVALID
            if self._arguments.end is not End.COMPLETE:
                return pos
            self._at = _AFTER
        while pos < len(text) and text[pos] in BLANK_CHARS:
            pos += 1
        if pos < len(text):
            closed = text[pos] == "}"
            self.end = End.COMPLETE if closed else End.UNCLOSED
            pos += closed
        return pos

    def quick(self) -> Callable[[str], str | None] | None:
        return self._arguments.quick() if self._at == _VALUE and self._arguments.end is None else None


@dataclass(frozen=True, slots=True)
class KeyedCall:
    """Syntax: one call object whose only key is the function's name."""

    def decoder(self, context: CallContext) -> KeyedCallDecoder:
        return KeyedCallDecoder(context)

    def translated(self, spell: Callable[[str], str]) -> KeyedCall:
        return self
