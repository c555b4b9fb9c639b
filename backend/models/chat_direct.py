"""The model `chat_direct`: request in, message deltas out, the LLM called by gRPC.

What an ensemble cannot have (TRITON.md, ensembles, 9): the LLM stops when the client goes, any number of instances,
and an LLM on another server. One thread renders (Triton's, in `execute`), one runs the asyncio loop on which all
streams live; every response is sent from that loop, in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tristream.backend.detokenizer import load_vocabulary
from tristream.backend.errors import SettingsError, UnavailableError
from tristream.backend.format_choice import log_remarks
from tristream.backend.lifeline import end_with_server
from tristream.backend.llm_client import LlmCall, LlmClient, LlmLostError
from tristream.backend.llm_inputs import Prompt
from tristream.backend.metrics import Metrics
from tristream.backend.opening import Opening
from tristream.backend.pb import Array, PbModule, PbRequest
from tristream.backend.prompt import PromptBuilder, PromptSettings
from tristream.backend.refusals import LlmUnavailableError, refusal
from tristream.backend.responder import Responder, log_unexpected
from tristream.backend.settings import ModelArguments, limited, read_settings
from tristream.backend.streams import Stream, lost_message, merge_deltas
from tristream.backend.tensors import message_tensors
from tristream.parsers import MessageDelta
from tristream.parsers.errors import RequestError

from .preprocess import mint_stream_id, read_request

__all__ = ["ChatDirectModel", "ChatDirectSettings"]

DEFAULT_LLM_URL: Final = "localhost:8001"
LLM_URL_VARIABLE: Final = "TRISTREAM_LLM_URL"
"""Where `llm_url` is empty: the server that started this model says so if its gRPC port is not the default one."""

CANCEL_CHECK_TOKENS: Final = 16
"""Tokens after which the client is looked after; an IPC round trip each time."""

LOST_META: Final = json.dumps({"finish_reason": "error", "last": True})
"""What a lost LLM would have said: the parser then closes the message as far as it came."""


STOP_TIMEOUT_S: Final = 5.0
TICK_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ChatDirectSettings(PromptSettings):
    """Parameters of `chat_direct`; those of `PromptSettings` as well.

    Args:
        llm: the LLM's model name.
        llm_url: `host:port` of its server's gRPC; "" is this server.
        llm_takes_stop: it ends a stream on an input `stop`, if its backend has one.
        max_streams: most live streams of an instance; a further one is refused.
        connect_timeout_s: seconds to wait for a connection to the LLM.
        first_token_timeout_s: seconds to wait for its first token: its queue and its prefill.
        token_timeout_s: seconds to wait for each further one.
        cancel_check_ms: how often, at least, to see whether the client has gone.
        metrics: count in Triton's metrics.
    """

    llm: str = "llm"
    llm_url: str = ""
    llm_takes_stop: bool = True
    max_streams: int = limited(1024, low=1)
    connect_timeout_s: float = limited(10.0, low=0.01)
    first_token_timeout_s: float = limited(600.0, low=0.01)
    token_timeout_s: float = limited(120.0, low=0.01)
    cancel_check_ms: int = limited(250, low=10, high=60_000)
    metrics: bool = True


class ChatDirectModel:
    """What Triton calls `TritonPythonModel`; see `model_repository/chat_direct/1/model.py`.

    Args:
        pb: `triton_python_backend_utils`.
        clock: seconds, monotonic.
    """

    def __init__(self, pb: PbModule, clock: Callable[[], float] = time.monotonic) -> None:
        self._pb = pb
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read and check the configuration, load tokenizer and template, start the loop.

        Raises:
            SettingsError: a parameter cannot be used.
        """
        end_with_server()
        arguments = ModelArguments.from_triton(args)
        if not arguments.config.get("model_transaction_policy", {}).get("decoupled"):
            raise SettingsError("model_transaction_policy", "decoupled: false", "decoupled: true")
        self._settings = settings = read_settings(ChatDirectSettings, arguments.parameters, arguments.directory)
        self._builder = PromptBuilder(settings, direct=True)
        log_remarks(self._pb, self._builder.remarks)
        self._builder.warm_up()
        assert settings.tokenizer is not None  # the builder has checked it
        self._vocabulary = load_vocabulary(settings.tokenizer)
        self._metrics = Metrics(self._pb, arguments.name, enabled=settings.metrics)
        self._live = 0  # started and not ended; changed on the loop and in execute
        self._live_lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="streams", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._connect(), self._loop).result()

    async def _connect(self) -> None:
        settings = self._settings
        url = settings.llm_url or os.environ.get(LLM_URL_VARIABLE) or DEFAULT_LLM_URL
        self._llm = LlmClient(
            url,
            settings.llm,
            settings.connect_timeout_s,
            backend=settings.llm_backend,
            options=self._builder.input_options,
            takes_stop=settings.llm_takes_stop,
            batched=settings.llm_batched,
        )
        self._housekeeping = asyncio.create_task(self._keep_house())

    def execute(self, requests: Sequence[PbRequest]) -> None:
        """Start the streams of some requests; a request that cannot be served gets its error.

        Args:
            requests: each `request` STRING [1].
        """
        for request in requests:
            responder = Responder(self._pb, request.get_response_sender())
            try:
                self._begin(request, responder)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's and no other's
                log_unexpected(self._pb, error)
                self._loop.call_soon_threadsafe(self._metrics.count, "tristream_opens_refused_total", _reason(error))
                responder.fail(error)

    def finalize(self) -> None:
        """End all streams, each with an error its client sees, and the loop."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        try:
            closing.result(timeout=CLOSE_TIMEOUT_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=CLOSE_TIMEOUT_S)

    def _begin(self, request: PbRequest, responder: Responder) -> None:
        settings = self._settings
        with self._live_lock:
            if self._live >= settings.max_streams:
                found = f"{self._live} streams are live, as many as may be"
                raise UnavailableError("max_streams", found, "try again later")
            self._live += 1
        try:
            prompt = self._builder.build(read_request(request))
            stream_id = mint_stream_id()
            opening = Opening(
                stream_id,
                prompt.opening["request"],
                prompt.opening["format"],
                prompt.opening["prompt_tail"],
                prompt.opening["prompt_tokens"],
                end_ids=tuple(prompt.opening.get("end_ids", ())),
                max_tokens=prompt.opening.get("max_tokens"),
            )
            stream = Stream.open(opening, self._vocabulary, settings)
            self._loop.call_soon_threadsafe(self._start, stream, prompt, responder)
        except BaseException:
            self._count_ended()
            raise

    def _start(self, stream: Stream, prompt: Prompt, responder: Responder) -> None:
        self._metrics.count("tristream_streams_opened_total")
        task = self._loop.create_task(self._serve(stream, prompt, responder))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._count_ended()

    def _count_ended(self) -> None:
        with self._live_lock:
            self._live -= 1

    async def _serve(self, stream: Stream, prompt: Prompt, responder: Responder) -> None:
        """One stream, from its request to FINAL, whatever happens."""
        answer = _Answer(self._pb, self._metrics, stream, responder)
        stream_id = stream.opening.stream_id
        call: LlmCall | None = None
        done = False
        try:
            call = await self._llm.start(stream_id, prompt)
            await self._pass_on(stream, call, answer)
            done = stream.ended
            responder.close()
        except (LlmLostError, LlmUnavailableError) as error:
            self._pb.Logger.log_error(f"tristream: stream {stream_id}: the LLM at {self._llm.url}: {error}")
            answer.end(refusal(str(error)) if isinstance(error, LlmLostError) else error)
        except asyncio.CancelledError:  # the model is unloaded
            answer.end(LlmUnavailableError("the server is shutting down"))
        except Exception as error:  # noqa: BLE001 - ours: no shared memory left, or a bug; this stream's fate alone
            log_unexpected(self._pb, error)
            self._metrics.count("tristream_streams_failed_total")
            answer.end(error)
        finally:
            if call is not None:
                await call.close()
                if not done:
                    await self._llm.stop(stream_id, STOP_TIMEOUT_S)

    async def _pass_on(self, stream: Stream, call: LlmCall, answer: _Answer) -> None:
        """Steps in, deltas out, until the last step, or until the client has gone.

        Raises:
            LlmLostError: the LLM broke off, or a deadline is over.
        """
        settings, clock = self._settings, self._clock
        patience = settings.cancel_check_ms / 1000
        now = clock()
        deadline, limit = now + settings.first_token_timeout_s, "first_token_timeout_s"
        checked, tokens = now, 0
        while not stream.ended:
            responses = await call.take(max(min(patience, deadline - now), 0.0))
            now = clock()
            if responses:
                tokens += answer.pass_on(responses)
                deadline, limit = now + settings.token_timeout_s, "token_timeout_s"
                await asyncio.sleep(0)  # a stream whose responses always wait must let the others have their turn
            elif call.ended:
                answer.close()
                if not stream.ended:
                    raise LlmLostError("its stream ended without a finish_reason")
            elif now >= deadline:
                raise LlmLostError(f"no token within {getattr(settings, limit):g} s ({limit})")
            if tokens >= CANCEL_CHECK_TOKENS or now - checked >= patience:
                checked, tokens = now, 0
                if answer.client_gone():
                    return

    async def _keep_house(self) -> None:
        """Metrics, once a second."""
        while True:
            await asyncio.sleep(TICK_S)
            self._metrics.set_live(self._live)
            self._metrics.send(self._metrics.take())

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in (*tasks, self._housekeeping):
            task.cancel()
        await asyncio.gather(*tasks, self._housekeeping, return_exceptions=True)
        await self._llm.close()


class _Answer:
    """What one client has been sent."""

    __slots__ = ("_metrics", "_pb", "_responder", "_sent", "_stream")

    def __init__(self, pb: PbModule, metrics: Metrics, stream: Stream, responder: Responder) -> None:
        self._pb = pb
        self._metrics = metrics
        self._stream = stream
        self._responder = responder
        self._sent = False
        """A delta has gone out: from now on no error may follow (PROTOCOL 7, TRITON.md 10)."""

    def pass_on(self, responses: Sequence[Mapping[str, Array]]) -> int:
        """Parse some responses of the LLM and send what they yield; neighbours go out merged. Returns their tokens."""
        stream, before = self._stream, self._stream.tokens
        deltas = [delta for response in responses for delta in stream.read(response)]
        self._send(deltas)
        tokens = stream.tokens - before
        self._metrics.count("tristream_tokens_total", amount=tokens)
        return max(tokens, len(responses))

    def close(self) -> None:
        """The LLM's responses are over: for some backends that is the end of the answer."""
        self._send(self._stream.close())

    def _send(self, deltas: Sequence[MessageDelta]) -> None:
        stream = self._stream
        if stream.error:
            self._pb.Logger.log_error(f"tristream: stream {stream.opening.stream_id}: the LLM: {stream.error}")
        if stream.refused and not self._sent:
            self._responder.fail(refusal(stream.error))
            return
        merged = merge_deltas(deltas)
        for place, delta in enumerate(merged, 1):
            tensors = message_tensors(self._pb, delta)
            self._sent = self._sent or bool(tensors)
            self._responder.send(tensors, final=stream.ended and place == len(merged))
        self._metrics.count_deltas(merged)

    def end(self, error: Exception) -> None:
        """The answer cannot go on: `error` if nothing was sent, else the end of the message. Never raises."""
        try:
            if not self._sent:
                self._metrics.count("tristream_opens_refused_total", _reason(error))
                self._responder.fail(error)
                return
            try:
                if not self._stream.ended and not self._responder.closed:
                    self._send(self._stream.feed((), LOST_META))
            except Exception as second:  # noqa: BLE001 - the parser is what failed
                log_unexpected(self._pb, second)
                self._responder.send(message_tensors(self._pb, lost_message()), final=True)
            self._responder.close()
        except Exception as second:  # noqa: BLE001 - the client is gone or the server is going
            log_unexpected(self._pb, second)

    def client_gone(self) -> bool:
        """Has the client cancelled, or its connection broken? An IPC round trip."""
        return self._responder.is_cancelled()


def _reason(error: Exception) -> str:
    """The metric's label: a limit's name, `request`, or `internal`."""
    if isinstance(error, UnavailableError):
        return error.limit
    return "request" if isinstance(error, RequestError) else "internal"
