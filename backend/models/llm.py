"""The model `llm`: token ids in, token ids out, one response per step, over an engine of `tristream.backend.engines`.

`execute` only starts and stops streams; the engine's thread hands their steps to `Delivery`, whose thread sends them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tristream.backend.engines.base import Constraint, Engine, GenerationRequest, Sampling, Step
from tristream.backend.lifeline import end_with_server
from tristream.backend.pb import PbModule, PbRequest, PbTensor
from tristream.backend.responder import INTERNAL_MESSAGE, Responder, log_unexpected
from tristream.backend.settings import ModelArguments, limited, read_settings
from tristream.backend.tensors import input_tensors, read_flag, read_ints, read_text
from tristream.parsers.errors import RequestError, TristreamError

from .delivery import Delivery, step_tensors

__all__ = ["LlmModel", "LlmSettings"]


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Parameters of `llm`.

    Args:
        model: a Hugging Face folder, or a .gguf file.
        tokenizer: a folder with the tokenizer, where it is not beside the weights.
        engine: what runs the model.
        device: auto takes a GPU if torch finds one.
        dtype: of weights and cache.
        num_threads: CPU threads of a decoding step; 0 takes all cores, but one where there are more than two.
        max_context: bound on prompt and output together, in tokens; 0 is the model's own.
        max_concurrent, max_queue, prefill_chunk, compile_timeout_s, grammar_cache_mb: see `EngineLimits`.
        max_constraint_bytes: most bytes of one request's constraint.
    """

    model: Path
    tokenizer: Path | None = None
    engine: Literal["transformers"] = "transformers"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    num_threads: int = limited(0, low=0, high=1024)
    max_context: int = limited(0, low=0)
    max_concurrent: int = limited(16, low=1, high=1024)
    max_queue: int = limited(64, low=0)
    prefill_chunk: int = limited(0, low=0)
    compile_timeout_s: float = limited(1.0, low=0.001)
    grammar_cache_mb: int = limited(256, low=1)
    max_constraint_bytes: int = limited(4 * 1024 * 1024, low=1024)


