"""`ChatStream`: one choice of one request, from model output to message deltas.

Start reading here. The engine says what the text is (events); everything that depends on the
request is decided in this file: which calls pass, ids, hidden reasoning, whitespace, accounting,
finish_reason, usage.

`feed` has a fast path: while nothing is held and a delta contains no candidate, it becomes a
`MessageDelta` at once, without engine or events. `_mode` says which; the slow path sets it when it
leaves. The same tokens give the same message on either path, however they are cut (PROTOCOL 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from .accounting import Token, TokenLedger, account
from .channel import RECENT_BLANKS, Channel
from .draft import Draft
from .engine import Engine
from .errors import RequestError, UsageError
from .events import (
    ContentDelta,
    Delta,
    Event,
    MarkerRemoved,
    Notice,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ToolCallArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from .format import Format
from .formats import forced_form, load_format
from .header import BLANK_CHARS
from .identifiers import call_id
from .message import FinishReason, Message, MessageDelta, ToolCallDelta, Usage, fold
from .opening import opening
from .request import ChatOptions
from .scanner import compile_format
from .schema import compile_tools
from .states import State

__all__ = ["ChatStream", "parse"]

_SLOW: Final = 0
_TEXT: Final = 1
_CALL: Final = 2

_new = tuple.__new__
_NO_QUICK: Final[dict[str, str]] = {}
_NO_CANDIDATE: Final = re.compile(r"(?!)").search


class ChatStream:
    """Turns one choice's output into message deltas.

    Args:
        format: a format or its name (`qwen3`, `qwen3+hermes`).
        options: what the request asks of the parser.
        prompt_tail: end of the rendered prompt, None if unknown; decides where reasoning starts.
        special_spellings: spellings of the tokens that the tokenizer flags special.
        added_spellings: spellings of all its added tokens: then these are markers only where they
            come as `Delta(special=True)` (id view). None: markers are found in the text.
        choice_index: which of the request's `n` answers this is.

    Raises:
        RequestError: the format is unknown.
    """

    __slots__ = (
        "_call_count", "_channel", "_choice", "_complete_calls", "_content", "_engine", "_extras", "_fast_call_count",
        "_fed", "_finished", "_first", "_format", "_held_reasoning", "_held_size", "_index", "_ledger", "_mode",
        "_most_blanks", "_options", "_prepend", "_quick", "_reasoning", "_search", "_slow_count",
    )  # fmt: skip

    def __init__(
        self,
        format: Format | str,
        options: ChatOptions,
        prompt_tail: str | None = None,
        special_spellings: Collection[str] = (),
        added_spellings: Collection[str] | None = None,
        choice_index: int = 0,
    ) -> None:
        if isinstance(format, str):
            format = load_format(format)
        self._format = format
        self._options = options
        self._choice = choice_index
        added = None if added_spellings is None else frozenset(added_spellings)
        special = frozenset(special_spellings)
        parsing = bool(options.tools)
        start = opening(format, options, prompt_tail)
        forced = None
        if parsing and options.tool_choice in ("required", "named"):
            forced = compile_format(forced_form(format, options.tool_choice), True, added, special, format)
        self._engine = Engine(
            compile_format(format, parsing, added, special),
            start.state,
            start.reasoned,
            compile_tools(options.tools),
            options.max_held_chars,
            partial(_admits, options),  # no method of this object: a stream that is dropped must go at once
            forced,
            options.function,
        )
        self._content = Channel()
        self._reasoning = Channel()
        self._content.touched = start.at_marker
        prompted = (prompt_tail or format.prepend).rstrip(BLANK_CHARS).endswith(format.prepend)
        self._prepend = format.prepend if prompted else ""
        self._ledger = TokenLedger(options.return_token_ids and options.include_reasoning)
        self._fed = 0  # characters of the model's text
        self._slow_count = 0
        self._fast_call_count = 0
        self._call_count = 0
        self._complete_calls = 0
        self._index: int | None = None  # of the running call; None: it is not sent
        self._held_reasoning: list[str] = []  # for force_nonempty_content
        self._held_size = 0
        self._finished = False
        self._extras = options.return_token_ids or options.logprobs or options.force_nonempty_content
        self._channel = self._content
        self._search: Callable[..., re.Match[str] | None] = _NO_CANDIDATE
        self._first = ""
        self._quick: Callable[[str], str | None] = _NO_QUICK.get
        self._mode = _SLOW
        self._most_blanks = min(RECENT_BLANKS, options.max_held_chars)

    @property
    def state(self) -> State:
        """Where in the message the stream is, as far as is certain."""
        return self._engine.settled

    def feed(self, delta: Delta) -> tuple[MessageDelta, ...]:
        """Take one piece of output; returns what it decides, in the model's order.

        Raises:
            UsageError: the stream has finished.
        """
        mode = self._mode
        if mode and not delta.special:
            text = delta.text
            if mode == _TEXT:
                first = self._first
                if text and ((first and first not in text) or self._search(text) is None):
                    channel = self._channel
                    if channel.blanks or text[-1] <= " ":
                        if len(channel.blanks) + len(text) > self._most_blanks:
                            return self._feed_slowly(delta)
                        self._fed += len(text)
                        text = channel.fast(text, delta.token_ids, self._fed)
                        if not text:
                            return ()
                    else:
                        self._fed += len(text)
                        channel.fast_count += len(delta.token_ids)
                    # Spelled out: a tuple literal costs a third less than unpacking a shared tail.
                    if channel is self._content:
                        return (_new(MessageDelta, (None, text, (), None, None, (), (), (), self._choice, ())),)
                    return (_new(MessageDelta, (text, None, (), None, None, (), (), (), self._choice, ())),)
            else:
                sent = self._quick(text)
                if sent is not None:
                    self._fed += len(text)
                    self._fast_call_count += len(delta.token_ids)
                    call = _new(ToolCallDelta, (self._index, None, None, sent, None))
                    return (_new(MessageDelta, (None, None, (call,), None, None, (), (), (), self._choice, ())),)
        return self._feed_slowly(delta)

    def finish(
        self,
        reason: FinishReason = "stop",
        *,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
        cached_tokens: int | None = None,
    ) -> tuple[MessageDelta, ...]:
        """The output has ended: release what is held; the last delta bears finish_reason and usage.

        Args:
            reason: why the LLM stopped.
            prompt_tokens: tokens of the prompt, where known.
            completion_tokens: tokens generated, where the LLM counted; else counted from the ids.
            cached_tokens: prompt tokens from the LLM's cache, where known.

        Raises:
            UsageError: the stream has finished before.
        """
        if self._finished:
            raise UsageError("finish after finish; make a ChatStream for each choice of each request")
        engine = self._engine
        if not engine.held:
            engine.position = self._fed
        draft = Draft(self._choice, self._options)
        self._consume(engine.finish(stopped=reason in ("stop", "tool_calls")), draft)
        content = self._content
        self._end_reasoning(draft)
        if content.blanks and not content.touched:
            draft.add_content(content.take(), account(content.tokens, 0))
            content.sent = True
        elif not content.sent and self._held_reasoning:
            draft.add_content("".join(self._held_reasoning)[: self._options.max_held_chars])
        draft.add_ids(self._ledger.ids_before(None))
        self._finished = True
        self._mode = _SLOW
        if completion_tokens is None:
            completion_tokens = self._counted()
        reasoning_tokens = None
        if self._counted() is not None:
            reasoning_tokens = self._reasoning.fast_count + self._reasoning.counted
        usage = Usage(prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens)
        return draft.finished(self._finish_reason(reason), usage if any(n is not None for n in usage) else None)

    # --- the slow path ----------------------------------------------------------------------

    def _feed_slowly(self, delta: Delta) -> tuple[MessageDelta, ...]:
        if self._finished:
            raise UsageError("feed after finish; make a ChatStream for each choice of each request")
        engine = self._engine
        start = self._fed
        if not engine.held:
            engine.position = start
        self._fed = end = start + len(delta.text)
        ids = delta.token_ids
        if ids:
            self._ledger.put(_new(Token, (start, end, ids, delta.logprobs)))
            self._slow_count += len(ids)
        events = engine.feed(delta.text, delta.special)
        if not events:
            self._choose_mode()
            return ()
        if len(events) == 1 and self._index is not None and not self._extras:
            only = events[0]
            if type(only) is ToolCallArgumentsDelta:  # by far the commonest: no draft is needed
                self._ledger.before(only.end)
                self._choose_mode()
                call = _new(ToolCallDelta, (self._index, None, None, only.text, None))
                return (_new(MessageDelta, (None, None, (call,), None, None, (), (), (), self._choice, ())),)
        draft = Draft(self._choice, self._options)
        self._consume(events, draft)
        self._choose_mode()
        return draft.deltas()

    def _consume(self, events: list[Event], draft: Draft) -> None:
        for event in events:
            match event:
                case ContentDelta():
                    self._send(self._content, event.text, event.start, event.end, draft)
                case ReasoningDelta():
                    self._send(self._reasoning, event.text, event.start, event.end, draft)
                case ToolCallArgumentsDelta():
                    if self._index is not None:
                        self._ledger.before(event.end)  # arguments have no log probabilities
                        draft.add_call(_new(ToolCallDelta, (self._index, None, None, event.text, None)))
                    else:
                        self._ledger.drop(event.end)
                    draft.add_ids(self._ledger.ids_before(event.end))
                case ToolCallStart():
                    self._touch(draft)
                    self._start_call(event, draft)
                case ToolCallEnd():
                    self._touch(draft)
                    if self._index is not None:
                        draft.add_call(_new(ToolCallDelta, (self._index, None, None, "", event.status)))
                        self._complete_calls += event.status == "complete"
                        self._index = None
                case MarkerRemoved() | ReasoningStart():
                    self._touch(draft)
                case ReasoningEnd():
                    self._touch(draft)
                    self._end_reasoning(draft)
                case Notice():
                    draft.add_notice(event)

    def _end_reasoning(self, draft: Draft) -> None:
        """Its last run of blanks is dropped, unless it was too long to hold."""
        reasoning = self._reasoning
        if reasoning.flowing:
            draft.add_notice(Notice("held_text_released", 1, reasoning.blanks_end))
            reasoning.flowing = False

    def _touch(self, draft: Draft) -> None:
        """A marker was removed: it touches the run of blanks before and after it."""
        content = self._content
        if content.flowing and not content.touched:
            draft.add_notice(Notice("held_text_released", 1, content.blanks_end))
        content.touched = True

    def _send(self, channel: Channel, text: str, start: int, end: int, draft: Draft) -> None:
        """Send text under the whitespace rule (PROTOCOL 3)."""
        body = len(text.rstrip(BLANK_CHARS))
        limit = self._options.max_held_chars
        if body == 0:
            channel.hold(text, end)
            channel.tokens += self._claim(channel, start, end)
            if channel.flowing or channel.size + len(channel.blanks) > limit:
                self._release_blanks(channel, draft)
            return
        lead = len(text) - len(text.lstrip(BLANK_CHARS))
        waiting_end = channel.blanks_end
        run = channel.take() + text[:lead]
        kept = run
        if len(run) > limit:
            if not channel.flowing:
                self._note_bent(channel, start + lead - len(run), draft)
        elif not channel.sent:
            if channel is self._reasoning:
                kept = ""
            elif channel.touched:
                kept = run[run.rfind("\n") + 1 :]
        if len(kept) == len(run):
            first = 0  # all of it, wherever a removed marker parts it
        else:
            waiting = len(kept) - lead  # kept characters that came before this text
            first = start - waiting if waiting <= 0 else waiting_end - waiting
        channel.tokens += self._claim(channel, start, start + body)
        self._emit(channel, kept + text[lead:body], first, start + body, draft)
        channel.hold(text[body:], end)
        channel.tokens = self._ledger.before(end)
        channel.flowing = False
        if len(channel.blanks) > limit:
            self._release_blanks(channel, draft)

    def _claim(self, channel: Channel, start: int, end: int) -> list[Token]:
        """The tokens of a text; also one that began with blanks of the other channel which are not sent."""
        tokens = self._ledger.between(start, end)
        waiting = (self._reasoning if channel is self._content else self._content).tokens
        if waiting and waiting[-1].end > start:
            tokens.insert(0, waiting.pop())
        return tokens

    def _release_blanks(self, channel: Channel, draft: Draft) -> None:
        """A run of blanks beyond the bound: it goes out, and so does what is left of it."""
        run = channel.take()
        start = channel.blanks_end - len(run)
        if not channel.flowing:
            self._note_bent(channel, start, draft)
        channel.flowing = True
        self._emit(channel, run, 0, channel.blanks_end, draft)

    def _note_bent(self, channel: Channel, start: int, draft: Draft) -> None:
        """A run beyond the bound goes out where the whitespace rule may have had a say."""
        if channel.touched or (channel is self._reasoning and not channel.sent):
            draft.add_notice(Notice("held_text_released", 1, start))

    def _emit(self, channel: Channel, text: str, start: int, end: int, draft: Draft) -> None:
        taken = account(channel.tokens, start)
        channel.tokens = []
        channel.counted += taken.count
        channel.sent = True
        channel.touched = False
        if channel is self._content:
            if self._prepend:
                text = self._prepend + text
                self._prepend = ""
            draft.add_content(text, taken)
            draft.add_ids(self._ledger.ids_before(end))
            return
        if not self._options.include_reasoning:
            return
        if self._options.force_nonempty_content and self._held_size < self._options.max_held_chars:
            self._held_reasoning.append(text)
            self._held_size += len(text)
        draft.add_reasoning(text, taken)
        draft.add_ids(self._ledger.ids_before(end))

    def _choose_mode(self) -> None:
        """Which fast path the next delta may take."""
        self._mode = _SLOW
        engine = self._engine
        if engine.held or self._extras:
            return
        state = engine.state
        if state is State.TOOL_ARGS:
            quick = engine.quick()
            if quick is not None and self._index is not None:
                self._quick = quick
                self._mode = _CALL
        elif state is State.CONTENT or (state is State.REASONING and self._options.include_reasoning):
            channel = self._content if state is State.CONTENT else self._reasoning
            fits = channel.sent and not channel.touched and not channel.flowing
            if fits and engine.is_plain and len(channel.blanks) < self._most_blanks:
                scanner = engine.scanner
                self._channel = channel
                self._search = scanner.search
                self._first = scanner.first
                self._mode = _TEXT

    # --- policy -----------------------------------------------------------------------------

    def _start_call(self, event: ToolCallStart, draft: Draft) -> None:
        options = self._options
        offset = event.start
        self._index = None
        known = any(tool.name == event.name for tool in options.tools)
        if not known:
            draft.add_notice(Notice("unknown_tool", 1, offset))
        dropped = (
            options.tool_choice == "none"
            or (options.allowed is not None and event.name not in options.allowed)
            or (not options.parallel_tool_calls and self._call_count > 0)
            or (not known and options.unknown_tool == "drop")
        )
        if dropped:
            draft.add_notice(Notice("call_dropped", 1, offset))
            return
        index = self._index = self._call_count
        self._call_count += 1
        style = self._format.tools.ids if self._format.tools is not None else "call"
        identifier = event.id or call_id(
            style, options.id_seed, self._choice, index, event.name, options.history_calls + index
        )
        draft.add_call(ToolCallDelta(index, identifier, event.name))

    def _finish_reason(self, reason: FinishReason) -> FinishReason:
        if reason not in ("stop", "tool_calls"):
            return reason
        called = self._complete_calls > 0 and self._options.tool_choice in ("auto", "required")
        return "tool_calls" if called else "stop"

    def _counted(self) -> int | None:
        """Tokens seen, or None where no ids came."""
        content, reasoning = self._content, self._reasoning
        fast = content.fast_count + content.unsent + reasoning.fast_count + reasoning.unsent + self._fast_call_count
        return fast + self._slow_count or None


def _admits(options: ChatOptions, name: str) -> bool:
    """Is a call to `name` a call (True), or text with its markers?"""
    return options.unknown_tool != "content" or any(tool.name == name for tool in options.tools)


def parse(
    text: str,
    format: Format | str,
    options: ChatOptions | Mapping[str, Any] | None = None,
    *,
    prompt_tail: str | None = None,
    finish: FinishReason = "stop",
) -> Message:
    """The message that a whole output means: one `feed`, `finish`, and the fold.

    Args:
        text: the model's whole raw output, special tokens spelled out.
        format: a format or its name.
        options: options, or an OpenAI body to read them from.
        prompt_tail: end of the rendered prompt, None if unknown.
        finish: why the model stopped.

    Raises:
        RequestError: the options cannot be served, or the format is unknown.
    """
    if options is None:
        options = ChatOptions()
    elif not isinstance(options, ChatOptions):
        if not isinstance(options, Mapping):
            raise RequestError("options", type(options).__name__, "ChatOptions or a request body")
        options = ChatOptions.from_openai(options)
    stream = ChatStream(format, options, prompt_tail)
    return fold((*stream.feed(Delta(text)), *stream.finish(finish)))
