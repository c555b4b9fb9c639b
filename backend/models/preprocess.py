"""The model `preprocess`: an OpenAI request in, the LLM's inputs out.

Not decoupled, any number of instances. Before it answers it tells `postprocess` about the stream, by BLS: a step
behind a decoupled model can take nothing else than that model's tensors (TRITON.md, ensembles, 1 and 4).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Final

from tristream.backend.contract import POSTPROCESS
from tristream.backend.errors import BUSY_PREFIX, UnavailableError
from tristream.backend.format_choice import log_remarks
from tristream.backend.lifeline import end_with_server
from tristream.backend.llm_inputs import LLM_INPUTS, Prompt
from tristream.backend.opening import client_key
from tristream.backend.pb import PbModule, PbRequest
from tristream.backend.prompt import PromptBuilder, PromptSettings
from tristream.backend.responder import log_unexpected, triton_error
from tristream.backend.settings import ModelArguments, limited, read_settings
from tristream.backend.tensors import compact_json, input_tensors, read_text, text_array
from tristream.parsers.errors import RequestError

__all__ = ["OpenRefusedError", "PreprocessModel", "PreprocessSettings", "mint_stream_id", "read_request"]

SEQUENCE_PARAMETER: Final = "sequence_id"
"""The response parameter that gives an ensemble's later steps another correlation id (TRITON.md, ensembles, 3)."""

MAX_OPENS: Final = 8
"""Opens on their way at once, each with a thread. One takes 2 ms; only a `postprocess` that hangs fills them all."""


@dataclass(frozen=True, slots=True)
class PreprocessSettings(PromptSettings):
    """Parameters of `preprocess`; those of `PromptSettings` as well.

    Args:
        postprocess: the model that takes the `open`.
        open_timeout_s: seconds to wait for its answer; then the request is refused.
    """

    postprocess: str = "postprocess"
    open_timeout_s: float = limited(10.0, low=0.01, high=600)


class OpenRefusedError(Exception):
    """`postprocess` refused the stream; its words go to the client as they are."""

    def triton_error(self, pb: PbModule) -> Any:
        """The same error again. BLS loses its code (2.51: any code arrives as INTERNAL), so the words decide."""
        text = str(self)
        code = "UNAVAILABLE" if BUSY_PREFIX in text else "INVALID_ARG" if "; allowed: " in text else "INTERNAL"
        return pb.TritonError(text, getattr(pb.TritonError, code))


def mint_stream_id() -> str:
    """128 random bits in hex: nobody can guess another's stream."""
    return secrets.token_hex(16)


def read_request(request: PbRequest) -> str:
    """The body of a request.

    Raises:
        RequestError: the input is absent, has not exactly one element, or is not UTF-8.
    """
    inputs = input_tensors(request)
    if "request" not in inputs:
        raise RequestError("request", "no such input", "STRING [1], an OpenAI chat.completions body as JSON")
    return read_text(inputs["request"])


def takes_parameters(pb: PbModule) -> bool:
    """Can a response of the Python backend carry parameters? From Triton 25.02 on."""
    try:
        pb.InferenceResponse(output_tensors=[], parameters={})
    except TypeError:
        return False
    return True


