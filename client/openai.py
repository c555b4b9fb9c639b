"""The `openai` package's own types over Triton: `create` as in `client.chat.completions`, chunks and completions.

`ChatCompletions(client).create(messages=..., stream=True)` yields `ChatCompletionChunk`s, without `stream` it returns
a `ChatCompletion`; each is validated by the package's pydantic models. What the API has no place for travels as extra
members, as vLLM does it: `reasoning` in message and delta, `status` in a tool call, `token_ids` and `notices` in the
choice. The differences to OpenAI's server are listed in the README.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, overload

from openai import BaseModel, NotGiven, Omit
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from tristream.parsers import Message, MessageDelta, UsageError

from .blocking import ChatClient, DeltaStream
from .errors import StreamBroken
from .jsonable import notice_objects
from .policy import Deadlines
from .session import fold_choices
from .stream import AsyncChatClient, AsyncDeltaStream

__all__ = [
    "AsyncChatCompletions",
    "AsyncChunkStream",
    "ChatCompletions",
    "ChunkStream",
    "ChunkWriter",
    "completion",
]

_PARAMETERS: Final = frozenset(CompletionCreateParamsBase.__annotations__)


class ChunkWriter:
    """Turns the deltas of one request into chunks; the same for both clients.

    OpenAI's order: first a chunk with the role for every choice, by index, so that accumulators find each in its
    place; `usage` in a chunk of its own at the end, and only where `stream_options.include_usage` asks for it.

    Args:
        model: what the chunks name as their model.
        choices: the request's `n`.
        include_usage: see above.
    """

    def __init__(self, model: str, *, choices: int = 1, include_usage: bool = False) -> None:
        self._model = model
        self._choices = choices
        self._include_usage = include_usage
        self._usage: dict[str, Any] | None = None
        self._frame: dict[str, Any] = {}
        self._deltas: list[MessageDelta] = []

    def chunks(self, delta: MessageDelta, request_id: str) -> Iterator[ChatCompletionChunk]:
        """The chunks of one delta.

        Args:
            delta: the request's next delta.
            request_id: the id of the try that brought it.

        Raises:
            StreamBroken: `finish_reason` is `error`, for which OpenAI has no word: the answer was lost on the way.
        """
        if not self._frame:
            self._frame = _frame("chat.completion.chunk", request_id, self._model)
            for index in range(self._choices):
                yield self._chunk(_choice(index, delta={"role": "assistant", "content": None}))
        self._deltas.append(delta)
        _raise_if_lost(self._model, delta.finish_reason, self._deltas)
        if delta.usage is not None:
            self._usage = _usage(delta.usage.to_openai())
        members = _text_members(delta)
        if delta.tool_calls:
            members["tool_calls"] = [
                _without_none(
                    index=call.index,
                    id=call.id,
                    type="function" if call.name else None,
                    function=_without_none(name=call.name, arguments=call.arguments),
                    status=call.status,
                )
                for call in delta.tool_calls
            ]
        if members or delta.finish_reason or delta.token_ids or delta.notices or delta.logprobs:
            yield self._chunk(_choice(delta.choice_index, delta=members, source=delta))

    def last(self) -> Iterator[ChatCompletionChunk]:
        """The chunk after the last delta, if there is one."""
        if self._include_usage and self._usage is not None and self._frame:
            yield ChatCompletionChunk.model_validate({**self._frame, "choices": [], "usage": self._usage})

    def _chunk(self, choice: dict[str, Any]) -> ChatCompletionChunk:
        return ChatCompletionChunk.model_validate({**self._frame, "choices": [choice]})


def completion(messages: Sequence[Message], *, model: str, request_id: str) -> ChatCompletion:
    """Whole answers, by choice index, as one `ChatCompletion`.

    Raises:
        StreamBroken: the `finish_reason` of one is `error`; see `ChunkWriter.chunks`.
    """
    choices = []
    usage: dict[str, Any] | None = None
    for message in messages:
        _raise_if_lost(model, message.finish_reason, ())
        members = {"role": "assistant", "content": None, "refusal": None, **_text_members(message)}
        if message.tool_calls:
            members["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    "status": call.status,
                }
                for call in message.tool_calls
            ]
        choices.append(_choice(message.choice_index, message=members, source=message))
        if message.usage is not None:
            usage = _usage(message.usage.to_openai())
    return ChatCompletion.model_validate(
        {
            **_frame("chat.completion", request_id, model),
            "choices": choices,
            "usage": usage,
        }
    )


class ChunkStream(Iterator[ChatCompletionChunk]):
    """The chunks of one streamed answer; iterate once. `close` or leaving `with` stops the generation."""

    def __init__(self, deltas: DeltaStream, writer: ChunkWriter) -> None:
        self._deltas = deltas
        self._chunks = self._write(writer)

    def _write(self, writer: ChunkWriter) -> Iterator[ChatCompletionChunk]:
        with self._deltas:
            for delta in self._deltas:
                yield from writer.chunks(delta, self._deltas.request_id)
        if not self._deltas.cancelled:
            yield from writer.last()

    def __next__(self) -> ChatCompletionChunk:
        return next(self._chunks)

    def close(self) -> None:
        """Cancel the answer if it is not whole yet."""
        self._deltas.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncChunkStream(AsyncIterator[ChatCompletionChunk]):
    """`ChunkStream` for asyncio."""

    def __init__(self, deltas: AsyncDeltaStream, writer: ChunkWriter) -> None:
        self._deltas = deltas
        self._chunks = self._write(writer)

    async def _write(self, writer: ChunkWriter) -> AsyncIterator[ChatCompletionChunk]:
        async with self._deltas:
            async for delta in self._deltas:
                for chunk in writer.chunks(delta, self._deltas.request_id):
                    yield chunk
        if not self._deltas.cancelled:
            for chunk in writer.last():
                yield chunk

    async def __anext__(self) -> ChatCompletionChunk:
        return await anext(self._chunks)

    async def close(self) -> None:
        """Cancel the answer if it is not whole yet."""
        self._deltas.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class ChatCompletions:
    """`client.chat.completions` of the `openai` package over a `ChatClient`."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client

    @overload
    def create(self, *, stream: Literal[True], **parameters: Any) -> ChunkStream: ...
    @overload
    def create(self, *, stream: Literal[False] | None = None, **parameters: Any) -> ChatCompletion: ...
    @overload
    def create(self, *, stream: bool | None = None, **parameters: Any) -> ChatCompletion | ChunkStream: ...

    def create(self, *, stream: bool | None = None, **parameters: Any) -> ChatCompletion | ChunkStream:
        """Ask for an answer.

        Args:
            stream: chunks as they come, instead of the whole completion.
            parameters: those of `openai.resources.chat.Completions.create`, by keyword. `model` is the Triton model
                (default `chat`). What only tristream knows (`format`, `include_reasoning`, `return_token_ids`, ...)
                goes into `extra_body`. `timeout`: seconds for the whole answer, or `Deadlines`.

        Raises:
            TypeError: a parameter that the `openai` package does not know either.
            UsageError: `extra_headers` or `extra_query`; headers belong to the connection, so to `ChatClient`.
            ChatError: one for each way to fail, here or while iterating; see `errors.py`.
        """
        body, model, timeout = _request(parameters, stream=stream)
        deltas = self._client.stream(body, model=model, timeout=timeout)
        if stream:
            return ChunkStream(deltas, _writer(body, model))
        with deltas:
            messages = fold_choices(list(deltas))
        return completion(messages, model=model, request_id=deltas.request_id)


