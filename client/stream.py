"""`AsyncChatClient`: a chat as an async iterator of `MessageDelta`. Its twin for threads is `blocking.py`.

Each chat is a gRPC stream of its own over the client's one connection, so that cancelling one touches no
other. Both clients share every decision (`session.py`) and differ only in how they wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2_grpc

from tristream.parsers import Message, MessageDelta, UsageError

from .errors import ChatError
from .policy import Deadlines, Expiry, Retries
from .session import Session, fold_choices
from .wire import DEFAULT_URL, Endpoint, ready_request

__all__ = ["DRAIN_S", "AsyncChatClient", "AsyncDeltaStream"]

DRAIN_S: Final = 1.0
"""How long to wait, after the FINAL response, for the server to close the stream itself. Cancelling would
end it as well, but the server would take a finished request for a cancelled one."""

_UNDECIDED: Final = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)


class AsyncDeltaStream(AsyncIterator[MessageDelta]):
    """One chat of an `AsyncChatClient`; iterate over it once.

    The request is sent when the first delta is asked for. Leaving `async with`, cancelling the iterating
    task or dropping the last reference cancels the gRPC stream, and with it the generation.
    """

    def __init__(self, client: AsyncChatClient, session: Session) -> None:
        self._client = client
        self._session = session
        self._call: Any = None
        self._messages: AsyncIterator[Any] | None = None
        self._pause: asyncio.Future[Any] | None = None
        self._over = False
        self.cancelled = False

    @property
    def request_id(self) -> str:
        """Id of the current try, as the server's log shows it; "" before the first."""
        return self._session.request_id

    def cancel(self) -> None:
        """Cancel the gRPC stream now; the iteration ends without an error."""
        if not self._over:
            self.cancelled = self._over = True
            self._hang_up()

    async def __anext__(self) -> MessageDelta:
        try:
            while not self._over:
                try:
                    delta = await self._step()
                except ChatError as error:
                    await self._pause_before_retry(error)
                else:
                    if delta is not None and not self.cancelled:
                        return delta
        except BaseException:
            self._over = True
            self._hang_up()
            raise
        raise StopAsyncIteration

    async def _step(self) -> MessageDelta | None:
        """Send the request if that is due, and read one response."""
        session = self._session
        if session.final:
            await self._drain()
            self._end()
            return None
        if self._messages is None:
            await self._connect()
            if self.cancelled:
                return None
            self._call = self._client.open_call(session)
            self._messages = aiter(self._call)
        session.waiting()
        message = await self._read(self._messages)
        if self.cancelled:
            return None
        if message is None:
            self._end()
            return None
        return session.receive(message)

    async def _read(self, messages: AsyncIterator[Any]) -> Any:
        """The next `ModelStreamInferResponse`, or None at the end of the stream."""
        expiry = self._session.expiry()
        try:
            async with asyncio.timeout_at(_loop_time(expiry)):
                return await anext(messages, None)
        except TimeoutError:
            raise self._session.expired(expiry) from None
        except grpc.RpcError as error:
            raise self._session.failed(error.code().name, error.details() or "") from None
        except asyncio.CancelledError:
            # gRPC raises it in the reader also when only the call was cancelled.
            if _task_is_cancelled():
                raise
            if self.cancelled:
                return None
            raise self._session.failed("CANCELLED", "this client was closed") from None

    async def _connect(self) -> None:
        """Wait until the channel stands or is known to have failed; in the latter case the call says why."""
        self._session.connecting()
        channel = self._client.channel()
        expiry = self._session.expiry(connecting=True)
        try:
            async with asyncio.timeout_at(_loop_time(expiry)):
                while not self.cancelled and (state := channel.get_state(try_to_connect=True)) in _UNDECIDED:
                    await self._wait(channel.wait_for_state_change(state))
        except TimeoutError:
            raise self._session.expired(expiry) from None

    async def _pause_before_retry(self, error: ChatError) -> None:
        """Wait for the next try; raises the error where there is none."""
        self._hang_up()
        if self.cancelled:
            return
        delay = self._session.retry_delay(error)
        if delay is None:
            raise error
        await self._wait(asyncio.sleep(delay))

    async def _wait(self, awaitable: Awaitable[Any]) -> None:
        """Await something that is no gRPC call, so that `cancel` ends it too."""
        self._pause = asyncio.ensure_future(awaitable)
        try:
            await self._pause
        except asyncio.CancelledError:
            if not self.cancelled or _task_is_cancelled():
                raise
        finally:
            self._pause = None

    async def _drain(self) -> None:
        """After FINAL the server closes the stream; nothing that happens then concerns the answer."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while self._messages is not None and await anext(self._messages, None) is not None:
                    pass
        except (TimeoutError, grpc.RpcError):
            self._hang_up()

    def _end(self) -> None:
        self._over = True
        self._session.end()

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.cancel()
        self._call = self._messages = None
        if self._pause is not None:
            self._pause.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()


class AsyncChatClient:
    """Chats over gRPC on one asyncio loop; any number at once.

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
        self._channel: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def stream(
        self, body: Mapping[str, Any], *, model: str = "chat", timeout: float | Deadlines | None = None
    ) -> AsyncDeltaStream:
        """The answer to an OpenAI chat.completions body, delta by delta.

        Args:
            body: the request; with our extras (`format`, `include_reasoning`, `unknown_tool`, ...).
            model: `chat`, `chat_direct`, or another model with the same tensors.
            timeout: seconds for the whole chat, or `Deadlines`; None takes the client's.

        Raises:
            RequestError: the body is no JSON value. What the server says comes from the iterator.
        """
        deadlines = Deadlines.of(timeout, self.deadlines)
        return AsyncDeltaStream(self, Session(self.endpoint.url, model, body, deadlines, self.retries))

    async def complete(
        self,
        body: Mapping[str, Any],
        *,
        model: str = "chat",
        timeout: float | Deadlines | None = None,  # noqa: ASYNC109 (also bounds retries)
    ) -> Message:
        """The whole answer: the fold of the stream. Where `n` is above 1, the first choice.

        Raises:
            ChatError: one for each way to fail; see `errors.py`.
        """
        return (await self.complete_choices(body, model=model, timeout=timeout))[0]

    async def complete_choices(
        self,
        body: Mapping[str, Any],
        *,
        model: str = "chat",
        timeout: float | Deadlines | None = None,  # noqa: ASYNC109 (also bounds retries)
    ) -> tuple[Message, ...]:
        """All `n` whole answers, by choice index; usage stands in the one that ended last."""
        async with self.stream(body, model=model, timeout=timeout) as deltas:
            return fold_choices([delta async for delta in deltas])

    async def model_ready(self, model: str = "chat") -> bool:
        """Can the server take a chat for this model now?

        Raises:
            ServerUnreachable: there is no server within the deadline `connect`.
        """
        call = self._stub().ModelReady(
            ready_request(model), timeout=self.deadlines.connect, metadata=self.endpoint.metadata
        )
        try:
            return bool((await call).ready)
        except grpc.RpcError as error:
            return Session(self.endpoint.url, model, {}, self.deadlines, self.retries).not_ready(
                error.code().name, error.details() or ""
            )

    async def close(self) -> None:
        """Close the connection for good; running streams break off."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def channel(self) -> Any:
        """The `grpc.aio.Channel`, made on first use: gRPC ties it to the loop that runs then.

        Raises:
            UsageError: called on another loop than before, or after `close`.
        """
        if self._closed:
            raise UsageError("this AsyncChatClient was closed; make a new one")
        loop = asyncio.get_running_loop()
        if self._channel is None:
            self._loop = loop
            self._channel = self.endpoint.connect(grpc.aio)
        elif self._loop is not loop:
            raise UsageError("this AsyncChatClient belongs to another event loop; make one client for each loop")
        return self._channel

    def open_call(self, session: Session) -> Any:
        """Send the next try of a chat; the gRPC call that brings its responses."""
        return self._stub().ModelStreamInfer(
            iter((session.next_request(),)), timeout=session.remaining(), metadata=self.endpoint.metadata
        )

    def _stub(self) -> Any:
        return service_pb2_grpc.GRPCInferenceServiceStub(self.channel())


def _loop_time(expiry: Expiry) -> float | None:
    """The time of an expiry by the running loop's clock, which may be another than `time.monotonic`."""
    remaining = expiry.remaining
    return None if remaining is None else asyncio.get_running_loop().time() + remaining


def _task_is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
