"""Is a text the beginning of some JSON text? Written without the parser's own tables, to check them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_prefix"]

_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*("?)')
_TAIL: Final = re.compile(r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGUN: Final = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?")


class _EndError(Exception):
    """The text ended where more may come."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def peek(self) -> str:
        blanks = _BLANKS.match(self.text, self.pos)
        assert blanks is not None
        self.pos = blanks.end()
        if self.pos == len(self.text):
            raise _EndError
        return self.text[self.pos]

    def expect(self, char: str) -> None:
        if self.peek() != char:
            raise ValueError(f"{char!r} expected at {self.pos}")
        self.pos += 1

    def string(self) -> None:
        match = _STRING.match(self.text, self.pos)
        if match is None:
            raise ValueError(f"string expected at {self.pos}")
        self.pos = match.end()
        if not match[1]:
            if _TAIL.fullmatch(self.text, self.pos) is None:
                raise ValueError(f"bad string at {self.pos}")
            raise _EndError

    def scalar(self) -> None:
        for word in ("true", "false", "null"):
            if self.text.startswith(word, self.pos):
                self.pos += len(word)
                return
            if word.startswith(self.text[self.pos :]):
                raise _EndError
        if _NUMBER_BEGUN.fullmatch(self.text, self.pos) is not None:
            raise _EndError
        match = _NUMBER.match(self.text, self.pos)
        if match is None:
            raise ValueError(f"value expected at {self.pos}")
        self.pos = match.end()

    def value(self) -> None:
        char = self.peek()
        if char == "{":
            self.members("}", keyed=True)
        elif char == "[":
            self.members("]", keyed=False)
        elif char == '"':
            self.string()
        else:
            self.scalar()

    def members(self, close: str, *, keyed: bool) -> None:
        self.pos += 1
        if self.peek() == close:
            self.pos += 1
            return
        while True:
            if keyed:
                self.peek()
                self.string()
                self.expect(":")
            self.value()
            if self.peek() == close:
                self.pos += 1
                return
            self.expect(",")


def is_prefix(text: str) -> bool:
    """May more text make valid JSON of it? (Whole JSON text is a prefix too.)"""
    reader = _Reader(text)
    try:
        reader.value()
    except _EndError:
        return True
    except ValueError:
        return False
    return not text[reader.pos :].strip(" \t\n\r")
