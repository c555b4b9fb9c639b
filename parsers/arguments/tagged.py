"""Arguments written as tagged parameters: `<parameter=city>\\nOslo\\n</parameter>`.

One module for every family that tags its parameters; the tags, the framing and what may follow a
closer are data. String values stream as they come, other types are held until their closer
(PROTOCOL 2). A closer counts only where something of the format follows it, so that a value may
contain the spelling (PROTOCOL 5, "Closers").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from json.encoder import encode_basestring

from ..candidates import beginning_regex, candidate_regex
from ..header import (
    BLANK_CHARS,
    BLANK_LIMIT,
    MORE,
    NO,
    Ahead,
    Blanks,
    Either,
    Lit,
    Maybe,
    Pattern,
    first_literals,
    run,
    translate,
)
from ..schema import ANY_JSON, ANY_STRING, ParameterType, convert
from .decoder import CallContext, End
from .json_object import JsonArguments

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
        typed_by: a capture of `parameter` that says a value's type and overrules the schema, or "".
        string_words: what it says for a string; anything else means JSON.
        json_body: the body may be one JSON object in place of parameters.
        skipped: what may stand between parameters without meaning anything (frames, text in brackets).
        escaped: in a key `&quot;` and `&amp;` stand for the quote and the ampersand.
    """

    parameter: Pattern
    value_closers: tuple[str, ...]
    call_closers: tuple[str, ...]
    wrapper_closers: tuple[str, ...] = ()
    call_openers: tuple[str, ...] = ()
    swallowed: tuple[str, ...] = ()
    framed: bool = False
    typed_by: str = ""
    string_words: tuple[str, ...] = ("true", "string")
    json_body: bool = False
    skipped: tuple[Pattern, ...] = ()
    escaped: bool = False

    def decoder(self, context: CallContext) -> TaggedDecoder:
        return TaggedDecoder(_compiled(self), context)

    def translated(self, spell: Callable[[str], str]) -> Tagged:
        def every(literals: Iterable[str]) -> tuple[str, ...]:
            return tuple(spell(literal) for literal in literals)

        return replace(
            self,
            parameter=translate(self.parameter, spell),
            value_closers=every(self.value_closers),
            call_closers=every(self.call_closers),
            wrapper_closers=every(self.wrapper_closers),
            call_openers=every(self.call_openers),
            swallowed=every(self.swallowed),
            skipped=tuple(translate(pattern, spell) for pattern in self.skipped),
        )


class _Compiled:
    """What follows from a `Tagged`: its patterns and searches, shared by all decoders.

    Attributes:
        stop: finds where a value may end.
        enders: what may end a value: literal, and whether it is the value's own closer.
        ender: matches one of them at a place, or a beginning of one that ends the text.
        follows: quick look for what may follow a value's closer, past the blanks between.
        value_rest, call_rest, call_rest_at_cut: what must come after such a literal.
        recovered_parameter: a parameter's opener where it ends the value before it.
        between: what may stand between parameters: literal, and what it means.
        between_at: matches one of these literals at a place, or a beginning of one that ends the text.
    """

    __slots__ = (
        "between",
        "between_at",
        "call_rest",
        "call_rest_at_cut",
        "ender",
        "enders",
        "follows",
        "framed",
        "junk_stop",
        "openers",
        "parameter",
        "recovered_parameter",
        "stop",
        "syntax",
        "value_rest",
    )

    def __init__(self, syntax: Tagged) -> None:
        self.syntax = syntax
        self.framed = syntax.framed
        self.parameter = syntax.parameter
        self.openers = first_literals(syntax.parameter)
        closers = (*syntax.call_closers, *syntax.wrapper_closers)
        self.enders = dict.fromkeys(closers, False) | dict.fromkeys(syntax.value_closers, True)
        self.ender = beginning_regex(self.enders)
        follow = (*self.openers, *closers, *syntax.value_closers, *syntax.swallowed)
        blanks = f"[{re.escape(BLANK_CHARS)}]{{0,{BLANK_LIMIT}}}"
        self.follows = re.compile(f"{blanks}(?={'|'.join(map(re.escape, follow))})").match
        self.value_rest = (Blanks(), Ahead(_literals(follow), end=True))
        # A call closer inside an open value: only where the output ends or another call begins.
        more = Maybe((Either(_literals(closers)), Blanks()))
        begins = _literals((*syntax.call_openers, *syntax.swallowed))
        chain: Pattern = (Blanks(), more, more, more)
        self.call_rest = (*chain, Ahead(begins, end=True))
        self.call_rest_at_cut = (*chain, Ahead(begins, end=False))
        after = (Ahead(((Lit("\n"),),)),) if syntax.framed else ()
        self.recovered_parameter = (*syntax.parameter, *after)
        starts = (*syntax.value_closers, *closers, *self.openers)
        self.stop = candidate_regex(starts, framed=syntax.framed)
        self.junk_stop = candidate_regex((*starts, *syntax.call_openers))
        # Where one spelling has two meanings, the later of these dictionaries decides.
        self.between = (
            dict.fromkeys((*syntax.wrapper_closers, *syntax.call_openers), _Between.OUTER)
            | dict.fromkeys(syntax.call_closers, _Between.CLOSE)
            | dict.fromkeys((*syntax.value_closers, *syntax.swallowed), _Between.SKIP)
        )
        self.between_at = beginning_regex(self.between)


