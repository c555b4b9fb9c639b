"""Deltas of one stream that wait together, merged into as few as their order allows.

Every response costs an IPC round trip, so what a batch brings for one stream goes out together. Fields inside
one delta are in the order reasoning, content, tool_calls (PROTOCOL 2); a delta that would go back in that order
starts a new one, so the order in which the model wrote is never lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tristream.parsers.events import Notice
from tristream.parsers.message import FinishReason, MessageDelta, ToolCallDelta, Usage

__all__ = ["merge_deltas"]

REASONING, CONTENT, TOOL_CALLS = 1, 2, 3


def merge_deltas(deltas: Sequence[MessageDelta]) -> list[MessageDelta]:
    """Merge neighbours; folding the result gives what folding `deltas` gives. Linear in their text.

    Args:
        deltas: in order; of one choice or of several.
    """
    if len(deltas) < 2:
        return list(deltas)
    # By far the commonest: content and nothing else, or reasoning and nothing else.
    content = [
        delta.content for delta in deltas if delta.content is not None and delta == MessageDelta(None, delta.content)
    ]
    if len(content) == len(deltas):
        return [MessageDelta(content="".join(content))]
    reasoning = [
        delta.reasoning for delta in deltas if delta.reasoning is not None and delta == MessageDelta(delta.reasoning)
    ]
    if len(reasoning) == len(deltas):
        return [MessageDelta(reasoning="".join(reasoning))]
    merged: list[MessageDelta] = []
    group = _Group(deltas[0])
    for delta in deltas[1:]:
        if group.takes(delta):
            group.add(delta)
        else:
            merged.append(group.delta())
            group = _Group(delta)
    merged.append(group.delta())
    return merged


class _Group:
    """Neighbours that become one delta."""

    __slots__ = (
        "_calls",
        "_content",
        "_finish_reason",
        "_first",
        "_logprobs",
        "_notices",
        "_position",
        "_reasoning",
        "_reasoning_logprobs",
        "_single",
        "_token_ids",
        "_usage",
    )

    def __init__(self, first: MessageDelta) -> None:
        self._first = first
        self._single = True
        self._position = 0
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._calls: list[ToolCallDelta] = []
        self._notices: list[Notice] = []
        self._token_ids: list[int] = []
        self._logprobs: list[Mapping[str, Any]] = []
        self._reasoning_logprobs: list[Mapping[str, Any]] = []
        self._finish_reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._add(first)

    def takes(self, delta: MessageDelta) -> bool:
        """May `delta` join without changing the order of anything?"""
        if delta.choice_index != self._first.choice_index or self._finish_reason is not None:
            return False
        if delta.reasoning is not None:
            return self._position <= REASONING
        if delta.content is not None:
            return self._position <= CONTENT
        return True

    def add(self, delta: MessageDelta) -> None:
        """Join `delta`."""
        self._single = False
        self._add(delta)

    def _add(self, delta: MessageDelta) -> None:
        if delta.reasoning is not None:
            self._reasoning.append(delta.reasoning)
            self._position = REASONING
        if delta.content is not None:
            self._content.append(delta.content)
            self._position = CONTENT
        if delta.tool_calls:
            self._calls.extend(delta.tool_calls)
            self._position = TOOL_CALLS
        self._notices.extend(delta.notices)
        self._token_ids.extend(delta.token_ids)
        self._logprobs.extend(delta.logprobs)
        self._reasoning_logprobs.extend(delta.reasoning_logprobs)
        self._finish_reason = delta.finish_reason
        self._usage = delta.usage or self._usage

    def delta(self) -> MessageDelta:
        """The merged delta."""
        if self._single:
            return self._first
        return MessageDelta(
            reasoning="".join(self._reasoning) if self._reasoning else None,
            content="".join(self._content) if self._content else None,
            tool_calls=_merge_calls(self._calls),
            finish_reason=self._finish_reason,
            usage=self._usage,
            notices=_merge_notices(self._notices),
            token_ids=tuple(self._token_ids),
            logprobs=tuple(self._logprobs),
            choice_index=self._first.choice_index,
            reasoning_logprobs=tuple(self._reasoning_logprobs),
        )


def _merge_calls(calls: Sequence[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Join neighbours of one call; several calls stay apart, in order."""
    merged: list[ToolCallDelta] = []
    arguments: list[str] = []
    for call in calls:
        last = merged[-1] if merged else None
        if last is not None and last.index == call.index:
            arguments.append(call.arguments)
            merged[-1] = ToolCallDelta(
                last.index, last.id or call.id, last.name or call.name, "", call.status or last.status
            )
        else:
            if last is not None:
                merged[-1] = last._replace(arguments="".join(arguments))
            merged.append(call)
            arguments = [call.arguments]
    if merged:
        merged[-1] = merged[-1]._replace(arguments="".join(arguments))
    return tuple(merged)


def _merge_notices(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """One per code: counts added up, the first offset kept, as `fold` does."""
    merged: dict[str, Notice] = {}
    for notice in notices:
        seen = merged.get(notice.code)
        if seen is not None:
            notice = Notice(seen.code, seen.count + notice.count, min(seen.offset, notice.offset))
        merged[notice.code] = notice
    return tuple(merged.values())
