"""The way back of one request: FINAL exactly once, and Triton's error codes.

A request without FINAL leaks in the server and hangs its client; a second FINAL is an error. So a
`Responder` is used as a context manager around whatever serves the request: leaving it sends what is owed.
"""

from __future__ import annotations

from traceback import format_exception
from types import TracebackType
from typing import Any, Final

from tristream.parsers.errors import FormatDefinitionError, RequestError, UsageError

from .errors import SettingsError, UnavailableError
from .pb import PbModule, PbSender

__all__ = ["ERROR_CODES", "Responder", "log_unexpected", "triton_error"]

ERROR_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (RequestError, "INVALID_ARG"),
    (UnavailableError, "UNAVAILABLE"),
    (SettingsError, "INTERNAL"),
    (FormatDefinitionError, "INTERNAL"),
    (UsageError, "INTERNAL"),
)
"""Our exceptions -> names of `TritonError` codes; the first that fits. Any other exception is INTERNAL
and says nothing of its text: it may quote a prompt, a path or model output."""

INTERNAL_MESSAGE: Final = "internal error; the server's log tells more"


def triton_error(pb: PbModule, error: BaseException) -> Any:
    """The `TritonError` for an exception; never with a traceback.

    Args:
        pb: `triton_python_backend_utils`.
        error: what was raised.
    """
    for kind, code in ERROR_CODES:
        if isinstance(error, kind):
            return pb.TritonError(str(error), getattr(pb.TritonError, code))
    return pb.TritonError(INTERNAL_MESSAGE, pb.TritonError.INTERNAL)


def log_unexpected(pb: PbModule, error: BaseException) -> None:
    """Write an exception that no table row knows, with its traceback, to the server's log."""
    if not isinstance(error, tuple(kind for kind, _ in ERROR_CODES)):
        pb.Logger.log_error("tristream: " + "".join(format_exception(error)))


class Responder:
    """Sends the responses of one request of a decoupled model.

    Not for two threads at once. After FINAL everything but `close` raises, so a second answer cannot happen
    unseen.

    Args:
        pb: `triton_python_backend_utils`.
        sender: the request's response sender.
    """

    __slots__ = ("_final", "_pb", "_sender", "closed")

    def __init__(self, pb: PbModule, sender: PbSender) -> None:
        self._pb = pb
        self._sender = sender
        self._final = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        self.closed = False

    def send(self, tensors: list[Any], *, final: bool = False) -> None:
        """One response.

        Args:
            tensors: output tensors; none and `final` sends the flag alone.
            final: this is the last response; the flag goes with it and saves an IPC call.

        Raises:
            UsageError: FINAL was sent already.
        """
        if self.closed:
            raise UsageError("response after FINAL")
        if not tensors:
            if final:
                self.close()
            return
        if final:
            self._sender.send(self._pb.InferenceResponse(output_tensors=tensors), flags=self._final)
            self.closed = True  # only now: a send that fails (no shared memory) still owes FINAL
        else:
            self._sender.send(self._pb.InferenceResponse(output_tensors=tensors))

    def fail(self, error: BaseException) -> None:
        """Answer with an error and end. Only for requests: a parsing problem is never an error (TRITON.md, 10).

        Raises:
            UsageError: FINAL was sent already.
        """
        if self.closed:
            raise UsageError("error after FINAL")
        self.closed = True
        response = self._pb.InferenceResponse(output_tensors=[], error=triton_error(self._pb, error))
        self._sender.send(response, flags=self._final)

    def close(self) -> None:
        """Send FINAL if it is still owed."""
        if not self.closed:
            self.closed = True
            self._sender.send(flags=self._final)

    def is_cancelled(self) -> bool:
        """Has the client gone? An IPC round trip: ask seldom.

        After FINAL nobody is asked: Triton has freed the request, and 2.51 dies of it
        (SIGSEGV in TRITONBACKEND_ResponseFactoryIsCancelled; run).
        """
        return not self.closed and bool(self._sender.is_cancelled())

    def __enter__(self) -> Responder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Send what is owed: FINAL, or the exception as an error answer. Only what is no `Exception` goes on."""
        if error is None:
            self.close()
            return False
        log_unexpected(self._pb, error)
        if not self.closed:
            self.fail(error)
        return isinstance(error, Exception)
