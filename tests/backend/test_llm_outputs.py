"""Responses of the four kinds of LLM backends, as streams read them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tristream.backend.llm_outputs import BACKENDS, OutputReader, ReaderOptions, Said, read_meta


def texts(*values: str) -> Any:
    return np.array([[value.encode() for value in values]], np.object_)


def numbers(*values: int, dtype: Any = np.int32) -> Any:
    return np.array([values], dtype)


def reader(backend: Any, **options: Any) -> OutputReader:
    return BACKENDS[backend].make(ReaderOptions(**options))


def vllm(*parts: str, reasons: tuple[str, ...] = ("None",), **more: Any) -> dict[str, Any]:
    return {"text_output": texts(*parts), "finish_reason": texts(*reasons), **more}


def test_our_llm_needs_no_state() -> None:
    assert reader("tristream") is reader("tristream", choices=3)
    meta = texts(json.dumps({"finish_reason": "stop", "choice_index": "x", "last": True}))
    assert reader("tristream").read({"token_ids": numbers(1, 2), "meta": meta}) == [
        Said([1, 2], {"finish_reason": "stop", "last": True})
    ]
    assert reader("tristream").read({"token_ids": numbers(1), "meta": texts("")}) == [Said([1], {})]
    assert reader("tristream").end() == []


@pytest.mark.parametrize("meta", ["[", "[]", "3", "[" * 5000])
def test_meta_that_is_none(meta: str) -> None:
    assert read_meta(meta) == {}


def test_vllm_sends_what_is_new() -> None:
    stream = reader("vllm")
    assert stream.read(vllm("He")) == [Said((), {"text": "He"})]
    assert stream.read(vllm("")) == []
    last = vllm("llo", reasons=("stop",), num_input_tokens=np.array(7, np.uint32), num_output_tokens=numbers(3))
    assert stream.read(last) == [
        Said(
            (),
            {"text": "llo", "finish_reason": "stop", "completion_tokens": 3, "prompt_tokens": 7, "new_tokens": 3},
        )
    ]
    assert stream.read(vllm("more", reasons=("stop",))) == []
    assert stream.end() == []


def test_vllm_counts_each_choice() -> None:
    stream = reader("vllm", choices=2)
    stream.read(vllm("a", "b", reasons=("None", "None"), num_output_tokens=numbers(2, 1, dtype=np.uint32)))
    said = stream.read(vllm("", "c", reasons=("length", "None"), num_output_tokens=numbers(1, 1, dtype=np.uint32)))
    assert said == [
        Said((), {"text": "", "finish_reason": "length", "completion_tokens": 3, "new_tokens": 1}),
        Said((), {"text": "c", "new_tokens": 1, "choice_index": 1}),
    ]
    assert stream.read(vllm("x", "y", "z", reasons=("length", "stop", "stop"))) == [
        Said((), {"text": "y", "finish_reason": "stop", "completion_tokens": 2, "choice_index": 1})
    ]


def test_vllm_s_counts_wait_for_the_text_of_their_tokens() -> None:
    stream = reader("vllm")
    assert stream.read(vllm("", num_output_tokens=numbers(2))) == []
    assert stream.read(vllm("𓀀", num_output_tokens=numbers(1))) == [Said((), {"text": "𓀀", "new_tokens": 3})]
    assert stream.read(vllm("x", num_output_tokens=numbers(1))) == [Said((), {"text": "x", "new_tokens": 1})]


def test_vllm_keys_log_probabilities_by_id() -> None:
    places = [
        {
            "5": {"logprob": -0.5, "rank": 2, "decoded_token": "é"},
            "9": {"logprob": -0.1, "rank": 1, "decoded_token": "a"},
        },
        {"6": {"logprob": float("-inf"), "rank": 40, "decoded_token": None}},
    ]
    said = reader("vllm", top_logprobs=1).read(vllm("éx", logprobs=texts(json.dumps(places))))
    assert said[0].token_ids == (5, 6)
    assert said[0].step["logprobs"] == [
        {
            "token": "é",
            "logprob": -0.5,
            "bytes": [195, 169],
            "top_logprobs": [{"token": "a", "logprob": -0.1, "bytes": [97]}],
        },
        {"token": "", "logprob": -9999.0, "bytes": [], "top_logprobs": []},
    ]


@pytest.mark.parametrize("broken", ["", "null", "{}", "[1]", '[{"x": {}}]', '[{"1": {"rank": 1}}]', "[{}]"])
def test_vllm_log_probabilities_that_are_none(broken: str) -> None:
    assert reader("vllm").read(vllm("a", logprobs=texts(broken))) == [Said((), {"text": "a"})]


def test_llm_api_sends_everything_each_time() -> None:
    stream = reader("llmapi")
    told = [
        stream.read({"text_output": texts(text), "finish_reason": texts(reason)})
        for text, reason in (("Z", "None"), ("Z\ufffd", ""), ("Zü", "None"), ("Zü\ufffd", "stop"), ("Züü", "stop"))
    ]
    assert [said for each in told for said in each] == [
        Said((), {"text": "Z"}),
        Said((), {"text": "ü"}),
        Said((), {"text": "\ufffd", "finish_reason": "stop"}),
    ]
    assert stream.end() == []


def ids(*beams: tuple[int, ...], length: int | None = None, **more: Any) -> dict[str, Any]:
    lengths = [length if length is not None else len(beam) for beam in beams]
    return {"output_ids": np.array([beams], np.int32), "sequence_length": numbers(*lengths), **more}


def test_tensorrt_llm_pads_and_has_beams() -> None:
    stream = reader("tensorrtllm", end_ids=(2,), max_tokens=10)
    assert stream.read(ids((7, 8, 0), (9, 9, 9), length=2)) == [Said([7, 8])]
    assert stream.read(ids((5,), length=0)) == []
    assert stream.read({"sequence_length": numbers(0)}) == []
    assert stream.read(ids((6, 2, 6))) == [Said([6], {"finish_reason": "stop"})]
    assert stream.read(ids((6,))) == []
    assert stream.end() == []


def test_tensorrt_llm_ends_by_count() -> None:
    stream = reader("tensorrtllm", end_ids=(2,), max_tokens=3)
    assert stream.read(ids((7, 8))) == [Said([7, 8])]
    assert stream.read(ids((9,))) == [Said([9], {"finish_reason": "length"})]


def test_tensorrt_llm_ends_by_its_clock() -> None:
    stream = reader("tensorrtllm")
    running, over = numbers(0, dtype=np.int64), numbers(123, dtype=np.int64)
    assert stream.read(ids((7,), last_token_time_ns=running)) == [Said([7])]
    assert stream.read(ids((8,), last_token_time_ns=over)) == [Said([8], {"finish_reason": "stop"})]


def test_tensorrt_llm_ends_with_its_responses() -> None:
    stream = reader("tensorrtllm", choices=2)
    assert stream.read(ids((7,), sequence_index=numbers(1))) == [Said([7], {"choice_index": 1})]
    assert stream.read(ids((7,), sequence_index=numbers(2))) == []
    assert stream.end() == [
        Said((), {"finish_reason": "stop"}),
        Said((), {"choice_index": 1, "finish_reason": "stop"}),
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_response_that_says_nothing(backend: str) -> None:
    nonsense = {name: np.array([], np.object_) for name in ("text_output", "finish_reason", "output_ids", "meta")}
    for outputs in ({}, nonsense):
        assert all(not said.token_ids and not said.step for said in reader(backend).read(outputs))
