"""Collects what one `feed` decides into as few message deltas as the model's order allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .accounting import NOTHING_TAKEN, Taken
from .events import Notice
from .message import FinishReason, MessageDelta, ToolCallDelta, Usage
from .request import ChatOptions

__all__ = ["Draft"]

_REASONING: Final = 0
_CONTENT: Final = 1
_CALLS: Final = 2


class Draft:
    """Message deltas being made; fields of one are in the order reasoning, content, tool_calls."""

    __slots__ = (
        "_calls", "_choice", "_content", "_done", "_ids", "_logprobs", "_notices", "_options", "_rank", "_reasoning",
        "_reasoning_logprobs", "_shows_tokens",
    )  # fmt: skip

    def __init__(self, choice: int, options: ChatOptions) -> None:
        self._choice = choice
        self._options = options
        # Ids and log probabilities would show hidden reasoning (PROTOCOL 4, "no side channel").
        self._shows_tokens = options.include_reasoning
        self._done: list[MessageDelta] = []
        self._clear()

    def _clear(self) -> None:
        self._rank = _REASONING
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[ToolCallDelta] = []
        self._notices: list[Notice] = []
        self._ids: tuple[int, ...] = ()
        self._logprobs: tuple[Mapping[str, Any], ...] = ()
        self._reasoning_logprobs: tuple[Mapping[str, Any], ...] = ()

    def _enter(self, rank: int) -> None:
        if rank < self._rank:
            self._flush()
        self._rank = rank

    def add_reasoning(self, text: str, taken: Taken = NOTHING_TAKEN) -> None:
        """More reasoning."""
        self._enter(_REASONING)
        self._reasoning.append(text)
        if self._options.reasoning_logprobs and self._options.logprobs and self._shows_tokens:
            self._reasoning_logprobs += taken.logprobs

    def add_content(self, text: str, taken: Taken = NOTHING_TAKEN) -> None:
        """More content."""
        self._enter(_CONTENT)
        self._content.append(text)
        if self._options.logprobs and self._shows_tokens:
            self._logprobs += taken.logprobs

    def add_call(self, call: ToolCallDelta) -> None:
        """More of a call; joined to what this delta already has of it."""
        self._enter(_CALLS)
        last = self._calls[-1] if self._calls else None
        if last is not None and last.index == call.index and last.status is None and call.name is None:
            self._calls[-1] = last._replace(arguments=last.arguments + call.arguments, status=call.status)
        else:
            self._calls.append(call)

    def add_ids(self, ids: tuple[int, ...]) -> None:
        """Ids that travel with what was just added."""
        if ids and self._shows_tokens:
            self._ids += ids

    def add_notice(self, notice: Notice) -> None:
        """Something odd."""
        self._notices.append(notice)

    def _make(self, finish_reason: FinishReason | None = None, usage: Usage | None = None) -> MessageDelta:
        return MessageDelta(
            ("".join(self._reasoning) or None) if self._reasoning else None,
            ("".join(self._content) or None) if self._content else None,
            tuple(self._calls),
            finish_reason,
            usage,
            tuple(self._notices),
            self._ids,
            self._logprobs,
            self._choice,
            self._reasoning_logprobs,
        )

    @property
    def _is_empty(self) -> bool:
        return not (self._calls or self._content or self._reasoning or self._notices or self._ids)

    def _flush(self) -> None:
        if not self._is_empty:
            self._done.append(self._make())
        self._clear()

    def deltas(self) -> tuple[MessageDelta, ...]:
        """What was decided; empty deltas are not made. The draft is used up."""
        return tuple(self._done) if self._is_empty else (*self._done, self._make())

    def finished(self, reason: FinishReason, usage: Usage | None) -> tuple[MessageDelta, ...]:
        """The same, with the end of the message on the last one."""
        return (*self._done, self._make(reason, usage))
