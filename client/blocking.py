"""`ChatClient`: a chat as an iterator of `MessageDelta`, for code without asyncio. See `stream.py`."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import grpc
from tritonclient.grpc import service_pb2_grpc

from tristream.parsers import Message, MessageDelta, UsageError

from .errors import ChatError
from .policy import NEVER, Deadlines, Expiry, Retries
from .session import Session, fold_choices
from .stream import DRAIN_S
from .wire import DEFAULT_URL, Endpoint, live_request, ready_request

__all__ = ["ChatClient", "DeltaStream"]


class DeltaStream(Iterator[MessageDelta]):
    """One chat of a `ChatClient`; iterate over it once.

    The request is sent when the first delta is asked for. Leaving `with`, an exception in the iterating
    thread (Ctrl-C) or dropping the last reference cancels the gRPC stream. `cancel` may be called from any
    thread.
    """

    def __init__(self, client: ChatClient, session: Session) -> None:
        self._client = client
        self._session = session
        self._call: Any = None
        self._alarm: _Alarm | None = None
        self._wake = threading.Event()
        self._over = False
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Did the caller end the chat before its end?"""
        return self._cancelled.is_set()

    @property
    def request_id(self) -> str:
        """Id of the current try, as the server's log shows it; "" before the first."""
        return self._session.request_id

    def cancel(self) -> None:
        """Cancel the gRPC stream now; the iteration ends without an error."""
        if not self._over:
            self._over = True
            self._cancelled.set()
            self._wake.set()
            self._hang_up()

    def __next__(self) -> MessageDelta:
        try:
            while not self._over:
                try:
                    delta = self._step()
                except ChatError as error:
                    self._pause_before_retry(error)
                else:
                    if delta is not None and not self._cancelled.is_set():
                        return delta
        except BaseException:
            self._over = True
            self._hang_up()
            raise
        raise StopIteration

    def _step(self) -> MessageDelta | None:
        """Send the request if that is due, and read one response."""
        session = self._session
        alarm = self._alarm
        if alarm is None:
            self._connect()
            if self._cancelled.is_set():
                return None
            self._call = self._client.open_call(session)
            alarm = self._alarm = _Alarm(self._call)
            if self._cancelled.is_set():  # by another thread, just before there was a call to cancel
                self._hang_up()
                return None
        session.waiting()
        message = self._read(alarm)
        if self._cancelled.is_set():
            return None
        if message is not None:
            delta = session.receive(message)
            if not session.final or delta is not None:
                return delta
            self._drain(alarm)
        self._over = True
        self._hang_up()
        session.end()
        return None

    def _read(self, alarm: _Alarm) -> Any:
        """The next `ModelStreamInferResponse`, or None at the end of the stream."""
        alarm.set(self._session.expiry())
        try:
            return next(alarm.call, None)
        except grpc.RpcError:
            if self._cancelled.is_set():
                return None
            if alarm.fired is not None:
                raise self._session.expired(alarm.fired) from None
            raise self._session.failed(alarm.call.code().name, alarm.call.details() or "") from None
        finally:
            alarm.set(NEVER)

    def _drain(self, alarm: _Alarm) -> None:
        """After FINAL the server closes the stream; nothing that happens then concerns the answer."""
        alarm.set(Expiry(time.monotonic() + DRAIN_S))
        try:
            while next(alarm.call, None) is not None:
                pass
        except grpc.RpcError:
            pass  # the answer was whole already

    def _connect(self) -> None:
        """Wait until the channel stands or is known to have failed; in the latter case the call says why."""
        self._session.connecting()
        expiry = self._session.expiry(connecting=True)
        if not self._client.wait_connected(self._wake, expiry.remaining):
            raise self._session.expired(expiry)
        if not self._cancelled.is_set():
            self._wake.clear()

    def _pause_before_retry(self, error: ChatError) -> None:
        """Wait for the next try; raises the error where there is none."""
        self._hang_up()
        if self._cancelled.is_set():
            return
        delay = self._session.retry_delay(error)
        if delay is None:
            raise error
        self._client.forget_connection()
        self._wake.wait(delay)

    def _hang_up(self) -> None:
        alarm, self._alarm = self._alarm, None
        call, self._call = self._call, None
        if alarm is not None:
            alarm.stop()
        if call is not None:
            call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        self._hang_up()


