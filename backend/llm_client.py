"""The LLM behind a Triton's gRPC port, called with `tritonclient`'s stub on an asyncio loop.

One stream of gRPC per request: its end is the request's end, and cancelling it reaches an LLM of any backend, also
one on another server (TRITON.md, "Calling the LLM from a Python model"). The tensors are its
backend's: `llm_inputs.py`, `llm_outputs.py`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, np_to_triton_dtype, triton_to_np_dtype

from tristream.parsers.errors import TristreamError

from .llm_inputs import LLM_INPUTS, InputOptions, Prompt
from .llm_outputs import LlmBackend
from .pb import Array
from .refusals import LlmUnavailableError

__all__ = ["LlmCall", "LlmClient", "LlmLostError"]

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # notices a server that is gone without a word (a node that lost power); Triton allows one ping in 5 minutes of
    # silence, and any number while data flows
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # connects again soon after the LLM's server comes back
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
    # a proxy of the environment is for the way out, not for the LLM next door
    ("grpc.enable_http_proxy", 0),
)


class LlmLostError(TristreamError):
    """The LLM's stream broke; the text is for the log."""


class LlmCall:
    """One running request. Use on the client's loop only.

    Args:
        stub: the server.
        request: what to send.
    """

    __slots__ = ("_call", "_ended", "_error", "_news", "_reader", "_responses")

    def __init__(self, stub: Any, request: Any) -> None:
        self._responses: list[dict[str, Array]] = []
        self._news = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None
        self._call = stub.ModelStreamInfer(_once(request))
        self._reader = asyncio.create_task(self._read())

    @property
    def ended(self) -> bool:
        """No further response will come, and all were taken."""
        return self._ended and not self._responses

    async def take(self, seconds: float) -> list[dict[str, Array]]:
        """All responses that wait; if there are none, wait for one.

        Args:
            seconds: how long to wait at most.

        Returns:
            The tensors of each, in order; none when the time is over, or when the stream has `ended`.

        Raises:
            LlmLostError: the stream broke; after all responses that came before were taken.
        """
        if not self._responses and not self._ended:
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return []
        self._news.clear()
        responses, self._responses = self._responses, []
        if not responses and self._error is not None:
            raise self._error
        return responses

    async def close(self) -> None:
        """Cancel what still runs; the LLM is told. Never raises."""
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for response in self._call:
                if response.error_message:
                    raise LlmLostError(response.error_message)
                self._responses.append(_read_tensors(response.infer_response))
                self._news.set()
        except asyncio.CancelledError:
            self._error = LlmLostError("cancelled")
        except grpc.aio.AioRpcError as error:
            self._error = LlmLostError(f"{error.code().name}: {error.details()}")
        except Exception as error:  # noqa: BLE001 - whatever the other side sent, it is this stream's fate alone
            self._error = error if isinstance(error, LlmLostError) else LlmLostError(f"{type(error).__name__}: {error}")
        finally:
            self._ended = True
            self._news.set()


class LlmClient:
    """A channel to the LLM's server. Make and use it on one running loop.

    Args:
        url: `host:port` of its gRPC.
        model: the LLM's name there.
        connect_timeout_s: seconds to wait for a connection.
        backend: whose input tensors it has.
        options: what is needed to write them.
        takes_stop: whether it ends a stream on an input `stop`.
        batched: whether it batches; None: as its backend usually does.
    """

    def __init__(
        self,
        url: str,
        model: str,
        connect_timeout_s: float,
        *,
        backend: LlmBackend,
        options: InputOptions,
        takes_stop: bool,
        batched: bool | None = None,
    ) -> None:
        self.url = url
        self._model = model
        self._connect_timeout_s = connect_timeout_s
        self._inputs = LLM_INPUTS[backend]
        self._options = options
        self._takes_stop = takes_stop
        self._batched = batched
        self._channel = grpc.aio.insecure_channel(url, options=CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def start(self, stream_id: str, prompt: Prompt) -> LlmCall:
        """Send a request; its request id is the stream id, so that any backend's `stop` can name it.

        Raises:
            LlmUnavailableError: there is no connection in time.
        """
        if self._channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    await self._channel.channel_ready()
            except TimeoutError:
                found = f"the LLM's server does not answer within {self._connect_timeout_s:g} s (connect_timeout_s)"
                raise LlmUnavailableError(f"{found}; the server's log names it") from None
        return LlmCall(self._stub, self._request(stream_id, self._inputs.write(stream_id, prompt, self._options)))

    async def stop(self, stream_id: str, seconds: float) -> None:
        """Ask the LLM to end a stream, where it takes that. Its answer does not matter; never raises.

        Args:
            stream_id: which.
            seconds: how long to wait at most.
        """
        if self._inputs.stop is None or not self._takes_stop:
            return
        request = self._request(stream_id, self._inputs.stop(stream_id))
        try:
            async for _ in self._stub.ModelStreamInfer(_once(request), timeout=seconds):
                pass
        except grpc.aio.AioRpcError:
            pass  # the LLM or its server is gone, and with it the stream

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    def _request(self, request_id: str, tensors: Mapping[str, Array]) -> Any:
        request = service_pb2.ModelInferRequest(model_name=self._model, id=request_id)
        for name, array in self._inputs.with_batch(tensors, batched=self._batched).items():
            request.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
            is_text = array.dtype == np.object_
            request.raw_input_contents.append(b"".join(map(_packed, array.flat)) if is_text else array.tobytes())
        return request


async def _once(request: Any) -> AsyncIterator[Any]:
    yield request


def _packed(data: bytes) -> bytes:
    """One BYTES element as Triton packs it: length, then bytes."""
    return struct.pack("<I", len(data)) + data


def _read_tensors(response: Any) -> dict[str, Array]:
    """Name -> values, in the tensor's shape."""
    return {
        output.name: _values(output.datatype, data).reshape(output.shape)
        for output, data in zip(response.outputs, response.raw_output_contents, strict=True)
    }


def _values(datatype: str, data: bytes) -> Array:
    if datatype == "BYTES":
        texts: Array = deserialize_bytes_tensor(data)
        return texts
    return np.frombuffer(data, triton_to_np_dtype(datatype))
