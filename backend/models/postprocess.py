"""The model `postprocess`: tokens of many LLM streams in, message deltas out.

One instance, decoupled, batched: an execution takes what waits, of all streams, in order. Every request (one
step of one stream) gets exactly one FINAL; the deltas that one stream's steps yield together are merged and ride on
those answers, since what costs here is the number of IPC round trips, not the parsing (TRITON.md, ensembles, 5 to 10).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tristream.backend.detokenizer import Vocabulary, load_vocabulary
from tristream.backend.errors import SettingsError, UnavailableError
from tristream.backend.format_choice import check_default
from tristream.backend.lifeline import end_with_server
from tristream.backend.metrics import Metrics
from tristream.backend.opening import Opening, client_key, stream_key
from tristream.backend.pb import Array, PbModule, PbRequest
from tristream.backend.refusals import refusal
from tristream.backend.responder import Responder, log_unexpected
from tristream.backend.settings import ModelArguments, PostprocessSettings, read_settings
from tristream.backend.stopper import Stopper
from tristream.backend.streams import Stream, lost_message, merge_deltas
from tristream.backend.table import StreamTable
from tristream.backend.tensors import input_tensors, message_tensors, read_text
from tristream.parsers import MessageDelta, RequestError

__all__ = ["PostprocessModel"]

OPTIONS_PARAMETER: Final = "tristream"
"""Request parameter with a stream's options, in an ensemble without `preprocess`."""

_LLM_NAMES: Final = {"TOKENS_BATCH": "output_ids", "SEQUENCE_LENGTH": "sequence_length"}
"""Inputs that are called as those of TensorRT-LLM's own `postprocessing` -> what its LLM calls them."""

TICK_S: Final = 1.0
"""How often idle streams and metrics are looked at while nothing arrives."""


class Step(NamedTuple):
    """One request: what the LLM said of a stream."""

    responder: Responder
    request: PbRequest
    outputs: Mapping[str, Array]


