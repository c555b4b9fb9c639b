"""The state of live streams: `Stream` is one request's, `StreamTable` holds them all.

`postprocess` and `chat_direct` use the same `Stream`: what the LLM says in, message deltas out. It has one
`ChatStream` and one detokenizer per choice, and sends usage once, after the last choice.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tristream.parsers import ChatOptions, ChatStream, Delta, MessageDelta, Notice, Usage, load_format
from tristream.parsers.events import UNKNOWN_ID
from tristream.parsers.formats import spelled
from tristream.parsers.message import FinishReason

from .detokenizer import Detokenizer, Vocabulary
from .llm_outputs import BACKENDS, OutputReader, Outputs, ReaderOptions, read_meta
from .merging import merge_deltas
from .opening import Opening
from .realigner import TextRealigner
from .settings import StreamSettings
from .tensors import compact_json

__all__ = ["Chat", "Opening", "Stream", "lost_message", "merge_deltas"]

MAX_SHARED_CHARS: Final = 65_536
"""Longest JSON of declared tools that streams share; 64 of them are kept."""

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "error": "error",
}
"""What an LLM may say -> what the parser is told; anything else (vLLM's `tool_calls`, `eos`) is a stop."""


def lost_message(choice_index: int = 0) -> MessageDelta:
    """What a client gets whose stream's state is gone: no text, for the options that would allow it are gone too."""
    return MessageDelta(finish_reason="error", notices=(Notice("stream_lost", 1, 0),), choice_index=choice_index)


class Chat(Protocol):
    """`tristream.parsers.ChatStream`, as far as a stream needs it."""

    def feed(self, delta: Delta) -> Sequence[MessageDelta]:
        """More model output."""
        ...

    def finish(
        self,
        reason: Any,
        *,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
        cached_tokens: int | None = None,
    ) -> Sequence[MessageDelta]:
        """The end; the last delta has finish_reason and usage."""
        ...


@dataclass(slots=True)
class _Choice:
    """One of n answers."""

    chat: Chat
    source: Detokenizer | TextRealigner
    received: int = 0
    heard: bool = False
    finished: bool = False
    usage: Usage | None = None


class Stream:
    """One request: the LLM's steps in, message deltas out.

    Args:
        opening: what is known of the request.
        choices: how many answers it wants.
        make_chat: choice index -> its parser.
        vocabulary: the LLM's tokenizer.
        reader: reads what its backend says; None: our own `llm`.
    """

    __slots__ = ("_choices", "_make_chat", "_reader", "_vocabulary", "ended", "error", "opening", "tokens")

    def __init__(
        self,
        opening: Opening,
        choices: int,
        make_chat: Callable[[int], Chat],
        vocabulary: Vocabulary,
        reader: OutputReader | None = None,
    ) -> None:
        self.opening = opening
        self.tokens = 0
        """Tokens that have come, of all choices."""
        self.ended = False
        """The last step has come; the state can go."""
        self.error = ""
        """What the LLM said of its failure: for the log, not for the client."""
        self._reader = reader or BACKENDS["tristream"].make(_DEFAULTS)
        self._make_chat: Callable[[int], Chat] | None = make_chat
        self._vocabulary = vocabulary
        self._choices: list[_Choice | None] = [None] * choices
        self._choice(0)
        if choices == 1:
            self._make_chat = None  # and with it what it keeps of the request: most streams have one answer

    @classmethod
    def open(cls, opening: Opening, vocabulary: Vocabulary, settings: StreamSettings) -> Stream:
        """Start a stream.

        Args:
            opening: what is known of the request.
            vocabulary: the LLM's tokenizer.
            settings: of the model.

        Raises:
            RequestError: unknown format, or options that cannot be served.
        """
        spec = load_format(spelled(opening.format or settings.format, vocabulary.added_spellings))
        request = opening.request
        if request.get("tools"):
            request = {**request, "tools": _shared_tools(compact_json(request["tools"]))}
        # ids of calls are derived from the seed: the stream's own unless the request brings one
        options = ChatOptions.from_openai(request, id_seed="" if request.get("id_seed") else opening.stream_id)
        backend = BACKENDS[settings.llm_backend]
        by_ids = backend.has_ids and settings.match == "ids"
        added = vocabulary.added_spellings if by_ids else None

        def make_chat(index: int) -> Chat:
            return ChatStream(
                spec,
                options,
                prompt_tail=opening.prompt_tail,
                special_spellings=vocabulary.special_spellings,
                added_spellings=added,
                choice_index=index,
            )

        choices = opening.choices(settings)
        reader = backend.make(opening.reader_options(choices, settings))
        return cls(opening.without_texts(), choices, make_chat, vocabulary, reader)

    def feed(self, token_ids: Sequence[int], meta: str = "") -> list[MessageDelta]:
        """One step of the LLM.

        Args:
            token_ids: new tokens of one choice.
            meta: the step's `meta`: "" or JSON. What it says wrongly is passed over: model side faults
                never become errors of the client.

        Returns:
            Deltas in the model's order. After the last step `ended` is set.
        """
        deltas: list[MessageDelta] = []
        self._take(token_ids, read_meta(meta) if meta else _NOTHING, deltas)
        return deltas

    def read(self, outputs: Outputs) -> list[MessageDelta]:
        """One response of the LLM's backend.

        Args:
            outputs: its tensors, as `llm_outputs.BACKENDS` has them for this backend.

        Returns:
            As `feed`.
        """
        deltas: list[MessageDelta] = []
        for token_ids, step in self._reader.read(outputs):
            self._take(token_ids, step, deltas)
        return deltas

    def close(self) -> list[MessageDelta]:
        """The LLM's responses are over. `ended` is set only if that means an end for this backend."""
        deltas: list[MessageDelta] = []
        for token_ids, step in self._reader.end():
            self._take(token_ids, step, deltas)
        return deltas

    def _take(self, token_ids: Sequence[int], step: Mapping[str, Any], deltas: list[MessageDelta]) -> None:
        index = step.get("choice_index", 0)
        choice = self._choice(index)
        if choice is not None and not choice.finished:
            self._feed_choice(choice, token_ids, step, deltas)
            reason = step.get("finish_reason")
            if reason is not None:
                self._finish_choice(choice, index, FINISH_REASONS.get(reason, "stop"), step, deltas)
        if step and not self.ended:
            self._end_if_last(step, deltas)

    @property
    def refused(self) -> bool:
        """The LLM ended with an error before its first token: the request can still be answered with one."""
        return bool(self.error) and not any(choice.heard for choice in self._begun())

    def _choice(self, index: int) -> _Choice | None:
        if not 0 <= index < len(self._choices):
            return None
        choice = self._choices[index]
        if choice is None and self._make_chat is not None:
            choice = self._choices[index] = _Choice(self._make_chat(index), Detokenizer(self._vocabulary))
        return choice

    def _begun(self) -> list[_Choice]:
        return [choice for choice in self._choices if choice is not None]

    def _feed_choice(
        self, choice: _Choice, token_ids: Sequence[int], step: Mapping[str, Any], deltas: list[MessageDelta]
    ) -> None:
        logprobs = step.get("logprobs", ())
        text = step.get("text")
        if text is not None and not choice.received and isinstance(choice.source, Detokenizer):
            choice.source = TextRealigner(self._vocabulary)
        choice.received += len(token_ids)
        new_tokens = 0 if choice.received else step.get("new_tokens", 0)
        self.tokens += len(token_ids) or new_tokens
        choice.heard = choice.heard or bool(token_ids or text)
        if isinstance(choice.source, TextRealigner):
            pieces = choice.source.feed(text or "", token_ids, logprobs)
            if new_tokens:
                # Nothing is expected of ids that never come: the text is one piece, or none.
                pieces = [Delta("".join(piece.text for piece in pieces), (UNKNOWN_ID,) * new_tokens)]
        else:
            pieces = choice.source.feed(token_ids, logprobs)
        feed = choice.chat.feed
        for piece in pieces:
            deltas += feed(piece)

    def _finish_choice(
        self, choice: _Choice, index: int, reason: FinishReason, step: Mapping[str, Any], deltas: list[MessageDelta]
    ) -> None:
        choice.finished = True
        for piece in choice.source.finish():
            deltas += choice.chat.feed(piece)
        counted = step.get("completion_tokens")
        prompt_tokens = self.opening.prompt_tokens
        deltas += choice.chat.finish(
            reason,
            prompt_tokens=step.get("prompt_tokens") if prompt_tokens is None else prompt_tokens,
            completion_tokens=counted,
            cached_tokens=step.get("cached_tokens"),
        )
        last = deltas.pop() if deltas else MessageDelta(finish_reason=reason, choice_index=index)
        notices = last.notices
        if counted is not None and choice.received not in (0, counted):  # text without ids: 0
            notices += (Notice("tokens_lost", abs(counted - choice.received), 0),)
        if reason == "error":
            notices += (Notice("stream_lost", 1, 0),)
            self.error = step.get("error", "") or self.error
        choice.usage = last.usage
        deltas.append(last._replace(notices=notices, usage=None))

    def _end_if_last(self, step: Mapping[str, Any], deltas: list[MessageDelta]) -> None:
        """Where no choice is left, or the LLM says so: finish the others and send usage with the last delta."""
        finished = sum(choice.finished for choice in self._begun())
        if finished < len(self._choices) and not step.get("last"):
            return
        for index, choice in enumerate(self._choices):
            if choice is not None and not choice.finished:
                self._finish_choice(choice, index, "error", _NOTHING, deltas)
        self.ended = True
        usage = _total([choice.usage for choice in self._begun()])
        if deltas:
            deltas[-1] = deltas[-1]._replace(usage=usage)
        else:
            deltas.append(MessageDelta(usage=usage))


def _shared_tools(text: str) -> Any:
    """Declared tools from their JSON; streams that declare the same ones share them. Nobody changes them."""
    return _parsed_tools(text) if len(text) <= MAX_SHARED_CHARS else json.loads(text)


@functools.lru_cache(maxsize=64)
def _parsed_tools(text: str) -> Any:
    return json.loads(text)


_NOTHING: Final[Mapping[str, Any]] = {}
_DEFAULTS: Final = ReaderOptions()


def _total(usages: Sequence[Usage | None]) -> Usage | None:
    """Usage of the request: the prompt counts once, the answers add up."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    return Usage(
        next((usage.prompt_tokens for usage in known if usage.prompt_tokens is not None), None),
        _sum([usage.completion_tokens for usage in known]),
        _sum([usage.reasoning_tokens for usage in known]),
        next((usage.cached_tokens for usage in known if usage.cached_tokens is not None), None),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