class LlmModel:
    """What Triton calls `TritonPythonModel`; see `model_repository/llm/1/model.py`.

    Args:
        pb: `triton_python_backend_utils`.
        start: makes the engine; tests put their own.
    """

    def __init__(self, pb: PbModule, start: Callable[[LlmSettings, Mapping[str, str]], Engine] | None = None) -> None:
        self._pb = pb
        self._start_engine = start or start_engine
        self._engine: Engine | None = None
        self._delivery: Delivery | None = None

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the configuration and load the model.

        Raises:
            SettingsError: a parameter cannot be used.
        """
        end_with_server()
        arguments = ModelArguments.from_triton(args)
        settings = read_settings(LlmSettings, arguments.parameters, arguments.directory)
        logging.getLogger("tristream").addHandler(_ServerLog(self._pb))
        if _instances(arguments) > 1:
            found = f"{arguments.name}: {_instances(arguments)} instances"
            self._pb.Logger.log_warn(f"{found}; `stop` reaches only one of them. To have one: gpus: [ 0 ], count: 1")
        begun = time.monotonic()
        self._settings = settings
        engine = self._engine = self._start_engine(settings, args)
        self._delivery = Delivery(self._pb, engine.stop)
        self._pb.Logger.log_info(f"{arguments.name}: {settings.model} loaded in {time.monotonic() - begun:.1f} s")

    def execute(self, requests: Sequence[PbRequest]) -> None:
        """Start or stop streams; their steps follow on another thread.

        Args:
            requests: each `stream_id` STRING [1], `input_ids` INT32 [k], and maybe `sampling` STRING [1] and
                `constraint` STRING [1]; or `stream_id` and `stop` BOOL [1] = true, answered by FINAL alone.
        """
        for request in requests:
            responder = Responder(self._pb, request.get_response_sender())
            try:
                self._serve(request, responder)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's and no other's
                self._refuse(responder, error)

    def finalize(self) -> None:
        """End all streams and free the model."""
        if self._engine is not None:
            self._engine.close()
        if self._delivery is not None:
            self._delivery.close()

    def _serve(self, request: PbRequest, responder: Responder) -> None:
        assert self._engine is not None
        inputs = input_tensors(request)
        if "stream_id" not in inputs:
            raise RequestError("stream_id", "no such input", "STRING [1], an id that no other live stream has")
        stream_id = read_text(inputs["stream_id"])
        if "stop" in inputs and read_flag(inputs["stop"]):
            self._engine.stop(stream_id)
            responder.close()
            return
        try:
            self._begin(stream_id, inputs, responder)
        except Exception as error:
            if isinstance(error, RequestError) and error.field == "stream_id":
                raise  # a step under that id would end the stream that has it
            # In-band, not as Triton's error: in an ensemble that one ends the request without a word to postprocess,
            # which would keep the stream's state for an hour (TRITON.md, ensembles, 9).
            log_unexpected(self._pb, error)
            text = str(error) if isinstance(error, TristreamError) else INTERNAL_MESSAGE
            responder.send(step_tensors(self._pb, stream_id, Step((), "error", text, last=True)), final=True)

    def _begin(self, stream_id: str, inputs: Mapping[str, PbTensor], responder: Responder) -> None:
        assert self._engine is not None
        assert self._delivery is not None
        if "input_ids" not in inputs:
            raise RequestError("input_ids", "no such input", "INT32 [k], the ids of the rendered prompt")
        generation = GenerationRequest(
            stream_id,
            read_ints(inputs["input_ids"]),
            Sampling.from_json(_text(inputs, "sampling")),
            Constraint.from_json(_text(inputs, "constraint"), max_bytes=self._settings.max_constraint_bytes),
        )
        outlet = self._delivery.open(stream_id, responder)
        self._engine.submit(generation, outlet)
        self._delivery.watch(outlet)

    def _refuse(self, responder: Responder, error: Exception) -> None:
        log_unexpected(self._pb, error)
        try:
            if not responder.closed:
                responder.fail(error)
        except Exception as second:  # noqa: BLE001 - the request is gone; there is nobody to tell
            log_unexpected(self._pb, second)


class _ServerLog(logging.Handler):
    """The engine's log records, into the server's log."""

    def __init__(self, pb: PbModule) -> None:
        super().__init__(logging.WARNING)
        self._pb = pb

    def emit(self, record: logging.LogRecord) -> None:
        self._pb.Logger.log_error(self.format(record))


def start_engine(settings: LlmSettings, args: Mapping[str, str]) -> Engine:
    """Load the model and start the engine that the settings name.

    Args:
        settings: the model's.
        args: of `initialize`: which device this instance was given.

    Raises:
        SettingsError: the model cannot be loaded.
    """
    # imported here: they load torch, which only a server that serves needs
    from tristream.backend.engines.hf import EngineLimits, TransformersEngine
    from tristream.backend.engines.loading import load_model, pick_device

    kind, device_id = args.get("model_instance_kind", ""), args.get("model_instance_device_id", "")
    device = pick_device(settings.device, kind, device_id)
    limits = EngineLimits(
        max_concurrent=settings.max_concurrent,
        max_queue=settings.max_queue,
        prefill_chunk=settings.prefill_chunk,
        compile_timeout_s=settings.compile_timeout_s,
        grammar_cache_mb=settings.grammar_cache_mb,
        num_threads=settings.num_threads or _default_threads(),
    )
    model = load_model(
        settings.model, device, settings.dtype, max_context=settings.max_context, tokenizer=settings.tokenizer
    )
    return TransformersEngine(model, limits)


def _instances(arguments: ModelArguments) -> int:
    # Triton makes `count` on each GPU that a group names; KIND_AUTO without names has been resolved to all of them
    groups = arguments.config.get("instance_group", ())
    return sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", ()))) for group in groups)


def _default_threads() -> int:
    cores = len(os.sched_getaffinity(0))
    return cores - 1 if cores > 2 else cores


def _text(inputs: Mapping[str, PbTensor], name: str) -> str:
    return read_text(inputs[name]) if name in inputs else ""
