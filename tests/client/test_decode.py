"""Tensors -> MessageDelta, from the bytes of Triton's messages."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tristream.backend.contract import MESSAGE_OUTPUTS
from tristream.client.decode import TensorError, decode_delta, pack_strings
from tristream.parsers import MessageDelta, Notice, ToolCallDelta, Usage


def response(**outputs: list[str] | list[int]) -> Any:
    """A `ModelInferResponse` with these outputs, each [1, k]."""
    message = service_pb2.ModelInferResponse(model_name="chat")
    for name, values in outputs.items():
        texts = [value.encode() for value in values if isinstance(value, str)]
        integers = [value for value in values if isinstance(value, int)]
        datatype = "BYTES" if texts or not integers else "INT32"
        message.outputs.add(name=name, datatype=datatype, shape=[1, len(values)])
        raw = pack_strings(texts) if datatype == "BYTES" else struct.pack(f"<{len(integers)}i", *integers)
        message.raw_output_contents.append(raw)
    return message


def test_flags_only_says_nothing() -> None:
    assert decode_delta(response()) is None


def test_every_output_of_the_contract_is_read() -> None:
    full = response(
        content=["Grüße \x00 日本"],
        reasoning=["hm"],
        tool_call_index=[0, 3],
        tool_call_id=["call_1", ""],
        tool_call_name=["f", ""],
        tool_call_arguments=["{", '"a"'],
        tool_call_status=["", "invalid"],
        finish_reason=["tool_calls"],
        usage=['{"prompt_tokens": 3, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 1}}'],
        notices=['[{"code": "stray_marker", "count": 2, "offset": 7}]'],
        choice_index=[2],
        token_ids=[1, -1, 151668],
        logprobs=['{"content": [{"token": "a", "logprob": -0.5}], "reasoning": [{"token": "b", "logprob": -1}]}'],
    )
    assert {output.name for output in full.outputs} == {spec.name for spec in MESSAGE_OUTPUTS}
    assert decode_delta(full) == MessageDelta(
        reasoning="hm",
        content="Grüße \x00 日本",
        tool_calls=(
            ToolCallDelta(0, "call_1", "f", "{", None),
            ToolCallDelta(3, None, None, '"a"', "invalid"),
        ),
        finish_reason="tool_calls",
        usage=Usage(3, 4, 1),
        notices=(Notice("stray_marker", 2, 7),),
        token_ids=(1, -1, 151668),
        logprobs=({"token": "a", "logprob": -0.5},),
        choice_index=2,
        reasoning_logprobs=({"token": "b", "logprob": -1},),
    )


def test_absent_columns_of_calls_bring_nothing() -> None:
    assert decode_delta(response(tool_call_index=[1], tool_call_arguments=["x"])) == MessageDelta(
        tool_calls=(ToolCallDelta(1, arguments="x"),)
    )
    assert decode_delta(response(tool_call_index=[1, 2], tool_call_status=["complete", "complete"])) == MessageDelta(
        tool_calls=(ToolCallDelta(1, status="complete"), ToolCallDelta(2, status="complete"))
    )


def test_several_columns_of_text_are_one_text() -> None:
    assert decode_delta(response(content=["a", "b"])) == MessageDelta(content="ab")


def test_unknown_outputs_beside_known_ones_are_left_out() -> None:
    assert decode_delta(response(content=["a"], from_the_future=["b"])) == MessageDelta(content="a")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_strings_survive(texts: list[str]) -> None:
    delta = decode_delta(response(content=texts))
    assert delta is not None
    assert (delta.content or "") == "".join(texts)


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ({"text_output": ["x"]}, "none of them is an output of a chat model"),
        ({"content": [1]}, "dtype INT32, expected BYTES"),
        ({"token_ids": ["x"]}, "dtype BYTES, expected INT32"),
        ({"tool_call_index": [1], "tool_call_id": ["a", "b"]}, "2 values, but 'tool_call_index' has 1"),
        ({"usage": ["{"]}, "'usage': no JSON"),
        ({"usage": ["[]"]}, "'usage': no JSON object"),
        ({"notices": ["{}"]}, "'notices': no JSON list"),
        ({"notices": ["[{}]"]}, "without code, count or offset"),
        ({"logprobs": ["nan{"]}, "'logprobs': no JSON"),
    ],
)
def test_other_tensors_are_named(outputs: dict[str, Any], said: str) -> None:
    with pytest.raises(TensorError, match="output") as caught:
        decode_delta(response(**outputs))
    assert said in str(caught.value)


@pytest.mark.parametrize("raw", [b"\x01", b"\x05\x00\x00\x00ab", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00\x01"])
def test_broken_string_bytes_are_an_error_not_a_crash(raw: bytes) -> None:
    message = response(content=["x"])
    message.raw_output_contents[0] = raw
    with pytest.raises(TensorError, match="'content'"):
        decode_delta(message)


def test_broken_integer_bytes_and_missing_contents() -> None:
    message = response(token_ids=[1])
    message.raw_output_contents[0] = b"\x01\x02\x03"
    with pytest.raises(TensorError, match="3 bytes are no INT32"):
        decode_delta(message)
    del message.raw_output_contents[:]
    with pytest.raises(TensorError, match="no raw contents"):
        decode_delta(message)


def test_bytes_that_are_no_utf8_cost_a_character_only() -> None:
    message = response(content=["x"])
    message.raw_output_contents[0] = pack_strings((b"a\xffb",))
    assert decode_delta(message) == MessageDelta(content="a�b")
