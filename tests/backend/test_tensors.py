from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tristream.backend.contract import MESSAGE_OUTPUTS
from tristream.backend.tensors import (
    compact_json,
    encode_text,
    input_tensors,
    ints_tensor,
    message_tensors,
    read_flag,
    read_ints,
    read_text,
    text_tensor,
)
from tristream.parsers.errors import RequestError
from tristream.parsers.events import Notice
from tristream.parsers.message import MessageDelta, ToolCallDelta, Usage

DTYPES = {"STRING": np.object_, "INT32": np.int32}


def values(tensors: list[Any]) -> dict[str, list[Any]]:
    specs = {spec.name: spec for spec in MESSAGE_OUTPUTS}
    found = {}
    for tensor in tensors:
        array = tensor.as_numpy()
        assert array.dtype == DTYPES[specs[tensor.name()].dtype]
        assert array.shape[0] == 1
        assert array.ndim == 2
        assert array.flags.c_contiguous
        found[tensor.name()] = [v.decode() if isinstance(v, bytes) else v for v in array[0].tolist()]
    return found


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("héllo", "héllo"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude00", "😀"),  # two escapes of JSON that were meant as one character
        ("x\ud83d", "x\ufffd"),
        ("", ""),
    ],
)
def test_text_is_always_utf8(text: str, encoded: str) -> None:
    assert encode_text(text).decode() == encoded


@given(st.text(st.characters()))
def test_any_text_encodes(text: str) -> None:
    encode_text(text).decode()
    encode_text(compact_json({"x": text})).decode()


def test_only_what_carries_something_is_sent(pb: Any) -> None:
    assert message_tensors(pb, MessageDelta()) == []
    assert values(message_tensors(pb, MessageDelta(content="a"))) == {"content": ["a"]}
    assert message_tensors(pb, MessageDelta(choice_index=1)) == []
    delta = MessageDelta(reasoning="r", content="c", choice_index=2)
    assert values(message_tensors(pb, delta)) == {"reasoning": ["r"], "content": ["c"], "choice_index": [2]}


def test_a_whole_delta(pb: Any) -> None:
    delta = MessageDelta(
        tool_calls=(
            ToolCallDelta(0, arguments="}", status="complete"),
            ToolCallDelta(1, "call_1", "search", '{"q'),
        ),
        finish_reason="tool_calls",
        usage=Usage(3, 5, 2),
        notices=(Notice("unknown_tool", 1, 17),),
        token_ids=(4, 2),
        logprobs=({"token": "é", "logprob": -0.5},),
        reasoning_logprobs=({"token": "r", "logprob": -1.0},),
    )
    found = values(message_tensors(pb, delta))
    assert json.loads(found.pop("usage")[0]) == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert json.loads(found.pop("notices")[0]) == [{"code": "unknown_tool", "count": 1, "offset": 17}]
    assert json.loads(found.pop("logprobs")[0]) == {
        "content": [{"token": "é", "logprob": -0.5}],
        "reasoning": [{"token": "r", "logprob": -1.0}],
    }
    assert found == {
        "tool_call_index": [0, 1],
        "tool_call_id": ["", "call_1"],
        "tool_call_name": ["", "search"],
        "tool_call_arguments": ["}", '{"q'],
        "tool_call_status": ["complete", ""],
        "finish_reason": ["tool_calls"],
        "token_ids": [4, 2],
    }


def test_arguments_alone_are_two_tensors(pb: Any) -> None:
    delta = MessageDelta(tool_calls=(ToolCallDelta(0, arguments="x"),))
    assert values(message_tensors(pb, delta)) == {"tool_call_index": [0], "tool_call_arguments": ["x"]}


def test_reading(pb: Any) -> None:
    inputs = input_tensors(pb.request({"stream_id": "é", "token_ids": [1, 2], "stop": True}))
    assert read_text(inputs["stream_id"]) == "é"
    assert read_ints(inputs["token_ids"]) == [1, 2]
    assert read_flag(inputs["stop"]) is True
    assert read_text(pb.Tensor("x", np.array(["text"], np.object_))) == "text"
    assert read_ints(ints_tensor(pb, "x", [])) == []


def test_what_cannot_be_read_is_named(pb: Any) -> None:
    with pytest.raises(RequestError, match="request: found a byte that is not UTF-8 at offset 1; allowed: UTF-8"):
        read_text(pb.Tensor("request", np.array([b"a\xff"], np.object_)))
    with pytest.raises(RequestError, match="request: found 2 elements; allowed: exactly one"):
        read_text(text_tensor(pb, "request", ["a", "b"]))
    with pytest.raises(RequestError, match="request: found datatype int32"):
        read_text(ints_tensor(pb, "request", [1]))
    with pytest.raises(RequestError, match="body: found datatype object; allowed: INT32"):
        read_ints(text_tensor(pb, "request", ["1"]), field="body")
    with pytest.raises(RequestError, match="stop: found 2 elements"):
        read_flag(pb.Tensor("stop", np.array([True, False])))


def test_what_the_llm_says_is_read_leniently(pb: Any) -> None:
    assert read_text(pb.Tensor("meta", np.array([b"a\xff"], np.object_)), lenient=True) == "a\ufffd"
