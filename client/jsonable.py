"""Deltas and messages as JSON objects, for `--json`: the words of `MessageDelta`, without what is empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tristream.parsers import Message, MessageDelta, Notice, ToolCallDelta

__all__ = ["delta_object", "message_object", "notice_objects"]


def delta_object(delta: MessageDelta) -> dict[str, Any]:
    """One delta; members that bring nothing are left out, `choice_index` where it is 0."""
    members: dict[str, Any] = {
        "choice_index": delta.choice_index,
        "reasoning": delta.reasoning,
        "content": delta.content,
        "tool_calls": [_call_object(call) for call in delta.tool_calls],
        "finish_reason": delta.finish_reason,
        "usage": None if delta.usage is None else delta.usage.to_openai(),
        "notices": notice_objects(delta.notices),
        "token_ids": list(delta.token_ids),
        "logprobs": list(delta.logprobs),
        "reasoning_logprobs": list(delta.reasoning_logprobs),
    }
    return {name: value for name, value in members.items() if value}


def message_object(message: Message) -> dict[str, Any]:
    """A whole message; `reasoning`, `content`, `tool_calls` and `finish_reason` are always there."""
    members: dict[str, Any] = {
        "reasoning": message.reasoning,
        "content": message.content,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "status": call.status}
            for call in message.tool_calls
        ],
        "finish_reason": message.finish_reason,
    }
    if message.usage is not None and message.usage.to_openai():
        members["usage"] = message.usage.to_openai()
    if message.notices:
        members["notices"] = notice_objects(message.notices)
    return members


def _call_object(call: ToolCallDelta) -> dict[str, Any]:
    return {name: value for name, value in call._asdict().items() if value or name == "index"}


def notice_objects(notices: Sequence[Notice]) -> list[dict[str, Any]]:
    """Notices: code, count, offset."""
    return [notice._asdict() for notice in notices]
