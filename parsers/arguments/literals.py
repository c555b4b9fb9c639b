"""Arguments written as literals: Python calls `f(a=1, b='x')`, Gemma's `{a:1,b:<|"|>x<|"|>}`.

One reader for both; brackets, separators and quotes are data. Strings stream as they come, with
escapes decoded where the quotes have any; numbers and words are held to their end, which is near.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final

from ..candidates import candidate_regex
from ..header import BLANK_CHARS
from ..schema import ANY_STRING, ParameterType, convert
from .decoder import CallContext, End

__all__ = ["Literals", "LiteralsDecoder", "Quote"]

_KEY: Final = 0
_SEPARATOR: Final = 1
_VALUE: Final = 2
_AFTER: Final = 3
_STRING: Final = 4
_SCALAR: Final = 5

_bare_key: Final = re.compile(r"[^\W\d][\w.\-]*").match
_scalar_end: Final = re.compile(r"[,\])}\n]").search
_number: Final = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?").fullmatch

_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_SIMPLE_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": "",
    "\\": "\\", "'": "'", '"': '"', "/": "/",
}  # fmt: skip
_CODE_ESCAPES: Final = {"x": 2, "u": 4, "U": 8}

_KEY_LIMIT: Final = 256
"""Longest key or scalar, in characters."""


@dataclass(frozen=True, slots=True)
class Quote:
    """How a string is quoted.

    Args:
        mark: what opens and closes it.
        escapes: a backslash escapes in it, as in Python and JSON.
        typed: what it holds is read by the schema: a number is a number all the same.
    """

    mark: str
    escapes: bool = False
    typed: bool = False


@dataclass(frozen=True, slots=True)
class Literals:
    """Syntax: key-value pairs; the header has taken the opening bracket.

    Args:
        closers: brackets that close the arguments.
        separator: between a key and its value (inside nested objects always ":").
        quotes: the kinds of strings.
        bare_strings: a word that is no literal is a string, or what the schema makes of it; else invalid.
    """

    closers: str
    separator: str
    quotes: tuple[Quote, ...]
    bare_strings: bool = False

    def decoder(self, context: CallContext) -> LiteralsDecoder:
        return LiteralsDecoder(self, context)

    def translated(self, spell: Callable[[str], str]) -> Literals:
        quotes = tuple(Quote(spell(quote.mark), quote.escapes, quote.typed) for quote in self.quotes)
        return Literals(self.closers, self.separator, quotes, self.bare_strings)


@lru_cache(maxsize=256)
def _stop(quote: Quote) -> Callable[..., re.Match[str] | None]:
    """Finds where a string's plain run ends: at its mark (or a beginning of it at the end), or an escape."""
    return candidate_regex((quote.mark, "\\") if quote.escapes else (quote.mark,))


