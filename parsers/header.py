"""Header patterns: what a terminal looks like, as data, and the one matcher that reads them.

A pattern is a tuple of items. Each item's `step` says where it ended, or NO, or MORE: the text so
far may still become a match. Partial input is thereby handled in one place: the engine acts on a
match, holds on MORE, and takes NO as text. An item that matched is never matched again
(`Attempt`), so a header that arrives in many pieces costs no more than one that arrives whole.

Bounds count characters of the text, so that no chunking shows (PROTOCOL 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final, Protocol, TypeAlias

from .candidates import beginning_regex

__all__ = [
    "BLANK_LIMIT",
    "HEADER_LIMIT",
    "MORE",
    "NO",
    "Ahead",
    "Attempt",
    "Blanks",
    "Either",
    "Item",
    "Lit",
    "Mark",
    "Maybe",
    "Name",
    "Pattern",
    "Until",
    "first_literals",
    "here",
    "run",
    "translate",
]

NO: Final = -1
MORE: Final = -2

HEADER_LIMIT: Final = 512
"""Most characters of a header (PROTOCOL 1). What is still undecided is bounded by each item's own limit."""

BLANK_LIMIT: Final = 64
"""Most blanks in a row inside a header (PROTOCOL 1)."""

BLANK_CHARS: Final = " \t\n\r\x0b\x0c"

_blanks: Final = re.compile(r"[ \t\n\r\x0b\x0c]*").match
_name: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}").match


class Item(Protocol):
    """One piece of a pattern."""

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        """Match at `pos`: the end of the match, NO, or MORE (never MORE when `final`)."""
        ...

    def translated(self, spell: Callable[[str], str]) -> Item:
        """The same item with every literal passed through `spell`."""
        ...


Pattern: TypeAlias = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Lit:
    """Exactly this text."""

    text: str

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        literal = self.text
        if text.startswith(literal, pos):
            return pos + len(literal)
        rest = len(text) - pos
        if not final and rest < len(literal) and literal.startswith(text[pos:]):
            return MORE
        return NO

    def translated(self, spell: Callable[[str], str]) -> Lit:
        return Lit(spell(self.text))


@dataclass(frozen=True, slots=True)
class Blanks:
    """Any blanks, at most `BLANK_LIMIT`."""

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        match = _blanks(text, pos)
        end = match.end() if match else pos
        if end - pos > BLANK_LIMIT:
            return NO
        return MORE if end == len(text) and not final else end

    def translated(self, spell: Callable[[str], str]) -> Blanks:
        return self


@dataclass(frozen=True, slots=True)
class Name:
    """A function's name (PROTOCOL 5), captured."""

    capture: str = "name"

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        match = _name(text, pos)
        end = match.end() if match else pos
        if end == len(text) and not final:
            return MORE
        if end == pos:
            return NO
        captures[self.capture] = text[pos:end]
        return end

    def translated(self, spell: Callable[[str], str]) -> Name:
        return self


@dataclass(frozen=True, slots=True)
class Until:
    """Text up to and including `stop`, captured without it, stripped; none of `forbidden` in it."""

    stop: str
    capture: str
    forbidden: str = "\n<"
    limit: int = 256

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        end = text.find(self.stop, pos)
        inner = text[pos:end] if end >= 0 else _without_beginning(text[pos:], self.stop)
        if len(inner) > self.limit or any(char in inner for char in self.forbidden):
            return NO
        if end < 0:
            return NO if final else MORE
        captures[self.capture] = inner.strip()
        return end + len(self.stop)

    def translated(self, spell: Callable[[str], str]) -> Until:
        return Until(spell(self.stop), self.capture, self.forbidden, self.limit)


