"""Where is the next candidate, and what may it be: tables compiled for one view.

In the *text view* markers are found by spelling. In the *id view* an added token of the tokenizer
comes as a Delta of its own and only such a Delta is a marker; there each added spelling that a
format's literals contain is written as one symbol (a lone surrogate: a character that no decoded
text holds), in the literals and in the text alike. Everything else then works on plain strings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

from .candidates import candidate_regex
from .errors import FormatDefinitionError
from .format import Format, table
from .header import Attempt, Lit, Pattern, first_literals, translate
from .states import CLOSING, LIMITS, Do, State, Transition

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
    literals: tuple[str, ...] = ()

    def fits(self, start: str) -> bool:
        """Does one of its first literals begin with `start` (or is its first character)?"""
        return any(literal.startswith(start) or literal == start[0] for literal in self.literals)

    def may_begin(self, text: str, pos: int) -> bool:
        """May the row match at `pos`? A cheap look at its first literal."""
        for literal in self.literals:
            if text.startswith(literal, pos):
                return True
            if len(text) - pos < len(literal) and literal.startswith(text[pos:]):
                return True
        return not self.literals


class StateScanner:
    """The rows of one state.

    Args:
        rows: the rows, in order of precedence.
        anchored: rows that begin with no literal are tried wherever `at` is asked.

    Attributes:
        rows: all of them.
        search: finds the next candidate: `search(text, pos)`.
        first: the one character all candidates begin with, or "" where there are several: a cheaper
            first look on the fast path.
    """

    def __init__(self, rows: Iterable[Row], *, anchored: bool = False) -> None:
        self.rows = tuple(Row(row.pattern, row.transition, first_literals(row.pattern)) for row in rows)
        starts = [literal for row in self.rows for literal in row.literals]
        # Rows that begin with no literal are never searched for, only tried at a place.
        self._unmarked = [row for row in self.rows if anchored and not row.literals]
        self._by_start = {
            start: [row for row in self.rows if (anchored and not row.literals) or row.fits(start)]
            for start in {literal[:size] for literal in starts for size in (1, 2)}
        }
        self.search = candidate_regex(starts)
        # What a beginning of a literal must become before any row can be decided: the same for all rows that remain.
        self._awaited = {} if self._unmarked else _common_beginnings(starts)
        self._longest = max(map(len, starts), default=0)
        firsts = {start[0] for start in starts if not has_symbol(start[0])}
        # Ordinary text holds no symbol: without other candidates, one stands for "never".
        self.first = firsts.pop() if len(firsts) == 1 else "" if firsts else _REMOVED

    @cached_property
    def closers(self) -> StateScanner:
        """Only the rows that close a call or its wrapper."""
        return self._only(CLOSING)

    @cached_property
    def limits(self) -> StateScanner:
        """Only the rows at which what is left of a broken call ends."""
        return self._only(LIMITS)

    @cached_property
    def outside(self) -> StateScanner:
        """Without the rows that count inside a wrapper, or right after a call, only."""
        return StateScanner((row for row in self.rows if row.literals or row.transition.at_start), anchored=True)

    def _only(self, wanted: Collection[Do]) -> StateScanner:
        rows = (row for row in self.rows if not set(wanted).isdisjoint(row.transition.do))
        return StateScanner(rows, anchored=True)

    def awaited(self, text: str, pos: int) -> str:
        """What the text from `pos` to its end must become before it is decided, if that is plain; else ""."""
        return self._awaited.get(text[pos:], "") if len(text) - pos < self._longest else ""

    def attempts(self, text: str, pos: int) -> list[tuple[Row, Attempt]]:
        """Begin to match the rows that may match at `pos`."""
        by_start = self._by_start
        rows = by_start.get(text[pos : pos + 2]) or by_start.get(text[pos], self._unmarked)
        return [(row, Attempt(row.pattern)) for row in rows if row.may_begin(text, pos)]


class CompiledFormat:
    """A format's tables for one view; immutable and shared.

    Args:
        format: the format.
        tools: False leaves out all that concerns tool calls.
        added: spellings of the tokenizer's added tokens (id view), None in the text view.
        special: spellings of those it flags special.
        beside: a format whose tables one stream uses as well: both then write the same symbols.

    Attributes:
        format: what it was compiled from.
        scanners: the rows of each state.
        after: the same once a reasoning block has ended.
        starts: what may begin where a message starts, calls without a marker among it; or None.
        id_view: markers that are added tokens come as Deltas of their own.
    """

    __slots__ = (
        "_by_symbol",
        "_data",
        "_special",
        "_symbol_of",
        "after",
        "format",
        "id_view",
        "markers",
        "scanners",
        "starts",
    )

    def __init__(
        self,
        format: Format,
        tools: bool,
        added: frozenset[str] | None,
        special: frozenset[str],
        beside: Format | None = None,
    ) -> None:
        self.format = format
        self.id_view = added is not None
        self.markers = format.markers()
        self._special = special
        literals = _literals(format) | (_literals(beside) if beside is not None else set())
        self._symbol_of = _assign_symbols(literals, added or frozenset())
        nothing = set(format.swallowed) | (special - self.markers)
        self._by_symbol = {
            symbol: "" if spelling in nothing else spelling for spelling, symbol in self._symbol_of.items()
        }
        self._data = {symbol: spelling for spelling, symbol in self._symbol_of.items()}
        self.scanners = self._compile(tools, reasoned=False)
        starts = [row for row in self._rows(tools, False)[State.TOOL_BETWEEN] if row.transition.at_start]
        self.starts = StateScanner((*starts, *self.scanners[State.CONTENT].rows), anchored=True) if starts else None
        interleaved = format.reasoning is not None and format.reasoning.interleaved
        self.after = self.scanners if interleaved else self._compile(tools, reasoned=True)

    def _compile(self, tools: bool, reasoned: bool) -> Mapping[State, StateScanner]:
        rows = self._rows(tools, reasoned)
        rows[State.CONTENT] = [row for row in rows[State.CONTENT] if not row.transition.at_start]
        anchored = (State.TOOL_BETWEEN, State.MESSAGE_HEADER)
        return {state: StateScanner(rows[state], anchored=state in anchored) for state in State}

    def _rows(self, tools: bool, reasoned: bool) -> dict[State, list[Row]]:
        rows: dict[State, list[Row]] = {state: [] for state in State}
        for (state, pattern), transition in table(self.format, tools=tools, reasoned=reasoned).items():
            rows[state].append(Row(translate(pattern, self._spell), self._translated(transition)))
        removed = [_REMOVED] if self.id_view else sorted(self._special - self.markers - set(self.format.swallowed))
        for state in (State.CONTENT, State.REASONING, State.TOOL_BETWEEN):
            rows[state] += [Row((Lit(spelling),), Transition(state)) for spelling in removed]
        # Just after a call (or between two) all that may follow content may follow as well.
        known = {row.pattern for row in rows[State.TOOL_BETWEEN]}
        rows[State.TOOL_BETWEEN] += [row for row in rows[State.CONTENT] if row.pattern not in known]
        return rows

    def _translated(self, transition: Transition) -> Transition:
        arguments = transition.arguments
        if arguments is None or not self._symbol_of:
            return transition
        return replace(transition, arguments=arguments.translated(self._spell))

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


def _common_beginnings(literals: Collection[str]) -> dict[str, str]:
    """From each beginning of a literal to what all literals that begin with it have in common."""
    beginnings = {literal[:size] for literal in literals for size in range(1, len(literal))}
    return {
        beginning: _common([literal for literal in literals if literal.startswith(beginning)])
        for beginning in beginnings - set(literals)
    }


def _common(texts: Collection[str]) -> str:
    first, last = min(texts), max(texts)
    size = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:size]


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
    format: Format,
    tools: bool,
    added: frozenset[str] | None,
    special: frozenset[str],
    beside: Format | None = None,
) -> CompiledFormat:
    """The format's tables for a view; see `CompiledFormat`. Equal calls share one."""
    return CompiledFormat(format, tools, added, special, beside)
