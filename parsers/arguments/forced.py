"""Arguments under a forced `tool_choice`: a named function's bare arguments object, or a call object.

PROTOCOL 5, tool_choice: an object is the arguments, unless its first key is one of a call object's,
the schema does not declare that key, and `name` is the named function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..header import BLANK_CHARS, HEADER_LIMIT
from .decoder import CallContext, End
from .json_calls import JsonCallDecoder
from .json_object import JsonArguments

__all__ = ["FORCED_KEYS", "NamedObject", "NamedObjectDecoder"]

FORCED_KEYS: Final = ("name", "parameters", "arguments", "type", "function")
"""First keys by which a forced object is a call object."""

_first_key: Final = re.compile(r'\{[ \t\n\r\x0b\x0c]*"((?:[^"\\]|\\.)*)"', re.DOTALL).match


class NamedObjectDecoder:
    """Decides by the first key what the object is, and then reads it; see `Decoder`."""

    __slots__ = ("_call", "_context", "_plain", "_raw", "end", "id", "name")

    def __init__(self, context: CallContext) -> None:
        self.name: str | None = None
        self.id = ""
        self.end: End | None = None
        self._context = context
        self._plain: JsonArguments | None = None
        self._call: JsonCallDecoder | None = None
        self._raw: list[str] = []  # while a call object has not said its name

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        if self._plain is None and self._call is None and not self._decide(text, pos, final):
            return pos
        if self._call is not None:
            call_out: list[str] = []
            end = self._call.feed(text, pos, call_out, final, stopped)
            if self.name is not None:
                out.extend(call_out)
                self.end = self._call.end
                return end
            self._raw.append(text[pos:end])
            if self._call.name == self._context.function:
                self.name = self._call.name
                self.end = self._call.end
                self._raw.clear()
                out.extend(call_out)
                return end
            if self._call.name is None and self._call.end is None:
                return end
            # The object is the arguments after all; what was kept is a valid beginning of it.
            self._call = None
            self._plain = JsonArguments()
            self.name = self._context.function
            self._feed_plain("".join(self._raw), 0, out)
            self._raw.clear()
            pos = end
        return self._feed_plain(text, pos, out)

    def _decide(self, text: str, pos: int, final: bool) -> bool:
        match = _first_key(text, pos)
        if match is None:
            rest = text[pos + 1 :].lstrip(BLANK_CHARS)
            if not final and (not rest or rest[0] == '"') and len(text) - pos < HEADER_LIMIT:
                return False
        key = match[1] if match is not None else ""
        function = self._context.function or ""
        if key in FORCED_KEYS and key not in self._context.tools.of(function).parameters:
            self._call = JsonCallDecoder(self._context)
        else:
            self._plain = JsonArguments()
            self.name = self._context.function
        return True

    def _feed_plain(self, text: str, pos: int, out: list[str]) -> int:
        assert self._plain is not None
        pos = self._plain.feed(text, pos, out)
        self.end = self._plain.end
        return pos

    def quick(self) -> Callable[[str], str | None] | None:
        if self._plain is not None:
            return self._plain.quick()
        return self._call.quick() if self._call is not None and self.name is not None else None


@dataclass(frozen=True, slots=True)
class NamedObject:
    """Syntax: the forced object of a named function."""

    def decoder(self, context: CallContext) -> NamedObjectDecoder:
        return NamedObjectDecoder(context)

    def translated(self, spell: Callable[[str], str]) -> NamedObject:
        return self
