"""What a user reads of an answer in the `openai` package's types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

__all__ = ["facts", "folded"]


def facts(answer: ChatCompletion) -> list[Any]:
    """Of every choice: index, reasoning, content, calls, finish reason."""
    return [
        (
            choice.index,
            getattr(choice.message, "reasoning", None),
            choice.message.content,
            [
                (call.id, call.function.name, call.function.arguments, getattr(call, "status", None))
                for call in choice.message.tool_calls or ()
                if call.type == "function"
            ],
            choice.finish_reason,
        )
        for choice in answer.choices
    ]


def folded(chunks: Iterable[ChatCompletionChunk]) -> ChatCompletion:
    """What the package's accumulator makes of these chunks (its `get_final_completion` raises at `length`)."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    return ChatCompletion.model_validate(state.current_completion_snapshot.model_dump())