class AsyncChatCompletions:
    """`ChatCompletions` over an `AsyncChatClient`."""

    def __init__(self, client: AsyncChatClient) -> None:
        self._client = client

    @overload
    async def create(self, *, stream: Literal[True], **parameters: Any) -> AsyncChunkStream: ...
    @overload
    async def create(self, *, stream: Literal[False] | None = None, **parameters: Any) -> ChatCompletion: ...
    @overload
    async def create(self, *, stream: bool | None = None, **parameters: Any) -> ChatCompletion | AsyncChunkStream: ...

    async def create(self, *, stream: bool | None = None, **parameters: Any) -> ChatCompletion | AsyncChunkStream:
        """Ask for an answer; see `ChatCompletions.create`."""
        body, model, timeout = _request(parameters, stream=stream)
        deltas = self._client.stream(body, model=model, timeout=timeout)
        if stream:
            return AsyncChunkStream(deltas, _writer(body, model))
        async with deltas:
            messages = fold_choices([delta async for delta in deltas])
        return completion(messages, model=model, request_id=deltas.request_id)


# --- the request ----------------------------------------------------------------------------------


def _request(
    parameters: Mapping[str, Any], *, stream: bool | None
) -> tuple[dict[str, Any], str, float | Deadlines | None]:
    """The body, the Triton model and the timeout that `create`'s parameters ask for."""
    given = {name: value for name, value in parameters.items() if not isinstance(value, NotGiven | Omit)}
    timeout = given.pop("timeout", None)
    if timeout is not None and not isinstance(timeout, int | float | Deadlines):
        raise UsageError(f"timeout: found {type(timeout).__name__}; allowed: seconds, or tristream's Deadlines")
    for name in ("extra_headers", "extra_query"):
        if given.pop(name, None):
            raise UsageError(f"{name}: the gRPC connection has them; give headers to the client itself")
    extra = given.pop("extra_body", None) or {}
    unknown = sorted(given.keys() - _PARAMETERS)
    if unknown:
        raise TypeError(f"create() got unexpected keyword arguments {unknown}; tristream's own go into extra_body")
    if "messages" not in given:
        raise TypeError("create() missing the keyword argument 'messages'")
    body: dict[str, Any] = {name: _plain(value) for name, value in {**given, **extra}.items()}
    model = body.setdefault("model", "chat")
    if isinstance(stream, bool):
        body["stream"] = stream
    return body, model, timeout