class PreprocessModel:
    """What Triton calls `TritonPythonModel`; see `model_repository/preprocess/1/model.py`.

    Args:
        pb: `triton_python_backend_utils`.
        clock: seconds, monotonic, the same in all processes of the host.
    """

    def __init__(self, pb: PbModule, clock: Callable[[], float] = time.monotonic) -> None:
        self._pb = pb
        self._clock = clock

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read and check the configuration, load tokenizer and template.

        Raises:
            SettingsError: a parameter cannot be used.
        """
        end_with_server()
        arguments = ModelArguments.from_triton(args)
        self._settings = read_settings(PreprocessSettings, arguments.parameters, arguments.directory)
        self._builder = PromptBuilder(self._settings)
        log_remarks(self._pb, self._builder.remarks)
        self._builder.warm_up()
        self._inputs = LLM_INPUTS[self._settings.llm_backend]
        self._echoed = any(spec.name == "stream_id" for spec in self._inputs.tensors)
        """The LLM's model takes the stream's id and says it again with every step."""
        self._renames = takes_parameters(self._pb)
        """This server takes response parameters, and with them a new correlation id for the steps that follow."""
        self._pool = ThreadPoolExecutor(MAX_OPENS, thread_name_prefix="open")

    def execute(self, requests: Sequence[PbRequest]) -> list[Any]:
        """Serve some requests; each has its own response, an error if it cannot be served.

        Args:
            requests: each `request` STRING [1].

        Returns:
            For each the inputs of the LLM's backend (`llm_inputs.py`); of our `llm` `stream_id` STRING [1],
            `input_ids` INT32 [k], `sampling` STRING [1], `constraint` STRING [1].
        """
        opened = [self._begin(request) for request in requests]
        return [self._response(*begun) for begun in opened]

    def finalize(self) -> None:
        """Let go of the threads; one that hangs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _key(self, request: PbRequest) -> str:
        """The key under which the stream's tokens will come to `postprocess`.

        Raises:
            RequestError: nobody can say: the client has to choose an id, and has not.
        """
        if self._echoed:
            return mint_stream_id()
        # the correlation id of all later steps, 63 random bits; on older servers the client's own ids
        return str(secrets.randbits(63) or 1) if self._renames else client_key(request)

    def _begin(self, request: PbRequest) -> tuple[str, Prompt | BaseException, Future[None] | None]:
        """Build the prompt and send the `open`; several requests' opens travel together."""
        try:
            prompt = self._builder.build(read_request(request))
            stream_id = self._key(request)
            opening = {"stream_id": stream_id, **prompt.opening, "sent_at": self._clock()}
            return stream_id, prompt, self._pool.submit(self._open, compact_json(opening))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's and no other's
            return "", error, None

    def _response(self, stream_id: str, prompt: Prompt | BaseException, sent: Future[None] | None) -> Any:
        pb = self._pb
        try:
            if isinstance(prompt, BaseException):
                raise prompt
            assert sent is not None
            self._wait(sent)
        except OpenRefusedError as refused:
            return pb.InferenceResponse(output_tensors=[], error=refused.triton_error(pb))
        except Exception as error:  # noqa: BLE001 - as above
            log_unexpected(pb, error)
            return pb.InferenceResponse(output_tensors=[], error=triton_error(pb, error))
        arrays = self._inputs.write(stream_id, prompt, self._builder.input_options)
        arrays = self._inputs.with_batch(arrays, batched=self._settings.llm_batched)
        tensors = [pb.Tensor(name, array) for name, array in arrays.items()]
        if self._echoed or not self._renames:
            return pb.InferenceResponse(output_tensors=tensors)
        return pb.InferenceResponse(output_tensors=tensors, parameters={SEQUENCE_PARAMETER: int(stream_id)})

    def _wait(self, sent: Future[None]) -> None:
        seconds = self._settings.open_timeout_s
        try:
            sent.result(timeout=seconds)
        except FutureTimeout:
            sent.cancel()
            found = f"{self._settings.postprocess} has not taken the stream for {seconds:g} s"
            raise UnavailableError("open_timeout_s", found, "try again later") from None

    def _open(self, opening: str) -> None:
        """Tell `postprocess` about a stream; its answer is one FINAL without tensors, or an error."""
        pb: Any = self._pb
        request = pb.InferenceRequest(
            model_name=self._settings.postprocess,
            requested_output_names=[POSTPROCESS.outputs[0].name],
            inputs=[pb.Tensor("open", text_array(opening, shape=(1, 1)))],
        )
        for response in request.exec(decoupled=True):
            if response.has_error():
                raise OpenRefusedError(response.error().message())
