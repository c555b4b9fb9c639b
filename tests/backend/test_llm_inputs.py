"""What each kind of LLM backend is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgrammar

from tristream.backend.errors import SettingsError
from tristream.backend.llm_inputs import LLM_INPUTS, InputOptions, Prompt, check_sampling
from tristream.backend.llm_outputs import BACKENDS
from tristream.backend.prompt import PromptBuilder, PromptSettings
from tristream.parsers import RequestError

TAG = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"type": "integer"}}}
SAMPLING: dict[str, Any] = {
    "max_tokens": 7,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 3,
    "min_p": 0.0,
    "seed": 5,
    "stop": ["ab", "c"],
    "n": 2,
    "logprobs": False,
    "top_logprobs": 0,
    "presence_penalty": 0.25,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.5,
    "ignore_eos": False,
}
NEUTRAL = {**SAMPLING, "temperature": 0.0, "seed": None, "stop": [], "n": 1, "max_tokens": None, "top_k": 0}


def encode(text: str) -> list[int]:
    return [ord(each) for each in text]


OPTIONS = InputOptions(encode, (100, 101), "<s>")


def written(backend: Any, sampling: Any = SAMPLING, constraint: Any = None, **options: Any) -> dict[str, Any]:
    prompt = Prompt("<s>Hi", [1, 2, 3], sampling, constraint)
    inputs = LLM_INPUTS[backend]
    return inputs.with_batch(inputs.write("stream", prompt, OPTIONS._replace(**options)))


def text(array: Any) -> str:
    (value,) = array.reshape(-1).tolist()
    return str(value, "utf-8")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sampling", [SAMPLING, NEUTRAL], ids=["set", "neutral"])
def test_what_is_written_is_what_is_declared(backend: Any, sampling: Any) -> None:
    """An ensemble's step has every input or never runs: whatever the request, all are there, of the declared shapes."""
    inputs, arrays = LLM_INPUTS[backend], written(backend, sampling)
    kinds = {"STRING": "O", "BOOL": "b", "INT32": "i", "UINT64": "u", "FP32": "f"}
    assert list(arrays) == [spec.name for spec in inputs.specs()]
    for spec in inputs.specs():
        array = arrays[spec.name]
        assert array.dtype.kind == kinds[spec.dtype], spec.name
        assert len(array.shape) == len(spec.dims), spec.name
        assert all(size in (-1, length) for size, length in zip(spec.dims, array.shape, strict=True)), spec.name


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_setting_decides_on_the_batch_dimension(backend: Any) -> None:
    inputs = LLM_INPUTS[backend]
    prompt = Prompt("Hi", [1], SAMPLING, None)
    arrays = inputs.write("stream", prompt, OPTIONS)
    for batched in (True, False):
        shapes = {name: array.shape for name, array in inputs.with_batch(arrays, batched=batched).items()}
        assert shapes == {name: ((1,) if batched else ()) + array.shape for name, array in arrays.items()}
        dims = {spec.name: spec.dims for spec in inputs.specs(batched=batched)}
        assert all(len(dims[name]) == len(shape) for name, shape in shapes.items())


def test_our_llm() -> None:
    arrays = written("tristream", constraint=TAG)
    assert text(arrays["stream_id"]) == "stream"
    assert arrays["input_ids"].tolist() == [1, 2, 3]
    assert json.loads(text(arrays["sampling"])) == SAMPLING
    assert json.loads(text(arrays["constraint"])) == {"structural_tag": TAG}
    assert text(written("tristream")["constraint"]) == ""


def test_vllm() -> None:
    arrays = written("vllm", {**SAMPLING, "logprobs": True, "top_logprobs": 4}, TAG)
    assert text(arrays["text_input"]) == "Hi", "vLLM's tokenizer writes BOS itself"
    assert arrays["return_logprobs"].tolist() == [True]
    parameters = json.loads(text(arrays["sampling_parameters"]))
    structured = json.loads(parameters.pop("structured_outputs"))
    assert json.loads(structured["structural_tag"]) == TAG
    assert parameters == {
        **{name: value for name, value in SAMPLING.items() if name not in ("logprobs", "top_logprobs")},
        "logprobs": 4,
        "skip_special_tokens": False,
    }


def test_vllm_reads_null_as_its_own_default() -> None:
    parameters = json.loads(text(written("vllm", NEUTRAL)["sampling_parameters"]))
    assert None not in parameters.values()
    assert parameters["max_tokens"] == 2**31 - 1, "its own default is 16"
    assert parameters["top_k"] == -1
    assert {"seed", "stop", "logprobs", "structured_outputs"}.isdisjoint(parameters)


