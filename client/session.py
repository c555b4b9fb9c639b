"""One chat without the waiting: what both clients, asyncio and threads, decide in the same way.

A `Session` hands out the request of each try, reads responses, and turns every failure into either
a delay before the next try or the error to raise. It sends nothing and never sleeps.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tristream.parsers import Message, MessageDelta, fold

from .decode import TensorError, decode_delta
from .errors import (
    ChatError,
    DeadlineExceeded,
    ModelNotReady,
    RequestRefused,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    StreamBroken,
)
from .policy import NEVER, Deadlines, Expiry, Retries
from .wire import encode_body, infer_request

__all__ = ["Session", "fold_choices"]


# In a gRPC stream Triton sends an error's text without its code, so texts decide. The first three are
# Triton's own (core 2.51: `GetModel`, `ModelRepositoryManager`), then the words of backend/errors.py
# (`BUSY_PREFIX`), then what stands for a fault of the server rather than of the request.
_ABSENT: Final = re.compile(r"Request for unknown model: .* is not found")
_LOADING: Final = re.compile(r"Request for unknown model: .*(no available versions|is not ready)|is not ready")
_BUSY: Final = re.compile(r"server busy: |Exceeds maximum queue size|exceeds max_queue_size", re.IGNORECASE)
_FAILED: Final = re.compile(
    r"internal error|the LLM failed before|Failed to process the request\(s\)|unhealthy|Stub process", re.IGNORECASE
)

# What Triton puts before a text on its way through an ensemble.
_PREFIXES: Final = re.compile(r"^(?:\[request id: [^\]]*\] |in ensemble '[^']*', )+")

# UNIMPLEMENTED: something else than a Triton server answers there.
_CONNECTION_CODES: Final = frozenset({"UNAVAILABLE", "UNIMPLEMENTED"})
_REFUSAL_CODES: Final = frozenset({
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
})  # fmt: skip


class Session:
    """The state of one chat, over all its tries.

    Args:
        url: the server's address, for messages.
        model: name of the chat model.
        body: an OpenAI chat.completions body.
        deadlines: see `Deadlines`.
        retries: see `Retries`.

    Raises:
        RequestError: the body is no JSON value.
    """

    def __init__(self, url: str, model: str, body: Mapping[str, Any], deadlines: Deadlines, retries: Retries) -> None:
        self.url = url
        self.model = model
        self.deadlines = deadlines
        self.retries = retries
        self.request_id = ""
        self.tries = 0
        self.deltas: list[MessageDelta] = []
        self.final = False
        self._payload = encode_body(body)
        self._unfinished = _choices(body)
        self._started = 0.0
        self._since = 0.0

    def connecting(self) -> None:
        """A try begins. The clock of `connect` starts anew, that of `total` at the first try."""
        self._since = time.monotonic()
        self._started = self._started or self._since

    def next_request(self) -> Any:
        """The `ModelInferRequest` of this try, under an id no other try has; starts the clock of `first_delta`."""
        self.request_id = secrets.token_hex(16)
        self.tries += 1
        self._since = time.monotonic()
        return infer_request(self.model, self._payload, self.request_id)

    def waiting(self) -> None:
        """The caller asks for a delta. `idle` counts from here, so that a slow caller is no silent server."""
        if self.deltas:
            self._since = time.monotonic()

    def receive(self, message: Any) -> MessageDelta | None:
        """Read one `ModelStreamInferResponse`; None where it says nothing to the user.

        Raises:
            ChatError: the server reports an error, or answers with tensors of no chat model.
        """
        if message.error_message:
            raise self.refused(message.error_message)
        response = message.infer_response
        parameters = response.parameters
        if "triton_final_response" in parameters and parameters["triton_final_response"].bool_param:
            self.final = True
        try:
            delta = decode_delta(response)
        except TensorError as error:
            detail = f"{error} (is {self.model!r} a chat model of tristream?)"
            raise StreamBroken(self.model, detail, tuple(self.deltas)) from None
        if delta is not None:
            self.deltas.append(delta)
            if delta.finish_reason is not None:
                self._unfinished -= 1
        return delta

    def end(self) -> None:
        """The stream is over.

        Raises:
            StreamBroken: an answer has no end.
        """
        if self._unfinished > 0:
            raise StreamBroken(self.model, "the server ended the stream without a finish_reason", tuple(self.deltas))

    def refused(self, text: str) -> ChatError:
        """The error for an error text that came in the stream."""
        text = _PREFIXES.sub("", text)
        if self.deltas:
            return StreamBroken(self.model, text, tuple(self.deltas))
        if _ABSENT.search(text) or _LOADING.search(text):
            return ModelNotReady(self.url, self.model, text, transient=not _ABSENT.search(text))
        if _BUSY.search(text):
            return ServerBusy(self.model, text, tries=self.tries)
        if _FAILED.search(text):
            return ServerFailed(self.model, text)
        return RequestRefused(self.model, text)

    def failed(self, code: str, details: str) -> ChatError:
        """The error for a gRPC call that failed.

        Args:
            code: name of the gRPC status code, e.g. UNAVAILABLE.
            details: its text.
        """
        if code == "DEADLINE_EXCEEDED" and self.deadlines.total is not None:
            return DeadlineExceeded("total", self.deadlines.total, tuple(self.deltas))
        if self.deltas:
            return StreamBroken(self.model, f"{details} (gRPC {code})", tuple(self.deltas))
        if code in _CONNECTION_CODES:
            return ServerUnreachable(self.url, details, tries=self.tries, transient=code == "UNAVAILABLE")
        if code == "NOT_FOUND":
            return ModelNotReady(self.url, self.model, details)
        if code in _REFUSAL_CODES:
            return RequestRefused(self.model, f"{details} (gRPC {code})")
        return ServerFailed(self.model, f"{details} (gRPC {code})")

    def expired(self, expiry: Expiry) -> ChatError:
        """The error for a deadline that passed."""
        if expiry.which == "connect":
            detail = f"no connection within {expiry.seconds:g} s"
            return ServerUnreachable(self.url, detail, tries=self.tries + 1, transient=False)
        return DeadlineExceeded(expiry.which, expiry.seconds, tuple(self.deltas))

    def not_ready(self, code: str, details: str) -> bool:
        """What a failed readiness call means: False, or the error to raise where there is no server.

        Raises:
            ChatError: the server was not reached, or refused the call.
        """
        if code == "DEADLINE_EXCEEDED":
            raise ServerUnreachable(self.url, f"no answer within {self.deadlines.connect:g} s")
        error = self.failed(code, details)
        if isinstance(error, ModelNotReady) or _ABSENT.search(details) or _LOADING.search(details):
            return False
        raise error

    def retry_delay(self, error: ChatError) -> float | None:
        """Seconds until the next try, or None where the error is to be raised."""
        if self.deltas or not error.transient or self.tries >= self.retries.tries:
            return None
        delay = self.retries.before(self.tries + 1)
        remaining = self.remaining()
        return None if remaining is not None and delay >= remaining else delay

    def remaining(self) -> float | None:
        """Seconds left of `total`, for gRPC, which tells the server; None without that bound."""
        if self.deadlines.total is None:
            return None
        return max(0.001, self._started + self.deadlines.total - time.monotonic())

    def expiry(self, *, connecting: bool = False) -> Expiry:
        """The deadline that passes next."""
        limits = self.deadlines
        step = "connect" if connecting else "idle" if self.deltas else "first_delta"
        candidates = (
            Expiry(since + seconds, which, seconds)
            for which, seconds, since in (
                (step, getattr(limits, step), self._since),
                ("total", limits.total, self._started),
            )
            if seconds is not None
        )
        return min(candidates, key=lambda expiry: expiry.at, default=NEVER)


def _choices(body: Mapping[str, Any]) -> int:
    """How many answers the body asks for; a wrong `n` is the server's to refuse."""
    n = body.get("n")
    return n if isinstance(n, int) and n > 1 else 1


def fold_choices(deltas: Sequence[MessageDelta]) -> tuple[Message, ...]:
    """The messages of all choices, by index; one empty message where nothing came."""
    count = 1 + max((delta.choice_index for delta in deltas), default=0)
    return tuple(fold(delta for delta in deltas if delta.choice_index == index) for index in range(count))