class _Between(Enum):
    SKIP = 0  # a duplicated closer, an end of turn
    CLOSE = 1  # the call's own closer
    OUTER = 2  # something outside the call: it ends here without its closer


@lru_cache(maxsize=512)
def _compiled(syntax: Tagged) -> _Compiled:
    return _Compiled(syntax)


def _literals(literals: Iterable[str]) -> tuple[Pattern, ...]:
    return tuple((Lit(literal),) for literal in literals)


class _At(Enum):
    BETWEEN = 0  # parameters
    FRESH = 1  # at a value's first character
    STRING = 2  # in a value that streams
    HELD = 3  # in a value whose type or text must be whole


class TaggedDecoder:
    """Reads one call's parameters; see `Decoder`."""

    __slots__ = (
        "_at",
        "_body",
        "_context",
        "_data",
        "_held",
        "_junk",
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
        self._junk = False
        self._body: JsonArguments | None = None
        self._kind: ParameterType = ANY_STRING
        self._pieces: list[str] = []
        self._held = 0
        self._seen: set[str] = set()
        self._line_start = False  # nothing of the value came since its framing newline

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        while self.end is None and pos < len(text):
            if self._at is _At.BETWEEN:
                following = self._between(text, pos, out)
            else:
                following = self._value(text, pos, out, final, stopped)
            if following < 0:
                return -following - 1
            pos = following
        return pos

    def quick(self) -> Callable[[str], str | None] | None:
        if self._body is not None:
            return self._body.quick()
        return self._quick if self._at is _At.STRING and not self._line_start else None

    def _quick(self, text: str) -> str | None:
        return None if self._data.stop(text) else encode_basestring(text)[1:-1]

    # `_between` and `_value` return where to go on, or -(pos + 1) to hold from `pos`.

    def _read_body(self, text: str, pos: int, out: list[str]) -> int:
        """The whole body is one JSON object; after it the closers follow as after parameters."""
        assert self._body is not None
        pos = self._body.feed(text, pos, out)
        if self._body.end is End.INVALID:
            self.end = End.INVALID
        return pos

    def _between(self, text: str, pos: int, out: list[str]) -> int:
        if self._body is not None and self._body.end is None:
            return self._read_body(text, pos, out)
        while pos < len(text) and text[pos] in BLANK_CHARS:
            pos += 1
        if pos == len(text):
            return pos
        data = self._data
        if self._body is None and text[pos] == "{" and data.syntax.json_body and not self._seen:
            self._body = JsonArguments()
            return self._read_body(text, pos, out)
        captures: dict[str, str] = {}
        end = run(data.parameter, text, pos, captures, False) if self._body is None else NO
        if end >= 0 and captures.get("key"):
            self._open(captures, out, pos)
            return end
        undecided = end == MORE
        for pattern in data.syntax.skipped:
            end = run(pattern, text, pos, captures, False)
            if end >= 0:
                return end
            undecided = undecided or end == MORE
        found = data.between_at(text, pos)
        meaning = data.between.get(found[0]) if found else None
        if found and meaning is not None:
            if meaning is _Between.OUTER:
                self._context.note("recovered_end", pos)
            if meaning is not _Between.SKIP:
                self._complete(out)
            return pos if meaning is _Between.OUTER else found.end()
        if found or undecided:
            return -pos - 1  # at the end of the output it is a beginning still, and no fault
        # Text where only parameters belong: nothing of it can be an argument.
        if not self._junk:
            self._junk = True  # one notice a call: how much of it comes at once must not count
            self._context.note("invalid_arguments", pos)
        match = data.junk_stop(text, pos + 1)
        return match.start() if match else len(text)

    def _complete(self, out: list[str]) -> None:
        if self._junk and not self._seen:
            self.end = End.UNREADABLE  # the arguments are written some other way: `{}` would be a lie
            return
        if self._body is None:
            out.append("}" if self._seen else "{}")
        self.end = End.COMPLETE

    def _open(self, captures: dict[str, str], out: list[str], pos: int) -> None:
        key = captures["key"]
        if self._data.syntax.escaped:
            key = key.replace("&quot;", '"').replace("&amp;", "&")
        if key in self._seen:
            self._context.note("repeated_parameter", pos)
        out.append(f"{', ' if self._seen else '{'}{encode_basestring(key)}: ")
        self._seen.add(key)
        self._kind = self._context.tools.of(self.name or "").of(key)
        word = captures.get(self._data.syntax.typed_by)
        if word is not None:
            if word not in self._data.syntax.string_words:
                self._kind = ANY_JSON
            elif self._kind.is_string:
                self._kind = ParameterType(ANY_STRING.kinds, self._kind.words)
        self._line_start = False
        self._at = _At.FRESH
        if not self._data.framed:
            self._begin_value(out)

    def _begin_value(self, out: list[str]) -> None:
        if self._kind.streams and not self._kind.is_nullable:
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
            taken = self._add(text, pos, at, out)
            if self.end is not None:
                return taken
            if ends is None:
                return -at - 1
            self._close_value(out, at)
            if ends != "closer":
                self._context.note("recovered_value", at)
            return following
        return self._add(text, pos, len(text), out)

    def _end_of_value(
        self, text: str, tag: int, line_start: bool, final: bool, stopped: bool
    ) -> tuple[str | None, int]:
        """What ends the value at `tag`, and where to go on; or None with NO or MORE."""
        if tag == len(text) and not final:
            return None, MORE
        data = self._data
        undecided = False
        found = data.ender(text, tag)
        if found is not None:
            own = data.enders.get(found[0])
            pos = found.end()
            if own is None:  # the text ends within a closer
                if not final:
                    return None, MORE
            elif own:
                follows = data.follows(text, pos)
                cut = final and not stopped and self._kind.streams
                end = follows.end() if follows else run(data.value_rest, text, pos, {}, final and not cut)
                if end == MORE and cut:
                    end = pos  # half a follower at a cut by length: the closer is no part of the text
                if end >= 0:
                    return "closer", end
                undecided = end == MORE
            else:
                rest = data.call_rest if stopped or not final else data.call_rest_at_cut
                end = run(rest, text, pos, {}, final)
                if end >= 0:
                    return "call", tag
                undecided = end == MORE
        if line_start or not data.framed:
            captures: dict[str, str] = {}
            end = run(data.recovered_parameter, text, tag, captures, final)
            key = captures.get("key", "")
            if end >= 0 and key not in self._seen and key in self._context.tools.of(self.name or "").parameters:
                return "parameter", tag
            undecided = undecided or end == MORE
        return None, MORE if undecided else NO

    def _add(self, text: str, start: int, end: int, out: list[str]) -> int:
        """More of the value; returns `end`, or where the bound on held text was met."""
        if start == end:
            return end
        self._line_start = False
        piece = text[start:end]
        if self._at is _At.STRING:
            out.append(encode_basestring(piece)[1:-1])
            return end
        if self._kind.streams:
            # `null` is still possible only while all of the value is a beginning of that word.
            self._pieces.append(piece)
            so_far = "".join(self._pieces)
            if not "null".startswith(so_far):
                self._pieces.clear()
                out.append('"' + encode_basestring(so_far)[1:-1])
                self._at = _At.STRING
            return end
        room = self._context.max_held - self._held
        if len(piece) > room:
            self._pieces.clear()
            self._context.note("held_text_released", -1)
            self.end = End.INVALID
            return start + room
        self._pieces.append(piece)
        self._held += len(piece)
        return end

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
