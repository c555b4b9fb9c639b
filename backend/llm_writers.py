"""The input tensors of an LLM's backend, made from a checked request: one writer for each kind of backend.

Each has its backend's own names and types (TRITON.md, "LLM backends, unchanged"), without a batch dimension. Which is
whose, and what each cannot do, stands in `llm_inputs.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from .pb import Array
from .tensors import compact_json, flag_array, ints_array, text_array

__all__ = [
    "GuideType",
    "InputOptions",
    "Prompt",
    "stop_llmapi",
    "stop_tensorrtllm",
    "stop_tristream",
    "write_llmapi",
    "write_tensorrtllm",
    "write_tristream",
    "write_vllm",
]

GuideType: TypeAlias = Literal["ebnf_grammar", "structural_tag"]
"""How TensorRT-LLM is told a constraint; its C++ backend knows the first, later ones the second as well."""

MAX_TOKENS: Final = 2**31 - 1
"""Where nobody knows the context: vLLM's backend reads null as "the default", which is 16; it ends at its own bound."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A checked request, ready for the LLM.

    Args:
        text: the rendered prompt.
        input_ids: the same as token ids.
        sampling: every member of `engines.base.Sampling`.
        constraint: structural tag that the output is held to; None holds nothing.
        opening: the `open` message as a mapping, without `stream_id`.
    """

    text: str
    input_ids: Sequence[int]
    sampling: Mapping[str, Any]
    constraint: Mapping[str, Any] | None
    opening: Mapping[str, Any] = field(default_factory=dict)


class InputOptions(NamedTuple):
    """What a writer must know of the model.

    Args:
        encode: text -> token ids, without BOS.
        end_ids: tokens that end an answer.
        bos: text of the token that the backend's tokenizer puts before every prompt; "" if it puts none.
        guide_type: how TensorRT-LLM is told a constraint.
    """

    encode: Callable[[str], Sequence[int]]
    end_ids: Sequence[int] = ()
    bos: str = ""
    guide_type: GuideType = "ebnf_grammar"


def write_tristream(stream_id: str, prompt: Prompt, _: InputOptions) -> dict[str, Array]:
    """Our `llm`: JSON for what is no array."""
    constraint = "" if prompt.constraint is None else compact_json({"structural_tag": prompt.constraint})
    return {
        "stream_id": text_array(stream_id),
        "input_ids": ints_array(prompt.input_ids),
        "sampling": text_array(compact_json(prompt.sampling)),
        "constraint": text_array(constraint),
    }


def stop_tristream(stream_id: str) -> dict[str, Array]:
    """Our `llm` is told the stream by its id."""
    return {"stream_id": text_array(stream_id), "stop": flag_array(True)}


def write_vllm(_: str, prompt: Prompt, options: InputOptions) -> dict[str, Array]:
    """vLLM's backend: text, and JSON of its `SamplingParams`."""
    sampling = prompt.sampling
    parameters: dict[str, Any] = {
        name: sampling[name]
        for name in (
            "temperature",
            "top_p",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "ignore_eos",
            "n",
        )
    }
    parameters["max_tokens"] = sampling["max_tokens"] or MAX_TOKENS
    parameters["top_k"] = sampling["top_k"] or -1
    # else it drops the markers, and with them the calls
    parameters["skip_special_tokens"] = False
    if sampling["seed"] is not None:
        parameters["seed"] = sampling["seed"]
    if sampling["stop"]:
        parameters["stop"] = sampling["stop"]
    if sampling["logprobs"]:
        parameters["logprobs"] = sampling["top_logprobs"]
    if prompt.constraint is not None:
        # JSON in JSON, and the structural tag JSON in that
        parameters["structured_outputs"] = compact_json({"structural_tag": compact_json(prompt.constraint)})
    return {
        "text_input": text_array(prompt.text.removeprefix(options.bos)),
        "stream": flag_array(True),
        "sampling_parameters": text_array(compact_json(parameters)),
        "exclude_input_in_output": flag_array(True),
        "return_finish_reason": flag_array(True),
        "return_logprobs": flag_array(sampling["logprobs"]),
        "return_num_input_tokens": flag_array(True),
        "return_num_output_tokens": flag_array(True),
    }