class ChatClient:
    """Chats over gRPC from ordinary threads; any number at once, one thread for each.

    Args:
        url: `host:port` of the server's gRPC port, or `grpcs://host:port` for TLS; or an `Endpoint`.
        timeout: seconds for a whole chat, or `Deadlines`; each call may override it.
        retries: when a request is sent again; None takes the defaults.

    Raises:
        UsageError: an address that gRPC cannot use.
    """

    def __init__(
        self,
        url: str | Endpoint = DEFAULT_URL,
        *,
        timeout: float | Deadlines | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.endpoint = url if isinstance(url, Endpoint) else Endpoint(url)
        self.deadlines = Deadlines.of(timeout, Deadlines())
        self.retries = retries or Retries()
        self._channel = self.endpoint.connect(grpc)
        # Also at exit: a channel that gRPC itself has to close then waits for threads that no longer run.
        self._close = weakref.finalize(self, self._channel.close)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._connected = False

    def stream(
        self, body: Mapping[str, Any], *, model: str = "chat", timeout: float | Deadlines | None = None
    ) -> DeltaStream:
        """The answer to an OpenAI chat.completions body, delta by delta; see `AsyncChatClient.stream`.

        Raises:
            RequestError: the body is no JSON value. What the server says comes from the iterator.
        """
        deadlines = Deadlines.of(timeout, self.deadlines)
        return DeltaStream(self, Session(self.endpoint.url, model, body, deadlines, self.retries))

    def complete(
        self, body: Mapping[str, Any], *, model: str = "chat", timeout: float | Deadlines | None = None
    ) -> Message:
        """The whole answer: the fold of the stream. Where `n` is above 1, the first choice.

        Raises:
            ChatError: one for each way to fail; see `errors.py`.
        """
        return self.complete_choices(body, model=model, timeout=timeout)[0]

    def complete_choices(
        self, body: Mapping[str, Any], *, model: str = "chat", timeout: float | Deadlines | None = None
    ) -> tuple[Message, ...]:
        """All `n` whole answers, by choice index; usage stands in the one that ended last."""
        with self.stream(body, model=model, timeout=timeout) as deltas:
            return fold_choices(list(deltas))

    def model_ready(self, model: str = "chat") -> bool:
        """Can the server take a chat for this model now?

        Raises:
            ServerUnreachable: there is no server within the deadline `connect`.
        """
        try:
            answer = self._stub.ModelReady(
                ready_request(model), timeout=self.deadlines.connect, metadata=self.endpoint.metadata
            )
        except grpc.RpcError as error:
            return Session(self.endpoint.url, model, {}, self.deadlines, self.retries).not_ready(
                error.code().name, error.details() or ""
            )
        return bool(answer.ready)

    def close(self) -> None:
        """Close the connection for good; running streams break off."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open_call(self, session: Session) -> Any:
        """Send the next try of a chat; the gRPC call that brings its responses."""
        return self._stub.ModelStreamInfer(
            iter((session.next_request(),)), timeout=session.remaining(), metadata=self.endpoint.metadata
        )

    def wait_connected(self, wake: threading.Event, timeout: float | None) -> bool:
        """Wait until the channel stands or is known to have failed; False when neither came in time.

        Asks the server whether it lives: gRPC's way to watch a channel leaves a polling thread behind, which
        fails where the channel is closed meanwhile. A channel that stood is not asked again until
        `forget_connection`.

        Args:
            wake: ends the wait; `DeltaStream.cancel` sets it.
            timeout: seconds; None waits without bound.

        Raises:
            UsageError: called after `close`.
        """
        if not self._close.alive:
            raise UsageError("this ChatClient was closed; make a new one")
        if self._connected:
            return True
        asking = self._stub.ServerLive.future(live_request(), timeout=timeout, metadata=self.endpoint.metadata)
        asking.add_done_callback(lambda _: wake.set())
        try:
            wake.wait()
        finally:
            asking.cancel()
        code = asking.code()
        self._connected = code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return code is not grpc.StatusCode.DEADLINE_EXCEEDED

    def forget_connection(self) -> None:
        """A call found no server: the next one asks again."""
        self._connected = False


class _Alarm:
    """Cancels a call when a time passes: gRPC's blocking iterator cannot be given one for a single read.

    One thread for each stream, asleep until the time that was set when it last looked.
    """

    def __init__(self, call: Any) -> None:
        self.call = call
        self.fired: Expiry | None = None
        self._expiry = self._sleeps_until = NEVER
        self._stopped = False
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="tristream-deadline", daemon=True).start()

    def set(self, expiry: Expiry) -> None:
        """Fire at this time, and not at the one set before."""
        with self._changed:
            self._expiry = expiry
            if expiry.at < self._sleeps_until.at:
                self._changed.notify()

    def stop(self) -> None:
        """The call is over: end the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped:
                remaining = self._expiry.remaining
                if remaining is not None and remaining <= 0:
                    self.fired = self._expiry
                    break
                self._sleeps_until = self._expiry
                self._changed.wait(remaining)
        if self.fired is not None:
            self.call.cancel()