class LiteralsDecoder:
    """Reads one call's arguments; see `Decoder`."""

    __slots__ = (
        "_at", "_context", "_data", "_held", "_key_open", "_kind", "_pieces", "_quote", "_seen", "_stack",
        "_started", "_stop", "_streams", "end", "id", "name",
    )  # fmt: skip

    def __init__(self, data: Literals, context: CallContext) -> None:
        self.name = context.name
        self.id = context.id
        self.end: End | None = None
        self._data = data
        self._context = context
        self._at = _KEY
        self._stack: list[str] = []  # closers of open nested containers; the arguments' own is not on it
        self._started = False  # the innermost container has a member
        self._seen: set[str] = set()
        self._kind: ParameterType = ANY_STRING  # of the running argument
        self._quote: Quote | None = None
        self._stop: Callable[..., re.Match[str] | None] = _stop(data.quotes[0])  # where its plain run ends
        self._key_open = False  # the running string is a key
        self._streams = False  # the running string goes out as it comes; else it is held in `_pieces`
        self._pieces: list[str] = []
        self._held = 0

    def quick(self) -> Callable[[str], str | None] | None:
        return self._quick if self._at == _STRING and self._streams else None

    def _quick(self, text: str) -> str | None:
        return None if self._stop(text) else encode_basestring(text)[1:-1]

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        while self.end is None:
            if self._at != _STRING:
                while pos < len(text) and text[pos] in BLANK_CHARS and self._at != _SCALAR:
                    pos += 1
            if pos >= len(text):
                break
            before = pos, self._at
            pos = self._step(text, pos, out, final)
            if before == (pos, self._at):
                break  # held
        return pos

    def _step(self, text: str, pos: int, out: list[str], final: bool) -> int:
        match self._at:
            case 0:
                return self._read_key(text, pos, out, final)
            case 1:
                separators = ":" if self._stack else self._data.separator
                if text[pos] not in separators:
                    return self._broken(pos)
                self._at = _VALUE
                return pos + 1
            case 2:
                return self._begin_value(text, pos, out, final)
            case 3:
                return self._after_value(text, pos, out)
            case 4:
                return self._read_string(text, pos, out, final)
            case _:
                return self._read_scalar(text, pos, out)

    # --- containers -------------------------------------------------------------------------

    def _read_key(self, text: str, pos: int, out: list[str], final: bool) -> int:
        if self._closes(text[pos]):
            return self._close(pos, out)
        quote = self._quote_at(text, pos, final)
        if quote is not None:
            return self._open_string(quote, pos) if quote.mark else pos
        match = _bare_key(text, pos)
        if match is None or match.end() - pos > _KEY_LIMIT:
            return self._broken(pos)
        if match.end() == len(text):
            return pos  # it may go on; at the output's end it is half a key
        self._member(match[0], out, pos)
        return match.end()

    def _member(self, key: str, out: list[str], pos: int) -> None:
        if not self._stack:
            if key in self._seen:
                self._context.note("repeated_parameter", pos)
            self._seen.add(key)
            self._kind = self._context.tools.of(self.name or "").of(key)
        comma = ", " if self._started else "" if self._stack else "{"
        out.append(f"{comma}{encode_basestring(key)}: ")
        self._started = True
        self._at = _SEPARATOR

    def _after_value(self, text: str, pos: int, out: list[str]) -> int:
        char = text[pos]
        if char == ",":
            self._at = _KEY if not self._stack or self._stack[-1] == "}" else _VALUE
            return pos + 1
        return self._close(pos, out) if self._closes(char) else self._broken(pos)

    def _closes(self, char: str) -> bool:
        return char == self._stack[-1] if self._stack else char in self._data.closers

    def _close(self, pos: int, out: list[str]) -> int:
        if not self._stack:
            out.append("}" if self._started else "{}")
            self.end = End.COMPLETE
            return pos + 1
        closer = self._stack.pop()
        out.append("}" if closer == "}" else "]")
        self._started = True
        self._at = _AFTER
        return pos + 1

    def _open(self, closer: str, pos: int, out: list[str]) -> int:
        out.append("{" if closer == "}" else "[")
        self._stack.append(closer)
        self._started = False
        self._at = _KEY if closer == "}" else _VALUE
        return pos + 1

    # --- values -----------------------------------------------------------------------------

    def _begin_value(self, text: str, pos: int, out: list[str], final: bool) -> int:
        char = text[pos]
        in_array = bool(self._stack) and self._stack[-1] != "}"
        if in_array and self._closes(char):
            return self._close(pos, out)
        quote = self._quote_at(text, pos, final)
        if quote is not None and not quote.mark:
            return pos
        if char in ",])}":
            return self._broken(pos)
        if in_array:
            if self._started:
                out.append(", ")
            self._started = True
        if quote is not None:
            self._streams = not (quote.typed and not self._stack and not self._kind.is_string)
            if self._streams:
                out.append('"')
            return self._open_string(quote, pos)
        if char in "[({":
            return self._open({"[": "]", "(": ")", "{": "}"}[char], pos, out)
        self._at = _SCALAR
        return pos

    def _quote_at(self, text: str, pos: int, final: bool) -> Quote | None:
        """The quote that opens at `pos`; one without a mark: it may still become one."""
        for quote in self._data.quotes:
            if text.startswith(quote.mark, pos):
                return quote
            if not final and len(text) - pos < len(quote.mark) and quote.mark.startswith(text[pos:]):
                return _UNDECIDED
        return None

    def _open_string(self, quote: Quote, pos: int) -> int:
        self._key_open = self._at == _KEY
        if self._key_open:
            self._streams = False
        self._quote = quote
        self._stop = _stop(quote)
        self._pieces.clear()
        self._held = 0
        self._at = _STRING
        return pos + len(quote.mark)

    def _read_string(self, text: str, pos: int, out: list[str], final: bool) -> int:
        quote = self._quote
        assert quote is not None
        match = self._stop(text, pos)
        at = match.start() if match else len(text)
        if at > pos:
            self._add(text[pos:at], out)
            if self.end is not None:
                return at
        if match is None:
            return at
        if text.startswith(quote.mark, at):
            self._end_string(out, at)
            return at + len(quote.mark)
        if quote.escapes and text[at] == "\\":
            size, piece = _escape(text, at)
            if size:
                if not "\ud800" <= piece <= "\udfff":
                    self._add(piece, out)
                elif self._streams:  # half a pair: sent as the escape it is, for the other half to join
                    out.append(f"\\u{ord(piece):04x}")
                else:
                    self._add("\ufffd", out)
                return at + size
        elif final:
            self._add(text[at:], out)
            return len(text)
        return at

    def _add(self, piece: str, out: list[str]) -> None:
        if self._streams:
            out.append(encode_basestring(piece)[1:-1])
            return
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > (_KEY_LIMIT if self._key_open else self._context.max_held):
            self._pieces.clear()
            self._context.note("held_text_released", -1)
            self.end = End.INVALID

    def _end_string(self, out: list[str], pos: int) -> None:
        if self._streams:
            out.append('"')
            self._at = _AFTER
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        if self._key_open:
            self._member(text, out, pos)
        else:
            self._typed(text, out, pos)
            self._at = _AFTER

    def _typed(self, text: str, out: list[str], pos: int) -> None:
        value, fits = convert(text, self._kind)
        out.append(value)
        if not fits:
            self._context.note("value_type_mismatch", pos)

    def _read_scalar(self, text: str, pos: int, out: list[str]) -> int:
        match = _scalar_end(text, pos)
        end = match.start() if match else len(text)
        if end - pos > _KEY_LIMIT:
            return self._broken(pos)
        if match is None:
            return pos  # it may go on; at the output's end it is half a value
        word = text[pos:end].strip(BLANK_CHARS)
        value = _WORDS.get(word) or _json_number(word)
        if value is None and not self._data.bare_strings:
            return self._broken(pos)
        if self._data.bare_strings and not self._stack and (value is None or self._kind.kinds):
            self._typed(word, out, pos)
        else:
            out.append(value if value is not None else encode_basestring(word))
        self._at = _AFTER
        return end

    def _broken(self, pos: int) -> int:
        self.end = End.INVALID
        return pos


_UNDECIDED: Final = Quote("")


def _escape(text: str, pos: int) -> tuple[int, str]:
    """Size of the escape at `pos` and what it means; (0, ""): not all there. Unknown ones stay as written."""
    if pos + 1 >= len(text):
        return 0, ""
    char = text[pos + 1]
    digits = _CODE_ESCAPES.get(char)
    if digits is None:
        return 2, _SIMPLE_ESCAPES.get(char, text[pos : pos + 2])
    end = pos + 2 + digits
    if end > len(text):
        return 0, ""
    try:
        return end - pos, chr(int(text[pos + 2 : end], 16))
    except (ValueError, OverflowError):
        return 2, text[pos : pos + 2]


def _json_number(word: str) -> str | None:
    """A Python number as JSON writes it, or None."""
    if not _number(word):
        return None
    plain = word.replace("_", "").lstrip("+")
    try:
        return json.dumps(json.loads(plain))
    except ValueError:
        pass
    try:
        value = float(plain) if any(char in plain for char in ".eE") else int(plain)
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return None
