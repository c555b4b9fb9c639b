"""A JSON value checked as it streams: what may follow is known at every character.

Text passes through as the model wrote it (PROTOCOL 2); sending stops before the first character
that cannot continue valid JSON. The check is a table of rows, `{character: next row}`: the common
path costs one dictionary look-up per structural character and one regular-expression search per
run inside a string. Nothing of the value is kept but the nesting.
"""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["JsonValue", "escape_control"]

_string_stop: Final = re.compile(r'["\\\x00-\x1f]').search


class _Row(dict[str, Any]):
    """What may come next, by character; brackets and quotes by the attributes.

    string: the row after a string that starts here, or None where none may.
    value: the row to go on with after a container that opens here, or None.
    close: the bracket that may close the running container here, or "".
    """

    __slots__ = ("close", "string", "value")

    def __init__(self, close: str = "") -> None:
        super().__init__()
        self.string: _Row | None = None
        self.value: _Row | None = None
        self.close = close


_BLANKS: Final = " \t\n\r"
_STRING: Final = _Row()
_ESCAPE: Final = _Row()


def _escapes() -> None:
    for char in '"\\/bfnrt':
        _ESCAPE[char] = _STRING
    row = _STRING
    for _ in range(4):
        digit = _Row()
        digit.update(dict.fromkeys("0123456789abcdefABCDEF", row))
        row = digit
    _ESCAPE["u"] = row


def _values(first: _Row, after: _Row) -> None:
    """Let `first` begin any value, after which `after` goes on."""
    first.string = after
    first.value = after
    for word in ("true", "false", "null"):
        row = after
        for char in reversed(word[1:]):
            earlier = _Row()
            earlier[char] = row
            row = earlier
        first[word[0]] = row
    # A number's rows can also end the value, so they copy what `after` allows.
    exponent, whole, fraction = _Row(after.close), _Row(after.close), _Row(after.close)
    zero = _Row(after.close)
    for row in (exponent, whole, fraction, zero):
        row.update(after)
    digits = "0123456789"
    sign, mantissa, point, minus = _Row(), _Row(), _Row(), _Row()
    exponent.update(dict.fromkeys(digits, exponent))
    sign.update(dict.fromkeys(digits, exponent))
    mantissa.update(sign)
    mantissa.update({"+": sign, "-": sign})
    fraction.update(dict.fromkeys(digits, fraction))
    fraction.update({"e": mantissa, "E": mantissa})
    point.update(dict.fromkeys(digits, fraction))
    zero.update({".": point, "e": mantissa, "E": mantissa})
    whole.update(zero)
    whole.update(dict.fromkeys(digits, whole))
    minus["0"] = first["0"] = zero
    minus.update(dict.fromkeys("123456789", whole))
    first.update(dict.fromkeys("123456789", whole))
    first["-"] = minus


def _blank(row: _Row) -> _Row:
    row.update(dict.fromkeys(_BLANKS, row))
    return row


def _build() -> tuple[_Row, _Row, _Row, _Row]:
    """Rows of the machine: the first, and those just after `{`, after `[`, and at the end."""
    _escapes()
    end = _Row()
    after_member, after_element = _blank(_Row("}")), _blank(_Row("]"))
    first_key, key, colon = _blank(_Row("}")), _blank(_Row()), _blank(_Row())
    member, first_element, element, top = _blank(_Row()), _blank(_Row("]")), _blank(_Row()), _blank(_Row())
    first_key.string = key.string = colon
    colon[":"] = member
    after_member[","] = key
    after_element[","] = element
    _values(member, after_member)
    _values(first_element, after_element)
    _values(element, after_element)
    _values(top, end)
    return top, first_key, first_element, end


_TOP, _FIRST_KEY, _FIRST_ELEMENT, _END = _build()


class JsonValue:
    """Reads one JSON value that starts with a bracket, a quote, a literal or a number.

    Attributes:
        done: the value is complete (a bare number never is by itself: the caller knows its end).
        invalid: the last `feed` stopped before a character that cannot continue the value.
    """

    __slots__ = ("_after", "_row", "_stack", "done", "invalid")

    def __init__(self) -> None:
        self._row = _TOP
        self._after: _Row = _END
        # Rows to go on with once the open containers close: ((None, row), row), innermost last.
        self._stack: tuple[Any, _Row] | None = None
        self.done = False
        self.invalid = False

    @property
    def untouched(self) -> bool:
        """Has nothing of the value come yet?"""
        return self._row is _TOP

    @property
    def is_complete_scalar(self) -> bool:
        """Could a bare number end here?"""
        return self._stack is None and self._row is not _TOP and self._row is not _STRING and self._row.string is None

    def passed(self, text: str) -> str | None:
        """Take all of `text` if it passes unchanged and the value goes on after it; else take nothing."""
        if self._row is _STRING and _string_stop(text) is None:
            return text
        row, stack, after, end = self._scan(text, 0)
        if end < len(text) or row is _END:
            return None
        self._row, self._stack, self._after = row, stack, after
        return text

    def feed(self, text: str, pos: int, out: list[str]) -> int:
        """Take what continues the value from `pos`, append it to `out`, and say where that ends.

        Raw control characters inside strings are written escaped, the first of the three changes
        that PROTOCOL 2 allows. Sets `done` and `invalid`.
        """
        size = len(text)
        while True:
            self._row, self._stack, self._after, end = self._scan(text, pos)
            if end > pos:
                out.append(text[pos:end])
            pos = end
            if self._row is _END:
                self.done = True
                return pos
            if pos == size:
                return pos
            if self._row is not _STRING:
                self.invalid = True
                return pos
            out.append(escape_control(text[pos]))
            pos += 1

    def _scan(self, text: str, pos: int) -> tuple[_Row, tuple[Any, _Row] | None, _Row, int]:
        """Walk from `pos` until the text ends, the value ends, or a character does not fit."""
        row, stack, after = self._row, self._stack, self._after
        size = len(text)
        while pos < size:
            if row is _STRING:
                match = _string_stop(text, pos)
                if match is None:
                    return row, stack, after, size
                pos = match.start()
                char = text[pos]
                if char == '"':
                    row = after
                elif char == "\\":
                    row = _ESCAPE
                else:
                    break
            else:
                char = text[pos]
                following = row.get(char)
                if following is not None:
                    row = following
                elif char == '"':
                    if row.string is None:
                        break
                    after = row.string
                    row = _STRING
                elif char == "{" or char == "[":
                    if row.value is None:
                        break
                    stack = (stack, row.value)
                    row = _FIRST_KEY if char == "{" else _FIRST_ELEMENT
                elif row.close == char and stack is not None:
                    stack, row = stack
                else:
                    break
            pos += 1
            if row is _END:
                break
        return row, stack, after, pos


def escape_control(char: str) -> str:
    """One raw control character as JSON writes it inside a string."""
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
