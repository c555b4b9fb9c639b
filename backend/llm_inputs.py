"""What each kind of LLM backend takes: the other side of `llm_outputs.py`.

Our `llm`, vLLM's backend, TensorRT-LLM's, and its LLM API's. What a backend has no input for is refused before anything
is generated, unless it is what the backend does anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tristream.parsers.errors import RequestError

from .contract import PREPROCESS, TensorSpec
from .llm_outputs import LlmBackend
from .llm_writers import (
    GuideType,
    InputOptions,
    Prompt,
    stop_llmapi,
    stop_tensorrtllm,
    stop_tristream,
    write_llmapi,
    write_tensorrtllm,
    write_tristream,
    write_vllm,
)
from .pb import Array
from .tensors import compact_json

__all__ = [
    "LLM_INPUTS",
    "GuideType",
    "InputOptions",
    "InputWriter",
    "LlmInputs",
    "Prompt",
    "Reach",
    "check_sampling",
    "reaches",
]

Reach: TypeAlias = Literal["always", "direct", "never"]
"""Who can use what a backend offers: everybody, only a direct caller (not a step of an ensemble), nobody."""

InputWriter: TypeAlias = Callable[[str, Prompt, InputOptions], dict[str, Array]]
"""Stream id, prompt, options -> name -> values, without a batch dimension."""


class LlmInputs(NamedTuple):
    """The input side of one kind of backend.

    Args:
        tensors: what is always written, as its own config.pbtxt declares them.
        write: makes them, and those of `guides` where there is a constraint.
        guides: tensors of a constraint that are absent where there is none. A step of an ensemble has every input or
            never runs, so that only a direct caller can send them.
        lacks: members of `sampling` that it has no input for -> the only value they may have.
        constrained: whether it takes constraints; `direct` in `guides`.
        stops: whether a stream that ends by a stop string is seen to end: by what it says, or only by a direct caller.
        bounded: it must be told how many tokens there is room for.
        stop: the inputs that end the stream whose id is the request's id; None: a cancelled call does.
        batched: its tensors have a batch dimension, unless the setting `llm_batched` says otherwise.
    """

    tensors: tuple[TensorSpec, ...]
    write: InputWriter
    guides: tuple[TensorSpec, ...] = ()
    lacks: Mapping[str, Any] = {}
    constrained: Reach = "always"
    stops: Reach = "always"
    bounded: bool = False
    stop: Callable[[str], dict[str, Array]] | None = None
    batched: bool = False

    def with_batch(self, arrays: Mapping[str, Array], *, batched: bool | None = None) -> dict[str, Array]:
        """Written tensors as the model takes them.

        Args:
            arrays: what `write` or `stop` made.
            batched: overrides the table.
        """
        return {name: array[None] for name, array in arrays.items()} if self._is(batched) else dict(arrays)

    def specs(self, *, batched: bool | None = None) -> tuple[TensorSpec, ...]:
        """`tensors` as a model with `max_batch_size: 0` that writes them declares them."""
        front = (1,) if self._is(batched) else ()
        return tuple(replace(spec, dims=(*front, *spec.dims)) for spec in self.tensors)

    def _is(self, batched: bool | None) -> bool:
        return self.batched if batched is None else batched


def check_sampling(backend: LlmBackend, sampling: Mapping[str, Any], *, direct: bool) -> None:
    """Does the backend have an input for all that the request wants?

    Args:
        backend: which.
        sampling: the request's.
        direct: it is called directly, and the end of its responses seen.

    Raises:
        RequestError: it has none; names the member.
    """
    inputs = LLM_INPUTS[backend]
    for name, only in inputs.lacks.items():
        if sampling[name] != only:
            raise RequestError(name, _shown(sampling[name]), f"{_shown(only)}: this LLM's backend has no such input")
    if sampling["stop"] and not reaches(inputs.stops, direct=direct):
        raise RequestError("stop", "stop strings", "none in this ensemble: its LLM does not say that one came")


def reaches(reach: Reach, *, direct: bool) -> bool:
    """Can a direct caller, or a step of an ensemble, use it?"""
    return reach == "always" or (reach == "direct" and direct)


def _shown(value: Any) -> str:
    return compact_json(value)


def _specs(*rows: tuple[str, Any, tuple[int, ...]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, dtype, dims) for name, dtype, dims in rows)


LLM_INPUTS: Final[Mapping[LlmBackend, LlmInputs]] = {
    "tristream": LlmInputs(PREPROCESS.outputs, write_tristream, stop=stop_tristream),
    "vllm": LlmInputs(
        _specs(
            ("text_input", "STRING", (1,)),
            ("stream", "BOOL", (1,)),
            ("sampling_parameters", "STRING", (1,)),
            ("exclude_input_in_output", "BOOL", (1,)),
            ("return_finish_reason", "BOOL", (1,)),
            ("return_logprobs", "BOOL", (1,)),
            ("return_num_input_tokens", "BOOL", (1,)),
            ("return_num_output_tokens", "BOOL", (1,)),
        ),
        write_vllm,
    ),
    "tensorrtllm": LlmInputs(
        _specs(
            ("input_ids", "INT32", (-1,)),
            ("input_lengths", "INT32", (1,)),
            ("request_output_len", "INT32", (1,)),
            ("num_return_sequences", "INT32", (1,)),
            ("end_id", "INT32", (1,)),
            ("stop_words_list", "INT32", (2, -1)),
            ("temperature", "FP32", (1,)),
            ("runtime_top_k", "INT32", (1,)),
            ("runtime_top_p", "FP32", (1,)),
            ("repetition_penalty", "FP32", (1,)),
            ("presence_penalty", "FP32", (1,)),
            ("frequency_penalty", "FP32", (1,)),
            ("seed", "UINT64", (1,)),
            ("exclude_input_in_output", "BOOL", (1,)),
            ("streaming", "BOOL", (1,)),
        ),
        write_tensorrtllm,
        guides=_specs(
            ("guided_decoding_guide_type", "STRING", (1,)),
            ("guided_decoding_guide", "STRING", (1,)),
        ),
        lacks={"min_p": 0.0, "logprobs": False},
        constrained="direct",
        # its responses do not tell a stop word from an answer that goes on (TRITON.md, "LLM backends, unchanged")
        stops="direct",
        bounded=True,
        stop=stop_tensorrtllm,
        batched=True,
    ),
    "llmapi": LlmInputs(
        _specs(
            ("text_input", "STRING", (1,)),
            ("streaming", "BOOL", (1,)),
            ("return_finish_reason", "BOOL", (1,)),
            ("sampling_param_exclude_input_from_output", "BOOL", (1,)),
            ("sampling_param_max_tokens", "INT32", (1,)),
            ("sampling_param_temperature", "FP32", (1,)),
            ("sampling_param_top_k", "INT32", (1,)),
            ("sampling_param_top_p", "FP32", (1,)),
            ("sampling_param_presence_penalty", "FP32", (1,)),
            ("sampling_param_frequency_penalty", "FP32", (1,)),
            ("sampling_param_seed", "UINT64", (1,)),
            ("sampling_param_stop", "STRING", (-1,)),
        ),
        write_llmapi,
        lacks={"min_p": 0.0, "n": 1, "logprobs": False, "repetition_penalty": 1.0, "ignore_eos": False},
        constrained="never",
        bounded=True,
        stop=stop_llmapi,
    ),
}
