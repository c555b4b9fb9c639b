"""Arguments written as tagged parameters: `<parameter=city>\\nOslo\\n</parameter>`.

One module for every family that tags its parameters; the tags, the framing and what may follow a
closer are data. String values stream as they come, other types are held until their closer
(PROTOCOL 2). A closer counts only where something of the format follows it, so that a value may
contain the spelling (PROTOCOL 5, "Closers").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from json.encoder import encode_basestring

from ..candidates import candidate_regex
from ..header import BLANK_CHARS, MORE, NO, Ahead, Blanks, Either, Lit, Maybe, Pattern, first_literals, run, translate
from ..schema import ANY_STRING, ParameterType, convert
from .decoder import CallContext, End

__all__ = ["Tagged", "TaggedDecoder"]


@dataclass(frozen=True, slots=True)
class Tagged:
    """Syntax: tagged parameters.

    Args:
        parameter: header of a parameter; captures `key`.
        value_closers: what closes a value.
        call_closers: what closes the call; taken by the decoder.
        wrapper_closers: what closes the wrapper around calls; left to the engine.
        call_openers: beginnings of another call, which end an unclosed one; left to the engine.
        swallowed: spellings that may follow the end of a call without meaning anything.
        framed: one newline on each side of a value is framing, not data.
    """

    parameter: Pattern
    value_closers: tuple[str, ...]
    call_closers: tuple[str, ...]
    wrapper_closers: tuple[str, ...] = ()
    call_openers: tuple[str, ...] = ()
    swallowed: tuple[str, ...] = ()
    framed: bool = False

    def decoder(self, context: CallContext) -> TaggedDecoder:
        return TaggedDecoder(_compiled(self), context)

    def translated(self, spell: Callable[[str], str]) -> Tagged:
        def every(literals: Iterable[str]) -> tuple[str, ...]:
            return tuple(spell(literal) for literal in literals)

        return Tagged(
            translate(self.parameter, spell),
            every(self.value_closers),
            every(self.call_closers),
            every(self.wrapper_closers),
            every(self.call_openers),
            every(self.swallowed),
            self.framed,
        )

    def closers(self) -> tuple[Pattern, ...]:
        return tuple((Lit(closer),) for closer in self.call_closers)


class _Compiled:
    """What follows from a `Tagged`: its patterns and searches, shared by all decoders."""

    __slots__ = (
        "call_end",
        "call_end_at_cut",
        "framed",
        "junk_stop",
        "parameter",
        "recovered_parameter",
        "stop",
        "syntax",
        "value_end",
    )

    def __init__(self, syntax: Tagged) -> None:
        self.syntax = syntax
        self.framed = syntax.framed
        self.parameter = syntax.parameter
        openers = first_literals(syntax.parameter)
        closers = (*syntax.call_closers, *syntax.wrapper_closers)
        follow = _either((*openers, *closers, *syntax.value_closers, *syntax.swallowed))
        self.value_end = (_choice(syntax.value_closers), Blanks(), Ahead(follow, end=True))
        # A call closer inside an open value: only where the output ends or another call begins.
        more = Maybe((_choice(closers), Blanks()))
        begins = _either((*syntax.call_openers, *syntax.swallowed))
        chain: Pattern = (_choice(closers), Blanks(), more, more, more)
        self.call_end = (*chain, Ahead(begins, end=True))
        self.call_end_at_cut = (*chain, Ahead(begins, end=False))
        after = (Ahead(((Lit("\n"),),)),) if syntax.framed else ()
        self.recovered_parameter = (*syntax.parameter, *after)
        starts = (*syntax.value_closers, *closers, *openers)
        self.stop = candidate_regex(starts, framed=syntax.framed)
        self.junk_stop = candidate_regex((*starts, *syntax.call_openers))


@lru_cache(maxsize=512)
def _compiled(syntax: Tagged) -> _Compiled:
    return _Compiled(syntax)


def _either(literals: Iterable[str]) -> tuple[Pattern, ...]:
    return tuple((Lit(literal),) for literal in literals)


def _choice(literals: Iterable[str]) -> Either:
    return Either(_either(literals))


class _At(Enum):
    BETWEEN = 0  # parameters
    FRESH = 1  # at a value's first character
    STRING = 2  # in a value that streams
    HELD = 3  # in a value whose type or text must be whole


class TaggedDecoder:
    """Reads one call's parameters; see `Decoder`."""

    __slots__ = (
        "_at",
        "_context",
        "_data",
        "_held",
        "_key",
        "_kind",
        "_line_start",
        "_pieces",
        "_seen",
        "end",
        "id",
        "name",
    )

    def __init__(self, data: _Compiled, context: CallContext) -> None:
        self.name = context.name
        self.id = context.id
        self.end: End | None = None
        self._data = data
        self._context = context
        self._at = _At.BETWEEN
        self._key = ""
        self._kind: ParameterType = ANY_STRING
        self._pieces: list[str] = []
        self._held = 0
        self._seen: set[str] = set()
        self._line_start = False  # nothing of the value came since its framing newline

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        while self.end is None and pos < len(text):
            if self._at is _At.BETWEEN:
                following = self._between(text, pos, out, final)
            else:
                following = self._value(text, pos, out, final, stopped)
            if following < 0:
                return -following - 1
            pos = following
        return pos

    def quick(self) -> Callable[[str], str | None] | None:
        return self._quick if self._at is _At.STRING and not self._line_start else None

    def _quick(self, text: str) -> str | None:
        return None if self._data.stop(text) else encode_basestring(text)[1:-1]

    # `_between` and `_value` return where to go on, or -(pos + 1) to hold from `pos`.

    def _between(self, text: str, pos: int, out: list[str], final: bool) -> int:
        data, syntax = self._data, self._data.syntax
        while pos < len(text) and text[pos] in BLANK_CHARS:
            pos += 1
        if pos == len(text):
            return pos
        captures: dict[str, str] = {}
        undecided = False
        end = run(data.parameter, text, pos, captures, final)
        if end >= 0 and captures.get("key"):
            self._open(captures["key"], out, pos)
            return end
        undecided = end == MORE
        for closer in syntax.value_closers:  # a duplicate
            end = Lit(closer).step(text, pos, captures, final)
            if end >= 0:
                return end
            undecided |= end == MORE
        for closer in syntax.call_closers:
            end = Lit(closer).step(text, pos, captures, final)
            if end >= 0:
                self._complete(out)
                return end
            undecided |= end == MORE
        for literal in (*syntax.wrapper_closers, *syntax.call_openers):
            end = Lit(literal).step(text, pos, captures, final)
            if end >= 0:
                self._context.note("recovered_end", pos)
                self._complete(out)
                return pos
            undecided |= end == MORE
        if undecided:
            return -pos - 1
        # Text where only parameters belong: nothing of it can be an argument.
        if not any(text.startswith(literal, pos) for literal in syntax.swallowed):
            self._context.note("invalid_arguments", pos)
        match = data.junk_stop(text, pos + 1)
        return match.start() if match else len(text)

    def _complete(self, out: list[str]) -> None:
        out.append("}" if self._seen else "{}")
        self.end = End.COMPLETE

    def _open(self, key: str, out: list[str], pos: int) -> None:
        if key in self._seen:
            self._context.note("repeated_parameter", pos)
        out.append(f"{', ' if self._seen else '{'}{encode_basestring(key)}: ")
        self._seen.add(key)
        self._key = key
        self._kind = self._context.tools.of(self.name or "").of(key)
        self._line_start = False
        self._at = _At.FRESH
        if not self._data.framed:
            self._begin_value(out)

    def _begin_value(self, out: list[str]) -> None:
        if self._kind.is_string and not self._kind.is_nullable:
            out.append('"')
            self._at = _At.STRING
        else:
            self._at = _At.HELD
            self._held = 0

    def _value(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        if self._at is _At.FRESH:
            if text[pos] == "\n":
                pos += 1
                self._line_start = True
            self._begin_value(out)
            if pos == len(text):
                return pos
        match = self._data.stop(text, pos)
        while match is not None:
            at = match.start()
            framed = self._data.framed and text[at] == "\n"
            tag = at + framed
            # "\n" as a tag's own first character cannot be: literals begin with a visible one.
            ends, following = self._end_of_value(text, tag, framed or (self._line_start and at == pos), final, stopped)
            if ends is None and following == NO:
                match = self._data.stop(text, tag + 1)
                continue
            if at > pos:
                self._add(text[pos:at], out)
            if ends is None:
                return -at - 1 if self.end is None else at
            if self.end is None:
                self._close_value(out, at)
                if ends != "closer":
                    self._context.note("recovered_value", at)
            return following
        self._add(text[pos:], out)
        return len(text)

    def _end_of_value(
        self, text: str, tag: int, line_start: bool, final: bool, stopped: bool
    ) -> tuple[str | None, int]:
        """What ends the value at `tag`, and where to go on; or None with NO or MORE."""
        data = self._data
        if tag == len(text) and not final:
            return None, MORE
        captures: dict[str, str] = {}
        undecided = False
        end = run(data.value_end, text, tag, captures, final)
        if end >= 0:
            return "closer", end
        undecided = end == MORE
        call_end = data.call_end if stopped or not final else data.call_end_at_cut
        end = run(call_end, text, tag, captures, final)
        if end >= 0:
            return "call", tag
        undecided |= end == MORE
        if line_start or not data.framed:
            end = run(data.recovered_parameter, text, tag, captures, final)
            if end >= 0:
                key = captures.get("key", "")
                declared = key in self._context.tools.of(self.name or "").parameters
                if declared and key not in self._seen:
                    return "parameter", tag
            undecided |= end == MORE
        return None, MORE if undecided else NO

    def _add(self, piece: str, out: list[str]) -> None:
        self._line_start = False
        if self._at is _At.STRING:
            out.append(encode_basestring(piece)[1:-1])
            return
        self._pieces.append(piece)
        self._held += len(piece)
        if self._kind.is_string:
            # `null` is still possible only while all of the value is a beginning of that word.
            so_far = "".join(self._pieces)
            if not "null".startswith(so_far):
                self._pieces.clear()
                out.append('"' + encode_basestring(so_far)[1:-1])
                self._at = _At.STRING
        elif self._held > self._context.max_held:
            self._pieces.clear()
            self._context.note("held_text_released", -1)
            self.end = End.INVALID

    def _close_value(self, out: list[str], pos: int) -> None:
        if self._at is _At.STRING:
            out.append('"')
        else:
            value, fits = convert("".join(self._pieces), self._kind)
            self._pieces.clear()
            out.append(value)
            if not fits:
                self._context.note("value_type_mismatch", pos)
        self._at = _At.BETWEEN
