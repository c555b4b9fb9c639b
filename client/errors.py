"""Errors of `tristream.client`: one class for each way a chat can fail, each saying what to do.

    TristreamError                (tristream.parsers)
    └── ChatError
        ├── ServerUnreachable     no connection to the server
        ├── ModelNotReady         the server answers, the model is absent or not loaded
        ├── RequestRefused        the request is at fault; carries Triton's text
        ├── ServerBusy            the server has no room for another stream now
        ├── ServerFailed          the server failed before the first delta
        ├── StreamBroken          the stream ended early; carries what was received
        └── DeadlineExceeded      a deadline of ours passed; carries what was received

A chat that the caller cancels raises nothing: its iterator ends. An LLM that fails in mid-stream
is no error here either: the answer ends with `finish_reason` "error" (PROTOCOL 6).
"""

# The names say what happened; "Error" would add nothing (N818).
# ruff: noqa: N818

from __future__ import annotations

from tristream.parsers import Message, MessageDelta, TristreamError, fold

__all__ = [
    "ChatError",
    "DeadlineExceeded",
    "ModelNotReady",
    "RequestRefused",
    "ServerBusy",
    "ServerFailed",
    "ServerUnreachable",
    "StreamBroken",
]


class ChatError(TristreamError):
    """Base of everything that ends a chat early.

    Args:
        detail: what the server or gRPC said, as it came.
        deltas: what had been received when it happened.
        transient: the same request may succeed later, and is safe to send again: nothing was received yet.
    """

    def __init__(
        self, message: str, *, detail: str = "", deltas: tuple[MessageDelta, ...] = (), transient: bool = False
    ) -> None:
        super().__init__(message)
        self.detail = detail
        self.deltas = deltas
        self.transient = transient

    @property
    def received(self) -> Message:
        """The deltas so far, folded; for `n` > 1 fold `deltas` by choice instead."""
        return fold(self.deltas)


class ServerUnreachable(ChatError):
    """No connection to the server, or it was lost before the first delta."""

    def __init__(self, url: str, detail: str, *, tries: int = 1, transient: bool = True) -> None:
        again = f" after {tries} tries" if tries > 1 else ""
        super().__init__(
            f"no Triton server reached at {url}{again}: {detail}. Is it running (`tristream serve`), "
            "and is this its gRPC port (8001 by default, not the HTTP port 8000)?",
            detail=detail,
            transient=transient,
        )
        self.url = url


class ModelNotReady(ChatError):
    """The server runs, but cannot serve the model."""

    def __init__(self, url: str, model: str, detail: str, *, transient: bool = False) -> None:
        super().__init__(
            f"the server at {url} has no model {model!r} ready: {detail}. Check its log and model repository "
            f"(`curl http://HOST:8000/v2/models/{model}/ready`), or name another model",
            detail=detail,
            transient=transient,
        )
        self.model = model


class RequestRefused(ChatError):
    """The server will not serve this request; correct it and send it again."""

    def __init__(self, model: str, detail: str) -> None:
        super().__init__(f"{model!r} refused the request: {detail}", detail=detail)
        self.model = model


class ServerBusy(ChatError):
    """The server refuses new streams for now; try later, or let the client retry more often."""

    def __init__(self, model: str, detail: str, *, tries: int) -> None:
        super().__init__(
            f"{model!r} takes no new stream now ({tries} tries): {detail}. Try again later, "
            "send to another server, or raise the limit it names",
            detail=detail,
            transient=True,
        )
        self.model = model


class ServerFailed(ChatError):
    """The server failed to start answering; the request may be sound."""

    def __init__(self, model: str, detail: str) -> None:
        super().__init__(f"{model!r} failed before it answered: {detail}. The server's log says more", detail=detail)
        self.model = model


class StreamBroken(ChatError):
    """The answer stopped before its end; `received` and `deltas` hold what came."""

    def __init__(self, model: str, detail: str, deltas: tuple[MessageDelta, ...]) -> None:
        super().__init__(
            f"the answer of {model!r} broke off after {len(deltas)} deltas: {detail}. What came is in "
            "`received`; sending the request again starts a new answer",
            detail=detail,
            deltas=deltas,
        )
        self.model = model


class DeadlineExceeded(ChatError):
    """A deadline of this client passed; the stream was cancelled.

    Args:
        which: the field of `Deadlines` that passed: first_delta, idle or total (`connect` means ServerUnreachable).
        seconds: its value.
    """

    def __init__(self, which: str, seconds: float, deltas: tuple[MessageDelta, ...]) -> None:
        what = {
            "first_delta": "no first delta",
            "idle": "no further delta",
            "total": "no complete answer",
        }[which]
        super().__init__(
            f"{what} within {seconds:g} s ({len(deltas)} deltas received); the stream was cancelled. "
            f"Allow more with Deadlines({which}=...)",
            deltas=deltas,
        )
        self.which = which
        self.seconds = seconds