def write_tensorrtllm(_: str, prompt: Prompt, options: InputOptions) -> dict[str, Array]:
    """TensorRT-LLM's C++ backend: a tensor for every parameter."""
    sampling = prompt.sampling
    ends = [] if sampling["ignore_eos"] else list(options.end_ids)
    greedy = sampling["temperature"] == 0
    words = [[end] for end in ends[1:]] + [list(options.encode(text)) for text in sampling["stop"]]
    tensors = {
        "input_ids": ints_array(prompt.input_ids),
        "input_lengths": _number(len(prompt.input_ids)),
        "request_output_len": _number(sampling["max_tokens"] or MAX_TOKENS),
        "num_return_sequences": _number(sampling["n"]),
        "end_id": _number(ends[0] if ends else -1),
        "stop_words_list": _word_list(words),
        "temperature": _real(1.0 if greedy else sampling["temperature"]),
        "runtime_top_k": _number(1 if greedy else sampling["top_k"]),
        "runtime_top_p": _real(sampling["top_p"]),
        "repetition_penalty": _real(sampling["repetition_penalty"]),
        "presence_penalty": _real(sampling["presence_penalty"]),
        "frequency_penalty": _real(sampling["frequency_penalty"]),
        "seed": _seed(sampling["seed"]),
        "exclude_input_in_output": flag_array(True),
        "streaming": flag_array(True),
    }
    if prompt.constraint is not None:
        tensors["guided_decoding_guide_type"] = text_array(options.guide_type)
        tensors["guided_decoding_guide"] = text_array(_guide(prompt.constraint, options.guide_type))
    return tensors


def stop_tensorrtllm(_: str) -> dict[str, Array]:
    """It knows the request by its request id."""
    # the first three are not optional in its config.pbtxt
    numbers = {"input_ids": 0, "input_lengths": 1, "request_output_len": 1}
    return {**{name: _number(value) for name, value in numbers.items()}, "stop": flag_array(True)}


def write_llmapi(_: str, prompt: Prompt, options: InputOptions) -> dict[str, Array]:
    """TensorRT-LLM's LLM API: text, and a tensor for every parameter."""
    sampling = prompt.sampling
    greedy = sampling["temperature"] == 0
    return {
        "text_input": text_array(prompt.text.removeprefix(options.bos)),
        "streaming": flag_array(True),
        "return_finish_reason": flag_array(True),
        "sampling_param_exclude_input_from_output": flag_array(True),
        "sampling_param_max_tokens": _number(sampling["max_tokens"] or MAX_TOKENS),
        "sampling_param_temperature": _real(1.0 if greedy else sampling["temperature"]),
        "sampling_param_top_k": _number(1 if greedy else sampling["top_k"]),
        "sampling_param_top_p": _real(sampling["top_p"]),
        "sampling_param_presence_penalty": _real(sampling["presence_penalty"]),
        "sampling_param_frequency_penalty": _real(sampling["frequency_penalty"]),
        "sampling_param_seed": _seed(sampling["seed"]),
        "sampling_param_stop": text_array(*sampling["stop"]),
    }


def stop_llmapi(_: str) -> dict[str, Array]:
    """It knows the request by its request id."""
    return {"text_input": text_array(""), "stop": flag_array(True)}


def _guide(constraint: Mapping[str, Any], guide_type: GuideType) -> str:
    tag = compact_json(constraint)
    if guide_type == "structural_tag":
        return tag
    # here, not above: it loads torch, which only this backend's users pay for
    from xgrammar import Grammar

    return str(Grammar.from_structural_tag(tag))


def _word_list(words: Sequence[Sequence[int]]) -> Array:
    """TensorRT-LLM's list of token sequences: the tokens of all, and where each ends; padded with 0 and -1."""
    flat = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words], dtype=np.int32).tolist()
    return np.asarray([flat, ends + [-1] * (len(flat) - len(ends))], np.int32)


def _number(value: int) -> Array:
    return ints_array((value,))


def _real(value: float) -> Array:
    return np.array([value], np.float32)


def _seed(value: int | None) -> Array:
    """TensorRT-LLM's own default is one and the same seed for every request."""
    return np.array([secrets.randbits(63) if value is None else value % 2**64], np.uint64)