def test_tensorrtllm() -> None:
    arrays = written("tensorrtllm")
    assert {name: array.tolist() for name, array in arrays.items() if array.dtype != np.float32} == {
        "input_ids": [[1, 2, 3]],
        "input_lengths": [[3]],
        "request_output_len": [[7]],
        "num_return_sequences": [[2]],
        "end_id": [[100]],
        "stop_words_list": [[[101, 97, 98, 99], [1, 3, 4, -1]]],
        "runtime_top_k": [[3]],
        "seed": [[5]],
        "exclude_input_in_output": [[True]],
        "streaming": [[True]],
    }
    assert arrays["temperature"].item() == 0.5
    assert arrays["repetition_penalty"].item() == 1.5
    greedy = written("tensorrtllm", {**NEUTRAL, "ignore_eos": True})
    assert greedy["runtime_top_k"].item() == 1
    assert greedy["temperature"].item() == 1
    assert greedy["end_id"].item() == -1
    assert greedy["stop_words_list"].shape == (1, 2, 0)
    assert greedy["seed"].item() != written("tensorrtllm", NEUTRAL)["seed"].item(), "its own default never changes"
    assert written("tensorrtllm", {**SAMPLING, "seed": -1})["seed"].item() == 2**64 - 1


def test_tensorrtllms_guide_is_the_same_grammar() -> None:
    arrays = written("tensorrtllm", constraint=TAG)
    assert text(arrays["guided_decoding_guide_type"]) == "ebnf_grammar"
    read = xgrammar.Grammar.from_ebnf(text(arrays["guided_decoding_guide"]))
    assert str(read) == str(xgrammar.Grammar.from_structural_tag(json.dumps(TAG)))
    arrays = written("tensorrtllm", constraint=TAG, guide_type="structural_tag")
    assert text(arrays["guided_decoding_guide_type"]) == "structural_tag"
    assert json.loads(text(arrays["guided_decoding_guide"])) == TAG


def test_llmapi() -> None:
    arrays = written("llmapi")
    assert text(arrays["text_input"]) == "Hi"
    assert arrays["sampling_param_stop"].tolist() == [b"ab", b"c"]
    assert arrays["sampling_param_max_tokens"].tolist() == [7]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_stop_has_what_the_model_demands(backend: Any) -> None:
    stop = LLM_INPUTS[backend].stop
    assert (stop is None) == (backend == "vllm"), "vLLM's backend ends with the call"
    if stop is not None:
        arrays = stop("stream")
        assert arrays["stop"].tolist() == [True]


@pytest.mark.parametrize(
    ("backend", "members", "field"),
    [
        ("tensorrtllm", {"min_p": 0.5}, "min_p"),
        ("tensorrtllm", {"logprobs": True}, "logprobs"),
        ("tensorrtllm", {"stop": ["a"]}, "stop"),
        ("llmapi", {"n": 2}, "n"),
        ("llmapi", {"repetition_penalty": 1.5}, "repetition_penalty"),
        ("llmapi", {"ignore_eos": True}, "ignore_eos"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(backend: Any, members: Any, field: str) -> None:
    sampling = {**NEUTRAL, "repetition_penalty": 1.0, **members}
    with pytest.raises(RequestError) as caught:
        check_sampling(backend, sampling, direct=False)
    assert caught.value.field == field
    check_sampling("vllm", sampling, direct=False)


def test_a_direct_caller_sees_the_end_that_an_ensemble_does_not() -> None:
    check_sampling("tensorrtllm", {**NEUTRAL, "stop": ["a"]}, direct=True)


CALL = {
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
}


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}, "tools": None}, "response_format.type"),
        ({"tools": [{**CALL["tools"][0], "function": {**CALL["tools"][0]["function"], "strict": True}}]}, "tools"),  # type: ignore[index]
    ],
)
def test_a_constraint_that_nobody_takes_is_refused(qwen3_tokenizer: Path, members: Any, field: str) -> None:
    template = Path(__file__).parents[2] / "model_repository" / "preprocess" / "chat_template.jinja"
    settings = {"tokenizer": qwen3_tokenizer, "chat_template": template}
    body = json.dumps({**CALL, **members})
    for backend, direct in (("llmapi", True), ("llmapi", False), ("tensorrtllm", False)):
        refusing = PromptBuilder(PromptSettings(llm_backend=backend, **settings), direct=direct)  # type: ignore[arg-type]
        with pytest.raises(RequestError) as caught:
            refusing.build(body)
        assert caught.value.field == field
        refusing.build(json.dumps(CALL))
        free = PromptBuilder(PromptSettings(llm_backend=backend, constraints=False, **settings), direct=direct)  # type: ignore[arg-type]
        assert free.build(body).constraint is None
        for name, value in (("tool_strict_level", "function"), ("max_reasoning_tokens", 5), ("auto_tools", "call")):
            holding: dict[str, Any] = {name: value, **settings}
            with pytest.raises(SettingsError, match=name):
                PromptBuilder(PromptSettings(llm_backend=backend, **holding), direct=direct)  # type: ignore[arg-type]
    for backend, direct in (("vllm", False), ("tensorrtllm", True)):
        builder = PromptBuilder(PromptSettings(llm_backend=backend, **settings), direct=direct)  # type: ignore[arg-type]
        prompt = builder.build(body)
        assert prompt.constraint is not None
        LLM_INPUTS[backend].write("stream", prompt, builder.input_options)  # type: ignore[index]
