"""What goes into the engine (`Delta`) and what comes out (`Event`): two fixed alphabets.

Events are returned, never read off attributes. They carry where their text came from
(`start`, `end`: characters of the model's text since its beginning), so that `ChatStream` can
hand each token's id and log probability to the delta that sends the token's first character.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "UNKNOWN_ID",
    "ContentDelta",
    "Delta",
    "Event",
    "MarkerRemoved",
    "Notice",
    "NoticeCode",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningStart",
    "ToolCallArgumentsDelta",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolCallStatus",
]

ToolCallStatus: TypeAlias = Literal["complete", "incomplete", "invalid"]

NoticeCode: TypeAlias = Literal[
    "unknown_tool",
    "call_dropped",
    "recovered_value",
    "recovered_wrapper",
    "recovered_end",
    "repeated_parameter",
    "incomplete_call",
    "invalid_arguments",
    "stray_marker",
    "value_type_mismatch",
    "held_text_released",
    "stream_lost",
    "tokens_lost",
]


UNKNOWN_ID: Final = -1
"""Stands for a token that the backend counts without telling its id: it counts, and is not sent as an id."""


class Delta:
    """One piece of model output.

    Either a run of ordinary text with the token ids it came from, or exactly one *added* token of
    the tokenizer (`special=True`, `text` is its spelling), whether or not the tokenizer flags it
    "special": Qwen3's `<think>` is such a token and is not flagged.

    Args:
        text: decoded text; never part of a character.
        token_ids: ids the text came from; empty where the backend sends text only, `UNKNOWN_ID` for each token
            where it counts them.
        special: this is one added token, not a run of ordinary text.
        logprobs: one OpenAI `logprobs.content` entry for each of `token_ids`, or empty.
    """

    __slots__ = ("logprobs", "special", "text", "token_ids")

    def __init__(
        self,
        text: str,
        token_ids: tuple[int, ...] = (),
        special: bool = False,
        logprobs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.text = text
        self.token_ids = token_ids
        self.special = special
        self.logprobs = logprobs

    def __repr__(self) -> str:
        return f"Delta({self.text!r}, {self.token_ids!r}, special={self.special})"


class ContentDelta(NamedTuple):
    """Text for the user."""

    text: str
    start: int
    end: int


class ReasoningStart(NamedTuple):
    """A reasoning block opens; its marker is not text."""


class ReasoningDelta(NamedTuple):
    """Text of the model's reasoning."""

    text: str
    start: int
    end: int


class ReasoningEnd(NamedTuple):
    """A reasoning block has ended, by its marker or by a tool call."""


class MarkerRemoved(NamedTuple):
    """A spelling that belongs to no field stood here (end of turn, a repeated or stray marker)."""


class ToolCallStart(NamedTuple):
    """A call's name is certain.

    `id` is the model's own where it wrote one before the arguments, else ""; `start` is where the
    call's header began.
    """

    id: str
    name: str
    start: int


class ToolCallArgumentsDelta(NamedTuple):
    """More of the JSON text of the running call's arguments; only ever appended."""

    text: str
    start: int
    end: int


class ToolCallEnd(NamedTuple):
    """The running call has ended."""

    status: ToolCallStatus


class Notice(NamedTuple):
    """Something odd in model output: a code, how often, and where first. Never model text.

    Args:
        code: one of the closed set of PROTOCOL 7; also the label of the metric.
        count: how often.
        offset: characters of the model's text before the (first) place.
    """

    code: NoticeCode
    count: int  # type: ignore[assignment]  # the field's word hides a method of tuple nobody needs here
    offset: int


Event: TypeAlias = (
    ContentDelta
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | MarkerRemoved
    | ToolCallStart
    | ToolCallArgumentsDelta
    | ToolCallEnd
    | Notice
)
