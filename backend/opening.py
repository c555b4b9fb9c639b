"""`Opening`: what a stream is told about its request before the first token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tristream.parsers.errors import RequestError

from .llm_outputs import ReaderOptions
from .pb import PbRequest
from .settings import StreamSettings

__all__ = ["MAX_KEY_CHARS", "Opening", "client_key", "stream_key"]

MAX_KEY_CHARS: Final = 256
"""Longest stream id: ours has 32 characters, a client's own correlation or request id rarely more than 64."""

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Opening:
    """What `preprocess` tells about a request before its first token.

    Args:
        stream_id: the stream's key.
        request: the members of the OpenAI body that concern the parser.
        format: the model's format; "" takes the server's default.
        prompt_tail: end of the rendered prompt, or None where it is not known.
        prompt_tokens: length of the prompt, or None.
        sent_at: `time.monotonic()` of the same host, in seconds, when it was sent; or None.
        size: bytes of its JSON.
        end_ids: tokens that end an answer, for an LLM that does not say so.
        max_tokens: so many tokens end it; or None.
    """

    stream_id: str
    request: Mapping[str, Any] = field(default_factory=dict)
    format: str = ""
    prompt_tail: str | None = None
    prompt_tokens: int | None = None
    sent_at: float | None = None
    size: int = 0
    end_ids: tuple[int, ...] = ()
    max_tokens: int | None = None

    @classmethod
    def from_json(cls, text: str, settings: StreamSettings, *, stream_id: str = "") -> Opening:
        """Read the JSON of `open`, or of the request parameter `tristream`.

        Args:
            text: a JSON object.
            settings: the bounds.
            stream_id: the key, where it is known from elsewhere; it wins.

        Raises:
            RequestError: not an object, a member of a wrong type, or over a bound.
        """
        size = len(text.encode("utf-8", "replace"))
        if size > settings.max_open_bytes:
            raise RequestError("open", f"{size} bytes", f"at most {settings.max_open_bytes} (max_open_bytes)")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RequestError("open", f"no JSON that can be read ({error})", "a JSON object") from None
        if not isinstance(value, dict):
            raise RequestError("open", f"a JSON {type(value).__name__}", "a JSON object")
        return cls(
            stream_id=stream_key(stream_id or _typed(value, "stream_id", str, "")),
            request=_typed(value, "request", dict, {}),
            format=_typed(value, "format", str, "") or settings.format,
            prompt_tail=_typed(value, "prompt_tail", str, None),
            prompt_tokens=_typed(value, "prompt_tokens", int, None),
            sent_at=_typed(value, "sent_at", float, None),
            size=size,
            end_ids=tuple(each for each in _typed(value, "end_ids", list, []) if type(each) is int),
            max_tokens=_typed(value, "max_tokens", int, None),
        )

    def without_texts(self) -> Opening:
        """What a running stream still needs of it: a few numbers."""
        return replace(self, request=_NOTHING, prompt_tail=None)

    def reader_options(self, choices: int, settings: StreamSettings) -> ReaderOptions:
        """What the reader of the LLM's responses must know.

        Args:
            choices: how many answers.
            settings: whose `end_tokens` win.
        """
        top = self.request.get("top_logprobs")
        return ReaderOptions(
            choices, settings.end_ids() or self.end_ids, self.max_tokens, top if isinstance(top, int) else 0
        )

    def choices(self, settings: StreamSettings) -> int:
        """How many answers were asked for.

        Raises:
            RequestError: `n` is no whole number from 1 to the bound.
        """
        number = self.request.get("n")
        number = 1 if number is None else number
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= settings.max_choices:
            raise RequestError("n", repr(number)[:80], f"1 to {settings.max_choices} (max_choices)")
        return number


def client_key(request: PbRequest) -> str:
    """The key of a stream through an unchanged LLM: its client's correlation id, or else its request id.

    Raises:
        RequestError: it has neither; two streams without could not be told apart.
    """
    correlation = request.correlation_id()
    key = str(correlation) if correlation else request.request_id()
    if not key:
        raise RequestError("id", "neither a request id nor a correlation id", "one that no other live request has")
    return stream_key(key)


def stream_key(text: str) -> str:
    """Check a stream id.

    Raises:
        RequestError: it is empty or too long.
    """
    if not text or len(text) > MAX_KEY_CHARS:
        raise RequestError("stream_id", f"{len(text)} characters", f"1 to {MAX_KEY_CHARS}")
    return text


def _typed(value: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    member = value.get(name)
    if member is None:
        return default
    if kind is float and type(member) is int:
        return float(member)
    if type(member) is not kind:
        raise RequestError(f"open.{name}", f"a {type(member).__name__}", f"a {kind.__name__}")
    return member
