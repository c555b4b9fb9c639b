"""The token view: what a stream's tokens are for, by id.

The LLM side asks it when a constraint may start (PROTOCOL 8); tests ask it what usage must say. It
reads the same tables through the same `ChatStream`, so it cannot disagree with what a client gets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from .chat import ChatStream
from .events import Delta
from .format import Format
from .request import ChatOptions
from .states import State

__all__ = ["TokenView"]


class TokenView:
    """Follows one choice's tokens.

    Args:
        format: a format or its name.
        options: the request; what it hides is counted all the same.
        prompt_tail, special_spellings, added_spellings: as for `ChatStream`.

    Attributes:
        content_ids: tokens whose first sent character is content.
        reasoning_ids: tokens whose first sent character is reasoning.
    """

    __slots__ = ("_stream", "content_ids", "reasoning_ids")

    def __init__(
        self,
        format: Format | str,
        options: ChatOptions,
        prompt_tail: str | None = None,
        special_spellings: Collection[str] = (),
        added_spellings: Collection[str] | None = None,
    ) -> None:
        # Log probabilities are dealt out to exactly the tokens of each channel: ids ride on them.
        options = replace(options, include_reasoning=True, logprobs=True, reasoning_logprobs=True)
        self._stream = ChatStream(format, options, prompt_tail, special_spellings, added_spellings)
        self.content_ids: list[int] = []
        self.reasoning_ids: list[int] = []

    @property
    def reasoning_ended(self) -> bool:
        """Is the output outside reasoning now?"""
        return self._stream.state is not State.REASONING

    def feed(self, deltas: Iterable[Delta]) -> None:
        """More tokens, as Deltas."""
        for delta in deltas:
            marked = Delta(
                delta.text, delta.token_ids, delta.special, tuple({"id": token} for token in delta.token_ids)
            )
            for message in self._stream.feed(marked):
                self.content_ids += [entry["id"] for entry in message.logprobs]
                self.reasoning_ids += [entry["id"] for entry in message.reasoning_logprobs]

    def count_reasoning_tokens(self) -> int:
        """Tokens of reasoning so far, as `usage` counts them."""
        return len(self.reasoning_ids)
