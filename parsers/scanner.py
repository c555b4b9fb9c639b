"""Where is the next candidate, and what may it be: tables compiled for one view.

In the *text view* markers are found by spelling. In the *id view* an added token of the tokenizer
comes as a Delta of its own and only such a Delta is a marker; there each added spelling that a
format's literals contain is written as one symbol (a lone surrogate: a character that no decoded
text holds), in the literals and in the text alike. Everything else then works on plain strings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .candidates import candidate_regex
from .errors import FormatDefinitionError
from .format import Format, table
from .header import Lit, Pattern, first_literals, translate
from .states import State, Transition

__all__ = ["CompiledFormat", "Row", "StateScanner", "compile_format", "has_symbol"]

_FIRST_SYMBOL: Final = 0xD800
_REMOVED: Final = "\udfff"
"""Stands for every special token that is no terminal of the format."""

_symbols: Final = re.compile("[\ud800-\udfff]")
has_symbol: Final = _symbols.search


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a state: what is looked for and what it leads to."""

    pattern: Pattern
    transition: Transition


class StateScanner:
    """The rows of one state.

    Attributes:
        search: finds the next candidate: `search(text, pos)`.
        first: the one character all candidates begin with, or "" where there are several: a cheaper
            first look on the fast path.
    """

    __slots__ = ("_by_start", "first", "rows", "search")

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._by_start: dict[str, list[Row]] = {}
        starts: list[str] = []
        for row in self.rows:
            literals = first_literals(row.pattern)
            if not literals:
                continue  # tried where it is anchored, never searched for
            starts += literals
            for start in {part for literal in literals for part in (literal[:1], literal[:2])}:
                self._by_start.setdefault(start, []).append(row)
        self.search = candidate_regex(starts)
        firsts = {start[0] for start in starts}
        self.first = firsts.pop() if len(firsts) == 1 else ""

    def at(self, text: str, pos: int) -> list[Row]:
        """Rows that may match at `pos`."""
        by_start = self._by_start
        return by_start.get(text[pos : pos + 2]) or by_start.get(text[pos], _NO_ROWS)


_NO_ROWS: Final[list[Row]] = []


class CompiledFormat:
    """A format's tables for one view; immutable and shared.

    Attributes:
        format: what it was compiled from.
        id_view: markers that are added tokens come as Deltas of their own.
    """

    __slots__ = ("_by_symbol", "_data", "_special", "_symbol_of", "after", "format", "id_view", "markers", "scanners")

    def __init__(self, format: Format, tools: bool, added: frozenset[str] | None, special: frozenset[str]) -> None:
        self.format = format
        self.id_view = added is not None
        self.markers = format.markers()
        self._special = special
        literals = _literals(format)
        self._symbol_of = _assign_symbols(literals, added or frozenset())
        nothing = set(format.swallowed) | (special - self.markers)
        self._by_symbol = {
            symbol: "" if spelling in nothing else spelling for spelling, symbol in self._symbol_of.items()
        }
        self._data = {symbol: spelling for spelling, symbol in self._symbol_of.items()}
        self.scanners = self._compile(tools, reasoned=False)
        interleaved = format.reasoning is not None and format.reasoning.interleaved
        self.after = self.scanners if interleaved else self._compile(tools, reasoned=True)

    def _compile(self, tools: bool, reasoned: bool) -> Mapping[State, StateScanner]:
        rows: dict[State, list[Row]] = {state: [] for state in State}
        for (state, pattern), transition in table(self.format, tools=tools, reasoned=reasoned).items():
            rows[state].append(Row(translate(pattern, self._spell), self._translated(transition)))
        removed = [_REMOVED] if self.id_view else sorted(self._special - self.markers - set(self.format.swallowed))
        for state in (State.CONTENT, State.REASONING, State.TOOL_BETWEEN):
            rows[state] += [Row((Lit(spelling),), Transition(state)) for spelling in removed]
        # Just after a call (or between two) all that may follow content may follow as well.
        known = {row.pattern for row in rows[State.TOOL_BETWEEN]}
        rows[State.TOOL_BETWEEN] += [row for row in rows[State.CONTENT] if row.pattern not in known]
        return {state: StateScanner(rows[state]) for state in State}

    def _translated(self, transition: Transition) -> Transition:
        arguments = transition.arguments
        if arguments is None or not self._symbol_of:
            return transition
        return Transition(transition.next, transition.do, transition.declared, arguments.translated(self._spell))

    def _spell(self, literal: str) -> str:
        for spelling, symbol in self._symbol_of.items():
            literal = literal.replace(spelling, symbol)
        return literal

    def incoming(self, text: str, special: bool) -> str:
        """A Delta's text as the scanner reads it."""
        if not self.id_view:
            return text
        if special:
            symbol = self._symbol_of.get(text)
            if symbol is not None:
                return symbol
            if text in self._special:
                return _REMOVED
        # No decoded text holds a lone surrogate; one that comes all the same must not pass for a symbol.
        return _symbols.sub("\ufffd", text) if has_symbol(text) else text

    def as_text(self, text: str) -> str:
        """Text for content or reasoning: symbols that were no marker here are their spelling."""
        return _symbols.sub(lambda match: self._data.get(match[0], ""), text)

    def as_json(self, text: str) -> str:
        """JSON text of arguments: symbols are data, except the tokens that belong to no field."""
        return _symbols.sub(self._json_spelling, text)

    def _json_spelling(self, match: re.Match[str]) -> str:
        spelling = self._by_symbol.get(match[0], "")
        return spelling.replace("\\", "\\\\").replace('"', '\\"')

    def width(self, text: str) -> int:
        """Characters of the model's text that `text` stands for."""
        if not self.id_view or not has_symbol(text):
            return len(text)
        return len(text) + sum(len(self._data.get(symbol, symbol)) - 1 for symbol in _symbols.findall(text))


def _literals(format: Format) -> set[str]:
    """Every literal text in the format's patterns and argument syntax."""
    found: set[str] = set()

    def note(literal: str) -> str:
        found.add(literal)
        return literal

    for (_, pattern), transition in table(format).items():
        translate(pattern, note)
        if transition.arguments is not None:
            transition.arguments.translated(note)
    return found


def _assign_symbols(literals: Collection[str], added: Collection[str]) -> dict[str, str]:
    """A symbol for each added token that a literal contains, longest first.

    Short and blank tokens stay text: tokenizers also add runs of blanks and single characters.
    """
    spellings = [
        spelling
        for spelling in added
        if len(spelling) >= 3 and not spelling.isspace() and any(spelling in literal for literal in literals)
    ]
    spellings.sort(key=lambda spelling: (-len(spelling), spelling))
    if len(spellings) >= ord(_REMOVED) - _FIRST_SYMBOL:
        raise FormatDefinitionError(f"{len(spellings)} added tokens occur in one format's markers; at most 2047")
    return {spelling: chr(_FIRST_SYMBOL + index) for index, spelling in enumerate(spellings)}


@lru_cache(maxsize=256)
def compile_format(
    format: Format, tools: bool, added: frozenset[str] | None, special: frozenset[str]
) -> CompiledFormat:
    """The format's tables for a view; see `CompiledFormat`. Equal calls share one."""
    return CompiledFormat(format, tools, added, special)
