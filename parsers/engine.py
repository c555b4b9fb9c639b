"""The engine: walks a format's table over the model's text and returns events.

Theory of operation. The text that is not yet decided is `held`. `_run` hands it to the step of
the current state, which says how far it is decided; a step that must wait *holds* from a place on.

1. In text states the scanner finds the next place where a terminal of this state may begin; the
   rows that may begin there are matched together (`Attempt`). A match is a transition. MORE holds:
   the text before the place goes out, the rest waits, and the next text continues the same
   attempts. NO makes the place plain text.
2. A call begins with its header. Where the header has no name (a JSON call object), the decoder
   finds it; until then the call's raw text is kept, so that what turns out to be no call is
   released as the text it was.
3. In TOOL_ARGS the decoder takes the text and knows where the call ends. What follows it in the
   wrapper (closers, further calls, text) is TOOL_BETWEEN's business.
4. A call that breaks after its name is dropped up to the next terminal (`_dropping`).

The engine knows no request and no marker: tables come compiled (`scanner.py`), names are put to
`admit`, and the events go to `ChatStream`, which holds every policy.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping

from .arguments import CallContext, Decoder, End
from .events import (
    ContentDelta,
    Event,
    MarkerRemoved,
    Notice,
    NoticeCode,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from .header import BLANK_CHARS, MORE, NO, Attempt
from .scanner import CompiledFormat, Row, StateScanner
from .schema import ToolIndex
from .states import CLOSING, Do, State, Transition

__all__ = ["Engine"]


class Engine:
    """Feeds text through one format's tables; see the module's comment.

    Args:
        compiled: the format's tables for the stream's view.
        state: CONTENT or REASONING: where the output starts.
        reasoned: a reasoning block has ended before the output starts.
        tools: the declared tools.
        max_held: most undecided characters (PROTOCOL 1).
        admit: asked when a call's name is certain; False: the call is text.
        forced: tables of the forced JSON form, tried where content starts; or None.
        function: the one function the forced form must call, or None.

    Attributes:
        state: where the engine is.
        position: characters of the model's text that are decided.
        held: the text that is not.
    """

    __slots__ = (
        "__weakref__", "_admit", "_as_text", "_at_start", "_attempts", "_awaited", "_between_text", "_call",
        "_call_start", "_closed", "_compiled", "_decoder", "_dropping", "_events", "_forced", "_function", "_max_held",
        "_named", "_origin", "_raw", "_raw_bound", "_raw_size", "_scanners", "_text_seen", "_tools",
        "_unclosed", "_wrapper", "_wrapper_before", "held", "position", "state",
    )  # fmt: skip

    def __init__(
        self,
        compiled: CompiledFormat,
        state: State,
        reasoned: bool,
        tools: ToolIndex,
        max_held: int,
        admit: Callable[[str], bool],
        forced: CompiledFormat | None = None,
        function: str | None = None,
    ) -> None:
        self._compiled = compiled
        self._scanners: Mapping[State, StateScanner] = compiled.after if reasoned else compiled.scanners
        self.state = state
        self.position = 0
        self._tools = tools
        self._max_held = max_held
        self._admit = admit
        self._forced = forced
        self._function = function
        self.held = ""
        self._events: list[Event] = []
        self._attempts: list[tuple[Row, Attempt]] = []
        self._awaited = ""  # while `held` is a beginning of this, nothing is decided
        self._text_seen = False  # content that is not blank was sent
        self._at_start = True  # none since the message started or reasoning ended
        self._wrapper = False  # a wrapper is open
        self._wrapper_before = False  # it was, before the running call's header
        self._closed = False  # the last call's wrapper is
        self._dropping = False  # what is left of a broken call
        self._between_text = False  # in text inside a wrapper: only what is searched for ends it
        self._unclosed = False  # arguments are whole, the call's own closer is missing
        self._decoder: Decoder | None = None
        self._call: Transition | None = None
        self._origin = State.CONTENT  # where the running call was found
        self._named = False
        self._as_text = False  # the running call was not admitted
        self._raw: list[str] = []  # text of the running call while its name is not certain
        self._raw_size = 0
        self._raw_bound = 0  # most of it
        self._call_start = 0

    @property
    def is_plain(self) -> bool:
        """In text that only what is searched for ends: the fast path may send it."""
        return not self.held and not (self._at_start and self._compiled.starts is not None)

    @property
    def scanner(self) -> StateScanner:
        """The rows of the current state."""
        return self._scanners[self.state]

    @property
    def settled(self) -> State:
        """The state; of a call whose name is not certain yet, the one where it was found."""
        return self._origin if self.state is State.TOOL_ARGS and not self._named else self.state

    def quick(self) -> Callable[[str], str | None] | None:
        """The running decoder's fast path; see `Decoder.quick`."""
        if self.held or self._decoder is None or self._as_text or not self._named:
            return None
        return self._decoder.quick()

    def feed(self, text: str, special: bool = False) -> list[Event]:
        """Take text, or the spelling of one special token; returns what is decided by it."""
        self.held = held = self.held + (self._compiled.incoming(text, special) if self._compiled.id_view else text)
        awaited = self._awaited
        if awaited:
            if len(held) < len(awaited) and awaited.startswith(held):
                return []
            self._awaited = ""
        return self._run(False, False)

    def finish(self, stopped: bool) -> list[Event]:
        """The output has ended (`stopped`: by itself, not by a cut): release or drop what is held."""
        events = self._run(final=True, stopped=stopped)
        if self._unclosed or (self.state is State.TOOL_ARGS and self._named):
            if self._as_text:
                self._text(self.held, 0, len(self.held))
            else:
                if stopped:
                    events.append(Notice("incomplete_call", 1, self.position))
                events.append(ToolCallEnd("incomplete"))
        elif self.state is State.TOOL_ARGS:
            if stopped:
                self._raw.append(self.held)
                self._release()
            else:
                events.append(MarkerRemoved())
        self.position += self._compiled.width(self.held)
        self.held = ""
        self._unclosed = False
        self._decoder = None
        self._raw.clear()
        return events

    # --- the loop ---------------------------------------------------------------------------

    def _run(self, final: bool, stopped: bool) -> list[Event]:
        events: list[Event] = []
        self._events = events
        buffer = self.held
        pos, size = 0, len(buffer)
        while pos < size:
            state = self.state
            unclosed = self._unclosed
            if state is State.TOOL_ARGS:
                following = self._in_arguments(buffer, pos, final, stopped)
            elif unclosed:
                following = self._after_unclosed(buffer, pos, final)
            elif state is State.TOOL_BETWEEN:
                following = self._between(buffer, pos, final)
            else:
                following = self._in_text(buffer, pos, final)
            if following < 0:
                pos = -following - 1
                break
            # A step that neither decides anything nor holds would never end.
            assert following > pos or self.state is not state or self._unclosed is not unclosed, f"stuck in {state}"
            pos = following
        if pos:
            self.position += self._compiled.width(buffer[:pos]) if self._compiled.id_view else pos
            self.held = buffer[pos:]
        return events

    def _at(self, buffer: str, pos: int) -> int:
        """Offset in the model's text of a place in the buffer."""
        return self.position + (self._compiled.width(buffer[:pos]) if self._compiled.id_view else pos)

    # Steps return where to go on, or -(pos + 1) to hold from `pos`.

    def _in_text(self, buffer: str, pos: int, final: bool) -> int:
        following = None
        if self.state is State.MESSAGE_HEADER:
            following = self._in_header(buffer, pos, final)
        elif self.state is State.CONTENT and self._at_start:
            following = self._start(buffer, pos, final)
        return following if following is not None else self._scan(buffer, pos, final)

    def _in_header(self, buffer: str, pos: int, final: bool) -> int:
        """Where a message's header belongs; without one the text is content."""
        end = self._candidate(self._scanners[State.MESSAGE_HEADER], buffer, pos, final, pos)
        if end == MORE:
            return -pos - 1
        if end == NO:
            self.state = State.CONTENT
            return pos
        return end

    def _scan(self, buffer: str, pos: int, final: bool) -> int:
        """Text up to the next terminal, and the terminal."""
        scanner = self._scanners[self.state]
        at = pos if self._attempts else _found(scanner.search(buffer, pos))
        while at >= 0:
            end = self._candidate(scanner, buffer, at, final, pos)
            if end == MORE:
                self._text(buffer, pos, at)
                return -at - 1
            if end != NO:
                return end
            at = _found(scanner.search(buffer, at + 1))
        self._text(buffer, pos, len(buffer))
        return len(buffer)

    def _candidate(self, scanner: StateScanner, buffer: str, at: int, final: bool, text_from: int) -> int:
        """Match the scanner's rows at `at`; on a match, send the text before it and make the transition.

        An earlier row that may still match keeps a later one waiting: the order of rows decides,
        never the chunking.
        """
        attempts = self._attempts
        if not attempts:
            if not final:
                self._awaited = scanner.awaited(buffer, at)
                if self._awaited:
                    return MORE
            attempts = scanner.attempts(buffer, at)
        alive: list[tuple[Row, Attempt]] = []
        for row, attempt in attempts:
            end = attempt.step(buffer, at, final)
            if end == NO:
                continue
            if end != MORE:
                transition = row.transition
                captures = attempt.captures
                if transition.read_name is not None:
                    captures["name"], captures["id"] = transition.read_name(captures["header"], self._tools)
                    if not captures["name"]:
                        continue
                if transition.declared and "name" in captures and captures["name"] not in self._tools:
                    continue
                if not alive:
                    self._attempts = []
                    self._text(buffer, text_from, at)
                    self._transition(transition, captures, buffer, at, end)
                    return end
            alive.append((row, attempt))
        self._attempts = alive
        if not alive:
            return NO
        return MORE

    def _between(self, buffer: str, pos: int, final: bool) -> int:
        """Inside a wrapper, or just after a call, where closers are swallowed."""
        if self._dropping:
            return self._drop(buffer, pos, final)
        if self._between_text:
            return self._scan(buffer, pos, final)
        start = pos
        while start < len(buffer) and buffer[start] in BLANK_CHARS:
            start += 1
        if start > pos:
            # Blanks after a wrapper's marker are framing; after it they are content's business.
            if not self._wrapper or self._as_text:
                self._send(buffer[pos:start], self._at(buffer, pos), State.CONTENT)
            return start
        scanner = self._scanners[State.TOOL_BETWEEN]
        end = self._candidate(scanner.outside if self._closed else scanner, buffer, pos, final, pos)
        if end == MORE:
            return -pos - 1
        if end != NO:
            return end
        if not self._wrapper:
            self.state = State.CONTENT
            self._as_text = False
            return pos
        self._between_text = True
        self._text(buffer, pos, pos + 1)
        return pos + 1

    def _drop(self, buffer: str, pos: int, final: bool) -> int:
        """What is left of a broken call, up to its closer or the next opener."""
        scanner = self._scanners[State.TOOL_BETWEEN].limits
        at = pos if self._attempts else _found(scanner.search(buffer, pos))
        while at >= 0:
            end = self._candidate(scanner, buffer, at, final, at)
            if end == MORE:
                return -at - 1
            if end != NO:
                self._dropping = False
                return end
            at = _found(scanner.search(buffer, at + 1))
        return len(buffer)

    def _start(self, buffer: str, pos: int, final: bool) -> int | None:
        """Where content starts: the forced form, or a call without a marker; None: neither."""
        starts = self._compiled.starts
        if self._forced is None and starts is None:
            self._at_start = False
            return None
        start = pos
        while start < len(buffer) and buffer[start] in BLANK_CHARS:
            start += 1
        if start > pos:
            self._text(buffer, pos, start)
            return start
        forced = self._forced
        if forced is not None and forced.starts is not None and not self._text_seen and buffer[pos] in "[{":
            end = self._candidate(forced.starts, buffer, pos, final, pos)
            if end == MORE:
                return -pos - 1
            self._forced = None
            if end != NO:
                self._compiled = forced
                self._scanners = forced.scanners
                return end
        if starts is not None:
            end = self._candidate(starts, buffer, pos, final, pos)
            if end != NO:
                return -pos - 1 if end == MORE else end
        return None

    # --- transitions ------------------------------------------------------------------------

    def _transition(self, transition: Transition, captures: dict[str, str], buffer: str, at: int, end: int) -> None:
        events = self._events
        recovered = False
        self._wrapper_before = self._wrapper
        self._between_text = False
        for do in transition.do:
            match do:
                case Do.REMOVE | Do.STRAY:
                    if self._as_text and _closes(transition):
                        self._send(buffer[at:end], self._at(buffer, at), State.CONTENT)
                        continue
                    events.append(MarkerRemoved())
                    if do is Do.STRAY:
                        events.append(Notice("stray_marker", 1, self._at(buffer, at)))
                case Do.REASONING_START:
                    events.append(ReasoningStart())
                case Do.REASONING_END:
                    events.append(ReasoningEnd())
                    self._scanners = self._compiled.after
                    self._at_start = True
                    self.state = State.CONTENT
                case Do.MESSAGE:
                    self._begin_message(transition, captures, buffer, at, end)
                    return
                case Do.OPEN_WRAPPER:
                    self._wrapper = True
                    self._closed = False
                case Do.CLOSE_WRAPPER:
                    self._wrapper = False
                    self._closed = True
                case Do.CLOSE_CALL:
                    pass
                case Do.RECOVERED_WRAPPER:
                    recovered = True
                case Do.CALL:
                    self._begin_call(transition, captures, buffer, at, end, recovered)
                    return
        self.state = transition.next

    def _begin_message(self, transition: Transition, captures: dict[str, str], buffer: str, at: int, end: int) -> None:
        """A message's header was read: its text goes where the header says."""
        assert transition.message is not None
        header = transition.message(captures["header"])
        if header.name and transition.arguments is not None:
            self._begin_call(transition, {**captures, "name": header.name}, buffer, at, end, recovered=False)
            return
        self.state = header.state if not header.name else State.CONTENT
        self._dropping = header.state is State.TOOL_BETWEEN
        self._events.append(ReasoningStart() if header.state is State.REASONING else MarkerRemoved())

    def _begin_call(
        self,
        transition: Transition,
        captures: dict[str, str],
        buffer: str,
        at: int,
        end: int,
        recovered: bool,
    ) -> None:
        assert transition.arguments is not None
        self._forced = None  # content has begun with a call
        name = captures.get("name")
        start = self._at(buffer, at)
        context = CallContext(
            name, captures.get("id", ""), captures, self._tools, self._max_held, self._note(start), self._function
        )
        self._origin = self.state
        self._call = transition
        self._decoder = transition.arguments.decoder(context)
        self._named = self._as_text = self._dropping = self._closed = False
        self._raw = [buffer[at:end]]
        self._raw_size = end - at
        self._raw_bound = min(self._max_held, transition.name_within or self._max_held)
        self._call_start = start
        self.state = State.TOOL_ARGS
        if recovered:
            self._events.append(Notice("recovered_wrapper", 1, start))
        if self._decoder.name is not None:
            self._name_is_certain(self._decoder)

    def _note(self, start: int) -> Callable[[NoticeCode, int], None]:
        """A call's way to give notices: at a place in the text it is reading, or (-1) at its start."""
        # The decoder keeps this function and we keep the decoder; without a cycle a dropped stream goes at once.
        engine = weakref.proxy(self)

        def note(code: NoticeCode, pos: int) -> None:
            engine._events.append(Notice(code, 1, engine._at(engine.held, pos) if pos >= 0 else start))

        return note

    def _name_is_certain(self, decoder: Decoder) -> None:
        assert decoder.name is not None
        self._named = True
        if self._origin is State.REASONING:
            self._events.append(ReasoningEnd())
            self._scanners = self._compiled.after
        if self._admit(decoder.name):
            self._events.append(ToolCallStart(decoder.id, decoder.name, self._call_start))
        else:
            self._as_text = True
            self._events.append(Notice("unknown_tool", 1, self._call_start))
            self._send("".join(self._raw), self._call_start, State.CONTENT)
        self._raw.clear()

    # --- a call -----------------------------------------------------------------------------

    def _in_arguments(self, buffer: str, pos: int, final: bool, stopped: bool) -> int:
        decoder = self._decoder
        assert decoder is not None
        out: list[str] = []
        full = False
        if not self._named:
            # The bound counts the text, never what has arrived: read no further than it.
            limit = pos + self._raw_bound - self._raw_size
            full = limit <= len(buffer)
            if full:
                buffer = buffer[:limit]
                final = False
        end = decoder.feed(buffer, pos, out, final, stopped)
        if not self._named:
            self._raw.append(buffer[pos:end])
            self._raw_size += end - pos
            if not self._read_name(decoder, full):
                self._release()
                return end
            if decoder.name is None:
                return end if end == len(buffer) else -end - 1
            if self._as_text:  # the raw text that was just sent reaches up to here
                pos = end
        if self._as_text:
            if end > pos:
                self._send(buffer[pos:end], self._at(buffer, pos), State.CONTENT)
        elif out:
            text = self._compiled.as_json("".join(out)) if self._compiled.id_view else "".join(out)
            if text:
                self._events.append(ToolCallArgumentsDelta(text, self._at(buffer, pos), self._at(buffer, end)))
        if decoder.end is None:
            return end if end == len(buffer) or full else -end - 1
        self._end_call(decoder.end, buffer, end)
        return end

    def _read_name(self, decoder: Decoder, full: bool) -> bool:
        """A decoder that reads the name itself has gone on: False if there is no call after all."""
        assert self._call is not None
        if decoder.end is End.FAILED:
            return False
        if decoder.name is None:
            if not full:
                return True
            if not self._call.name_within:
                self._events.append(Notice("held_text_released", 1, self._call_start))
            return False
        if self._call.declared and decoder.name not in self._tools:
            return False
        self._name_is_certain(decoder)
        return True

    def _release(self) -> None:
        """The running call is none: its text is text of where it was found."""
        self._send("".join(self._raw), self._call_start, self._origin)
        self._raw.clear()
        self._decoder = None
        self._wrapper = self._wrapper_before
        self._between_text = self._wrapper
        self.state = self._origin

    def _end_call(self, end: End, buffer: str, pos: int) -> None:
        self._decoder = None
        self.state = State.TOOL_BETWEEN
        if self._as_text:
            return
        if end is End.COMPLETE:
            self._events.append(ToolCallEnd("complete"))
        elif end is End.UNREADABLE:
            self._events.append(ToolCallEnd("invalid"))
        elif end is End.UNCLOSED:
            self._unclosed = True
        else:
            self._break_call(self._at(buffer, pos))

    def _break_call(self, offset: int) -> None:
        self._events.append(Notice("invalid_arguments", 1, offset))
        self._events.append(ToolCallEnd("invalid"))
        self._dropping = True

    def _after_unclosed(self, buffer: str, pos: int, final: bool) -> int:
        """Whole arguments in a call object without its last brace: the format's closer forgives it."""
        before = len(self._events)
        end = self._candidate(self._scanners[State.TOOL_BETWEEN].closers, buffer, pos, final, pos)
        if end == MORE:
            return -pos - 1
        self._unclosed = False
        if end == NO:
            self._break_call(self._at(buffer, pos))
            return pos
        self._events.insert(before, ToolCallEnd("complete"))
        return end

    # --- text -------------------------------------------------------------------------------

    def _text(self, buffer: str, start: int, end: int) -> None:
        if end > start:
            self._send(buffer[start:end], self._at(buffer, start), self.state)

    def _send(self, text: str, start: int, state: State) -> None:
        end = start + self._compiled.width(text)
        if self._compiled.id_view:
            text = self._compiled.as_text(text)
        if state is State.REASONING:
            self._events.append(ReasoningDelta(text, start, end))
            return
        if (self._at_start or not self._text_seen) and text.strip(BLANK_CHARS):
            self._text_seen = True
            self._at_start = False
        self._events.append(ContentDelta(text, start, end))


def _found(match: re.Match[str] | None) -> int:
    return match.start() if match is not None else -1


def _closes(transition: Transition) -> bool:
    return not CLOSING.isdisjoint(transition.do)
