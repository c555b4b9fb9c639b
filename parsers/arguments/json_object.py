"""Arguments written as one JSON object (or, by some models, as a JSON string that holds one).

Used where the header has the name: `NAME{...}`, and inside a call object (`json_calls`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..header import BLANK_CHARS
from .decoder import CallContext, End
from .json_value import JsonValue

__all__ = ["JsonArguments", "JsonObject", "JsonObjectDecoder"]

_plain: Final = re.compile(r'[^"\\]+').match
_unicode_escape: Final = re.compile(r"\\u[0-9a-fA-F]{4}").match
_surrogate: Final = re.compile(r"[\ud800-\udfff]")


class JsonArguments:
    """Reads an arguments value: an object as it is; a JSON string decoded once; `null` as `{}`.

    Attributes:
        end: COMPLETE or INVALID once it has ended, else None.
        value: the JSON check, for the fast path; None before the value's first character.
    """

    __slots__ = ("_encoded", "_null", "end", "value")

    def __init__(self) -> None:
        self.value: JsonValue | None = None
        self.end: End | None = None
        self._encoded = False
        self._null = False

    def feed(self, text: str, pos: int, out: list[str]) -> int:
        """Take the value's text from `pos`; see `Decoder.feed`."""
        if self.value is None:
            while pos < len(text) and text[pos] in BLANK_CHARS:
                pos += 1
            if pos == len(text):
                return pos
            char = text[pos]
            if char not in '{"n':
                self.end = End.INVALID
                return pos
            self.value = JsonValue()
            self._null = char == "n"
            if char == '"':
                self._encoded = True
                pos += 1
        if self._encoded:
            return self._feed_encoded(text, pos, out)
        pos = self.value.feed(text, pos, [] if self._null else out)
        if self.value.done:
            self.end = End.COMPLETE
            if self._null:
                out.append("{}")
        elif self.value.invalid:
            self.end = End.INVALID
        return pos

    def quick(self) -> Callable[[str], str | None] | None:
        """See `Decoder.quick`."""
        if self.value is None or self._encoded or self._null or self.end is not None:
            return None
        return self.value.passed

    def _feed_encoded(self, text: str, pos: int, out: list[str]) -> int:
        value = self.value
        assert value is not None
        while pos < len(text):
            char = text[pos]
            if char == '"':
                if not value.done and not self._untouched:
                    self.end = End.INVALID
                    return pos
                if self._untouched:
                    out.append("{}")
                self.end = End.COMPLETE
                return pos + 1
            if char == "\\":
                size = _escape_size(text, pos)
                if size == 0:
                    return pos
                try:
                    decoded = json.loads(f'"{text[pos : pos + size]}"')
                except ValueError:
                    self.end = End.INVALID
                    return pos
                # Half a pair stays an escape: as a character it could not be sent.
                piece = _surrogate.sub(lambda match: f"\\u{ord(match[0]):04x}", decoded)
            else:
                match = _plain(text, pos)
                assert match is not None
                piece = match[0]
                size = 0  # as far as it is taken: what follows the object in it is looked at in the next round
            taken = self._feed_decoded(piece, out)
            if self.end is not None:
                return pos if size else pos + taken
            pos += size or taken
        return pos

    def _feed_decoded(self, piece: str, out: list[str]) -> int:
        """Take decoded text up to the object's end; blanks may stand around it."""
        value = self.value
        assert value is not None
        at = 0
        if value.done or self._untouched:
            at = len(piece) - len(piece.lstrip(BLANK_CHARS))
            if at == len(piece):
                return at
            if value.done or piece[at] != "{":
                self.end = End.INVALID
                return at
        at = value.feed(piece, at, out)
        if value.invalid:
            self.end = End.INVALID
        return at

    @property
    def _untouched(self) -> bool:
        return self.value is not None and self.value.untouched


def _escape_size(text: str, pos: int) -> int:
    """Characters of the escape at `pos`, both halves of a surrogate pair together; 0: not all there."""
    if text[pos + 1 : pos + 2] != "u":
        return 2 if pos + 1 < len(text) else 0
    if len(text) - pos < 6:
        return 0
    if text[pos + 2 : pos + 4].lower() not in ("d8", "d9", "da", "db"):
        return 6
    follows = text[pos + 6 : pos + 12]
    if len(follows) < 6 and "\\u".startswith(follows[:2]):
        return 0
    return 12 if _unicode_escape(follows) else 6


class JsonObjectDecoder:
    """A call whose header has the name and whose body is the arguments object."""

    __slots__ = ("_arguments", "end", "id", "name")

    def __init__(self, context: CallContext) -> None:
        self.name = context.name
        self.id = context.id
        self.end: End | None = None
        self._arguments = JsonArguments()

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        pos = self._arguments.feed(text, pos, out)
        self.end = self._arguments.end
        return pos

    def quick(self) -> Callable[[str], str | None] | None:
        return self._arguments.quick()


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Syntax: the body is one JSON object; what closes the call are the format's closers."""

    def decoder(self, context: CallContext) -> JsonObjectDecoder:
        return JsonObjectDecoder(context)

    def translated(self, spell: Callable[[str], str]) -> JsonObject:
        return self