class PostprocessModel:
    """What Triton calls `TritonPythonModel`; see `model_repository/postprocess/1/model.py`.

    Args:
        pb: `triton_python_backend_utils`.
        clock: seconds, monotonic, the same in all processes of the host.
        open_stream: makes a stream; tests put their own.
        tick_s: see TICK_S; 0 starts no thread.
    """

    def __init__(
        self,
        pb: PbModule,
        clock: Callable[[], float] = time.monotonic,
        open_stream: Callable[[Opening, Vocabulary, PostprocessSettings], Stream] = Stream.open,
        tick_s: float = TICK_S,
    ) -> None:
        self._pb = pb
        self._clock = clock
        self._open_stream = open_stream
        self._tick_s = tick_s
        self._lock = threading.Lock()  # between execute and the housekeeping thread
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read and check the configuration.

        Raises:
            SettingsError: a parameter is wrong, or the model may not be run like this.
        """
        end_with_server()
        arguments = ModelArguments.from_triton(args)
        _check_config(arguments)
        self._settings = read_settings(PostprocessSettings, arguments.parameters, arguments.directory)
        if self._settings.tokenizer is None:
            raise SettingsError("tokenizer", "nothing", "the LLM's tokenizer.json, or a folder that holds one")
        self._vocabulary = load_vocabulary(self._settings.tokenizer)
        check_default(self._settings, self._vocabulary.added_spellings, needed=self._settings.implicit_open)
        self._table = StreamTable(self._settings, self._clock)
        self._metrics = Metrics(self._pb, arguments.name, enabled=self._settings.metrics)
        self._tokens = 0  # of this batch
        self._stopper = Stopper(self._pb, self._settings.stop_model)
        if self._tick_s:
            self._thread = threading.Thread(target=self._keep_house, name="housekeeping", daemon=True)
            self._thread.start()

    def execute(self, requests: Sequence[PbRequest]) -> None:
        """Serve one batch.

        Args:
            requests: each either `open` STRING [1,1], or one response of the LLM, as its backend sends it
                (`llm_outputs.BACKENDS`), with the batch dimension in front.
        """
        streams: dict[str, list[Step]] = {}
        with self._lock:
            self._expire()
            for request in requests:
                responder = Responder(self._pb, request.get_response_sender())
                try:
                    inputs = input_tensors(request)
                    if "open" in inputs:
                        self._open(read_text(inputs["open"]))
                        responder.close()
                    else:
                        key = self._key(inputs, request)
                        outputs = {_LLM_NAMES.get(name, name): each.as_numpy() for name, each in inputs.items()}
                        streams.setdefault(key, []).append(Step(responder, request, outputs))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's and no other's
                    self._refuse([responder], error)
            for key, steps in streams.items():
                self._serve(key, steps)
            self._metrics.count("tristream_tokens_total", amount=self._tokens)
            self._tokens = 0
            self._metrics.set_live(len(self._table))

    def finalize(self) -> None:
        """Stop the threads."""
        self._stopper.close()
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _key(self, inputs: Mapping[str, Any], request: PbRequest) -> str:
        """Whose response it is: our `llm` says so, an unchanged one carries the ids of the client's request.

        Raises:
            RequestError: nobody says so, or what should be there is not.
        """
        if self._settings.llm_backend == "tristream":
            if "stream_id" not in inputs or "token_ids" not in inputs:
                found = ", ".join(sorted(inputs)) or "no inputs"
                raise RequestError("inputs", found, "open alone, or stream_id, token_ids and meta")
            return stream_key(read_text(inputs["stream_id"], lenient=True))
        return client_key(request)

    def _open(self, text: str) -> None:
        """Take a stream's options, before its first token.

        Raises:
            RequestError: they cannot be served, or the id is in use.
            UnavailableError: the table is full, or this model is behind.
        """
        opening = Opening.from_json(text, self._settings)
        waited = 0.0 if opening.sent_at is None else max(0.0, self._clock() - opening.sent_at)
        limit = self._settings.max_queue_age_ms
        if limit and waited * 1000 > limit:
            raise UnavailableError(
                "max_queue_age_ms",
                f"the open waited {waited * 1000:.0f} ms behind tokens of other streams, more than {limit}",
                "try again later, or add another server or shard",
            )
        self._table.check_room(opening.stream_id, opening.size)
        self._table.add(opening.stream_id, self._open_stream(opening, self._vocabulary, self._settings))
        self._metrics.count("tristream_streams_opened_total")
        self._metrics.count("tristream_open_wait_seconds_total", amount=waited)

    def _open_implicitly(self, key: str, request: PbRequest) -> Stream | None:
        """In an ensemble without `preprocess`: the first token opens its stream.

        Returns:
            The stream, or None where an unknown stream is a lost one.

        Raises:
            RequestError: the options in the request's parameters cannot be served.
            UnavailableError: the table is full.
        """
        if not self._settings.implicit_open or self._table.is_over(key):
            return None
        opening = Opening.from_json(_options(request), self._settings, stream_id=key)
        self._table.add(key, self._open_stream(opening, self._vocabulary, self._settings))
        self._metrics.count("tristream_streams_opened_total")
        return self._table.use(key)

    def _refuse(self, responders: Sequence[Responder], error: Exception) -> None:
        """Answer the first with an error, the others with nothing."""
        log_unexpected(self._pb, error)
        reason = "request" if isinstance(error, RequestError) else "internal"
        if isinstance(error, UnavailableError):
            reason = error.limit
        self._metrics.count("tristream_opens_refused_total", reason)
        for place, responder in enumerate(responders):
            try:
                if place == 0 and not responder.closed:
                    responder.fail(error)
                else:
                    responder.close()
            except Exception as failure:  # noqa: BLE001 - the request is gone; the others are not
                log_unexpected(self._pb, failure)

    def _serve(self, key: str, steps: Sequence[Step]) -> None:
        """All steps of one stream that are in this batch."""
        responders = [step.responder for step in steps]
        try:
            stream = self._table.use(key) or self._open_implicitly(key, steps[0].request)
        except Exception as error:  # noqa: BLE001 - a stream that cannot begin is refused, whatever the reason
            self._table.first_lost(key)
            self._refuse(responders, error)
            return
        if stream is None:
            self._answer_lost(key, responders)
            return
        deltas: list[MessageDelta] = []
        before = stream.tokens
        try:
            for step in steps:
                deltas += stream.read(step.outputs)
                if stream.ended:
                    break
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this stream, and leaves the others alone
            log_unexpected(self._pb, error)
            self._metrics.count("tristream_streams_failed_total")
            deltas.append(lost_message())
            self._table.close(key)
        self._tokens += stream.tokens - before
        if stream.ended:
            # Where clients choose the ids, one may come again; ours never do, so late tokens can be kept silent.
            self._table.close(key, silent=not self._settings.implicit_open)
            if stream.error:
                self._pb.Logger.log_error(f"tristream: the LLM ended stream {key} with an error: {stream.error}")
            if stream.refused:
                self._refuse(responders, refusal(stream.error))
                return
        self._send_all(key, responders, merge_deltas(deltas))

    def _send_all(self, key: str, responders: Sequence[Responder], deltas: Sequence[MessageDelta]) -> None:
        """Send deltas on a stream's requests; where that fails, end the stream with what can still be sent."""
        try:
            self._answer(responders, deltas)
        except Exception as error:  # noqa: BLE001 - no shared memory left, or no request: this stream's fate
            log_unexpected(self._pb, error)
            self._metrics.count("tristream_streams_failed_total")
            self._table.close(key)
            self._end_failed(responders)

    def _answer(self, responders: Sequence[Responder], deltas: Sequence[MessageDelta]) -> None:
        """Send deltas on a stream's requests: one each, the rest on the last; FINAL rides along."""
        last = len(responders) - 1
        for place, responder in enumerate(responders):
            mine = deltas[place : place + 1] if place < last else deltas[place:]
            for delta in mine[:-1]:
                responder.send(message_tensors(self._pb, delta))
            responder.send(message_tensors(self._pb, mine[-1]) if mine else [], final=True)
        self._metrics.count_deltas(deltas)

    def _answer_lost(self, key: str, responders: Sequence[Responder]) -> None:
        """Tokens without a stream: say so once, then nothing. They show no text, whatever they are."""
        first = self._table.first_lost(key)
        if first:
            self._metrics.count("tristream_streams_lost_total")
        self._send_all(key, responders, [lost_message()] if first else [])

    def _end_failed(self, responders: Sequence[Responder]) -> None:
        """After a fault: what is still owed, FINAL above all, sent as well as it can be."""
        owed = [responder for responder in responders if not responder.closed]
        try:
            if owed:
                owed[0].send(message_tensors(self._pb, lost_message()), final=True)
        except Exception as error:  # noqa: BLE001 - the client is gone or the server is going
            log_unexpected(self._pb, error)
        for responder in owed:
            try:
                responder.close()
            except Exception as error:  # noqa: BLE001 - as above
                log_unexpected(self._pb, error)

    def _expire(self) -> None:
        expired = self._table.expire()
        if expired:
            self._stopper.stop(expired)
            self._metrics.count("tristream_streams_expired_total", amount=len(expired))
            self._pb.Logger.log_info(f"tristream: {len(expired)} streams dropped after their idle limit")

    def _keep_house(self) -> None:
        """The thread: idle streams go and metrics arrive also while no request comes."""
        while not self._stopping.wait(self._tick_s):
            self.tick()

    def tick(self) -> None:
        """One round of housekeeping."""
        with self._lock:
            self._expire()
            self._metrics.set_live(len(self._table))
            taken = self._metrics.take()
        self._metrics.send(taken)


def _check_config(arguments: ModelArguments) -> None:
    """Is the model configured so that the order of tokens is kept?

    Raises:
        SettingsError: more than one instance, or not decoupled.
    """
    if arguments.instance_count != 1:
        raise SettingsError(
            "instance_group",
            f"{arguments.instance_count} instances",
            "one: more would take turns with the tokens of every stream and scramble them; scale by shards or servers",
        )
    if not arguments.config.get("model_transaction_policy", {}).get("decoupled"):
        raise SettingsError("model_transaction_policy", "decoupled: false", "decoupled: true, for order in a batch")


def _options(request: PbRequest) -> str:
    """The JSON of the request parameter `tristream`; "{}" where there is none.

    Raises:
        RequestError: it is not text.
    """
    parameters = request.parameters()
    value = json.loads(parameters).get(OPTIONS_PARAMETER) if parameters else None
    if value is None:
        return "{}"
    if not isinstance(value, str):
        raise RequestError(f"parameters.{OPTIONS_PARAMETER}", f"a {type(value).__name__}", "JSON as a string")
    return value
