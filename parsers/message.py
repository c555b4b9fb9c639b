"""What a client gets: message deltas, and the message that they fold into.

The non-streaming result *is* the fold of the stream; there is no second parser (PROTOCOL 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from .events import Notice, NoticeCode, ToolCallStatus

__all__ = ["FinishReason", "Message", "MessageDelta", "ToolCall", "ToolCallDelta", "Usage", "fold"]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class ToolCallDelta(NamedTuple):
    """More of one tool call.

    Args:
        index: which call of this choice, from 0, in the order of the answer.
        id: on the call's first delta only, else None.
        name: on the call's first delta only, else None.
        arguments: JSON text to append; "" when this delta brings none.
        status: on the call's last delta only: complete, incomplete (cut) or invalid.
    """

    index: int  # type: ignore[assignment]  # OpenAI's word; hides a method of tuple nobody needs here
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    status: ToolCallStatus | None = None


class Usage(NamedTuple):
    """Token counts of a request; None where nobody counted.

    Args:
        prompt_tokens: tokens of the rendered prompt.
        completion_tokens: tokens the model generated, markers included.
        reasoning_tokens: those whose first sent character is reasoning.
        cached_tokens: prompt tokens the LLM took from its cache.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None

    def to_openai(self) -> dict[str, Any]:
        """The `usage` object of the OpenAI API; members nobody counted are left out."""
        usage: dict[str, Any] = {}
        if self.prompt_tokens is not None:
            usage["prompt_tokens"] = self.prompt_tokens
        if self.completion_tokens is not None:
            usage["completion_tokens"] = self.completion_tokens
        if self.prompt_tokens is not None and self.completion_tokens is not None:
            usage["total_tokens"] = self.prompt_tokens + self.completion_tokens
        if self.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
        if self.reasoning_tokens is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.reasoning_tokens}
        return usage

    @classmethod
    def from_openai(cls, usage: Mapping[str, Any]) -> Usage:
        """The reverse of `to_openai`."""
        return cls(
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            (usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
            (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        )


class MessageDelta(NamedTuple):
    """One step of the answer. Its fields are in the order the model wrote them.

    Where the model's order differs from reasoning, content, tool_calls, `ChatStream.feed` returns
    several deltas, so the order is never lost.

    Args:
        reasoning: text to append to the reasoning, or None.
        content: text to append to the content, or None.
        tool_calls: more of one or several tool calls.
        finish_reason: on the last delta only.
        usage: on the last delta only.
        notices: what was odd in the model's output.
        token_ids: ids of the tokens first sent here, and of markers removed before them.
        logprobs: OpenAI `logprobs.content` entries of the content sent here.
        choice_index: which of the request's `n` answers.
        reasoning_logprobs: entries of the reasoning sent here; only on request.
    """

    reasoning: str | None = None
    content: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    notices: tuple[Notice, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[Mapping[str, Any], ...] = ()
    choice_index: int = 0
    reasoning_logprobs: tuple[Mapping[str, Any], ...] = ()


@dataclass(slots=True)
class ToolCall:
    """A whole tool call; `arguments` is JSON text, valid if `status` is complete."""

    id: str
    name: str
    arguments: str
    status: ToolCallStatus | None = None


@dataclass(slots=True)
class Message:
    """The whole answer of one choice. `content` and `reasoning` are None where nothing was sent."""

    reasoning: str | None = None
    content: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    notices: list[Notice] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Mapping[str, Any]] = field(default_factory=list)
    choice_index: int = 0
    reasoning_logprobs: list[Mapping[str, Any]] = field(default_factory=list)


def fold(deltas: Iterable[MessageDelta]) -> Message:
    """Join the deltas of one choice into its message.

    Notices of one code are added up; their offset is the first one's. Linear in the text.
    """
    message = Message()
    reasoning: list[str] = []
    content: list[str] = []
    arguments: list[list[str]] = []
    notices: dict[NoticeCode, Notice] = {}
    for delta in deltas:
        message.choice_index = delta.choice_index
        if delta.reasoning is not None:
            reasoning.append(delta.reasoning)
        if delta.content is not None:
            content.append(delta.content)
        for call in delta.tool_calls:
            while len(message.tool_calls) <= call.index:
                message.tool_calls.append(ToolCall("", "", ""))
                arguments.append([])
            whole = message.tool_calls[call.index]
            whole.id = call.id or whole.id
            whole.name = call.name or whole.name
            whole.status = call.status or whole.status
            if call.arguments:
                arguments[call.index].append(call.arguments)
        for notice in delta.notices:
            seen = notices.get(notice.code)
            if seen is not None:
                notice = Notice(seen.code, seen.count + notice.count, min(seen.offset, notice.offset))
            notices[notice.code] = notice
        message.token_ids.extend(delta.token_ids)
        message.logprobs.extend(delta.logprobs)
        message.reasoning_logprobs.extend(delta.reasoning_logprobs)
        message.finish_reason = delta.finish_reason or message.finish_reason
        message.usage = delta.usage or message.usage
    message.reasoning = "".join(reasoning) or None
    message.content = "".join(content) or None
    for whole, pieces in zip(message.tool_calls, arguments, strict=True):
        whole.arguments = "".join(pieces)
    message.notices = list(notices.values())
    return message