def _without_beginning(text: str, stop: str) -> str:
    """The text without a tail that may be a beginning of `stop`."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return text[:-size]
    return text


@dataclass(frozen=True, slots=True)
class Maybe:
    """These items, or nothing."""

    items: Pattern

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        end = run(self.items, text, pos, captures, final)
        return pos if end == NO else end

    def translated(self, spell: Callable[[str], str]) -> Maybe:
        return Maybe(translate(self.items, spell))


@dataclass(frozen=True, slots=True)
class Either:
    """The first alternative that does not say NO."""

    options: tuple[Pattern, ...]
    _literals: frozenset[str] = field(init=False, compare=False, repr=False)
    _begin: Callable[..., re.Match[str] | None] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Alternatives that are only literals are matched at once, where their order cannot matter.
        found = [option[0].text for option in self.options if len(option) == 1 and isinstance(option[0], Lit)]
        nested = any(one.startswith(other) for one, other in permutations(found, 2))
        literals = frozenset(found) if len(found) == len(self.options) and not nested else frozenset()
        object.__setattr__(self, "_literals", literals)
        object.__setattr__(self, "_begin", beginning_regex(literals))

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        if self._literals:
            match = self._begin(text, pos)
            if match is None:
                return NO
            if match[0] in self._literals:
                return match.end()
            return NO if final else MORE
        for option in self.options:
            end = run(option, text, pos, captures, final)
            if end != NO:
                return end
        return NO

    def translated(self, spell: Callable[[str], str]) -> Either:
        return Either(tuple(translate(option, spell) for option in self.options))


@dataclass(frozen=True, slots=True)
class Mark:
    """Nothing of the text: only a capture, which says which alternative this is."""

    capture: str
    value: str

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        captures[self.capture] = self.value
        return pos

    def translated(self, spell: Callable[[str], str]) -> Mark:
        return self


@dataclass(frozen=True, slots=True)
class Ahead:
    """One of these must follow; it is looked at, not taken. `end`: so may the end of the output."""

    options: tuple[Pattern, ...]
    end: bool = False

    def step(self, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
        if pos == len(text):
            return (pos if self.end else NO) if final else MORE
        for option in self.options:
            end = run(option, text, pos, captures, final)
            if end != NO:
                return MORE if end == MORE else pos
        return NO

    def translated(self, spell: Callable[[str], str]) -> Ahead:
        return Ahead(tuple(translate(option, spell) for option in self.options), self.end)


def run(pattern: Pattern, text: str, pos: int, captures: dict[str, str], final: bool) -> int:
    """Match the whole pattern at `pos`: where it ends, NO, or MORE."""
    for item in pattern:
        pos = item.step(text, pos, captures, final)
        if pos < 0:
            return pos
    return pos


def translate(pattern: Pattern, spell: Callable[[str], str]) -> Pattern:
    """The pattern with every literal respelled (the id view writes added tokens as one symbol)."""
    return tuple(item.translated(spell) for item in pattern)


def first_literals(pattern: Pattern) -> tuple[str, ...]:
    """The literals the pattern can begin with; () if it can begin with something else."""
    if not pattern:
        return ()
    head = pattern[0]
    if isinstance(head, Lit):
        return (head.text,)
    if isinstance(head, Either):
        options = [first_literals(option) for option in head.options]
        return tuple(literal for option in options for literal in option) if all(options) else ()
    return ()


def here(literal: str, *rest: Item) -> Pattern:
    """A pattern that is tried at a place only, never searched for: text may contain its literal."""
    return (Ahead(((Lit(literal),),)), Lit(literal), *rest)


class Attempt:
    """One pattern being matched at one place; it goes on where it stopped."""

    __slots__ = ("_index", "_offset", "captures", "pattern")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.captures: dict[str, str] = {}
        self._index = 0
        self._offset = 0

    def step(self, text: str, start: int, final: bool) -> int:
        """Go on matching the pattern that began at `start`: its end, NO, or MORE."""
        pos = start + self._offset
        index = self._index
        for item in self.pattern[index:] if index else self.pattern:
            end = item.step(text, pos, self.captures, final)
            if end < 0:
                self._index = index
                self._offset = pos - start
                return end
            index += 1
            pos = end
        return NO if pos - start > HEADER_LIMIT else pos