def _plain(value: Any) -> Any:
    """A value as JSON has it: what `create` returned may come back in the history, as the package's models."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value


def _writer(body: Mapping[str, Any], model: str) -> ChunkWriter:
    options = body.get("stream_options")
    n = body.get("n")
    return ChunkWriter(
        model,
        choices=n if isinstance(n, int) and n > 1 else 1,
        include_usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
    )


# --- the answer -----------------------------------------------------------------------------------


def _frame(kind: str, request_id: str, model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request_id}", "object": kind, "created": int(time.time()), "model": model}


def _choice(index: int, *, source: MessageDelta | Message | None = None, **body: Any) -> dict[str, Any]:
    """One choice: a message or a delta, and what stands beside it."""
    choice: dict[str, Any] = {"index": index, "finish_reason": None, "logprobs": None, **body}
    if source is None:
        return choice
    choice["finish_reason"] = source.finish_reason
    if source.logprobs or source.reasoning_logprobs:
        choice["logprobs"] = {"content": list(source.logprobs), "refusal": None}
        if source.reasoning_logprobs:
            choice["logprobs"]["reasoning"] = list(source.reasoning_logprobs)
    if source.token_ids:
        choice["token_ids"] = list(source.token_ids)
    if source.notices:
        choice["notices"] = notice_objects(source.notices)
    return choice


def _text_members(source: MessageDelta | Message) -> dict[str, Any]:
    return _without_none(reasoning=source.reasoning, content=source.content)


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _usage(counts: dict[str, Any]) -> dict[str, Any] | None:
    """OpenAI's object has all three counts or is absent."""
    return counts if "total_tokens" in counts else None


def _raise_if_lost(model: str, finish_reason: str | None, deltas: Sequence[MessageDelta]) -> None:
    if finish_reason == "error":
        raise StreamBroken(model, "the server lost the stream's state", tuple(deltas))
