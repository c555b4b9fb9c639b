"""The demonstration as it is shipped: SmolLM2, its tokens through real Triton, by both topologies."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from support.probing import eventually, infer, metric
from support.random_schemas import random_tool
from support.serving import START_S
from support.talking import ask_all
from tristream.backend.deploy.repository import MODEL_VARIABLE
from tristream.backend.deploy.server import TritonServer
from tristream.client import ChatClient
from tristream.parsers import Message, fold

pytestmark = [pytest.mark.llm, pytest.mark.timeout(300)]

ABREAST = 5
SCHEMAS = int(os.environ.get("TRISTREAM_SCHEMAS", "5"))
"""Random schemas that the model is held to; `TRISTREAM_SCHEMAS=50` for the long run."""

both = pytest.mark.parametrize("model", ["chat", "chat_direct"])

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city now", "parameters": SCHEMA},
}
CAPITAL = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 150,
}
CALL = {
    "messages": [{"role": "user", "content": "What is the weather in Paris in celsius?"}],
    "tools": [WEATHER],
    "temperature": 0,
    "max_tokens": 200,
}


@pytest.fixture(scope="module")
def demo(project: Path, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """The models of `model_repository/`, unchanged."""
    server = TritonServer(
        [project / "model_repository"],
        environment={MODEL_VARIABLE: str(demo_model)},
        log_file=tmp_path_factory.mktemp("demo") / "server.log",
    )
    with server:
        server.wait_ready(START_S)
        yield server


def schema_valid_call(message: Message) -> None:
    (call,) = message.tool_calls
    assert (call.name, call.status) == ("get_weather", "complete")
    jsonschema.validate(json.loads(call.arguments), SCHEMA)
    assert call.id.startswith("call_")
    assert message.finish_reason == "tool_calls"
    assert message.reasoning


@both
def test_it_reasons_and_answers_as_it_streams(model: str, demo: TritonServer) -> None:
    with ChatClient(demo.grpc_url, timeout=120) as client:
        deltas = list(client.stream(CAPITAL, model=model))
    message = fold(deltas)
    assert message.reasoning
    assert "Paris" in (message.content or "")
    assert "think>" not in (message.content or "") + message.reasoning
    assert message.finish_reason in ("stop", "length")
    assert len([delta for delta in deltas if delta.reasoning]) > 3
    assert len([delta for delta in deltas if delta.content]) > 3
    assert message.usage is not None
    assert message.usage.prompt_tokens
    assert message.usage.completion_tokens
    assert message.usage.reasoning_tokens
    assert not message.notices


@both
def test_it_calls_a_tool_with_arguments_that_fit_the_schema(model: str, demo: TritonServer) -> None:
    with ChatClient(demo.grpc_url, timeout=120) as client:
        deltas = list(client.stream(CALL, model=model))
    schema_valid_call(fold(deltas))
    fragments = [call.arguments for delta in deltas for call in delta.tool_calls if call.arguments]
    assert len(fragments) > 3, "arguments grow as they are written"


def test_both_topologies_say_the_same(demo: TritonServer) -> None:
    with ChatClient(demo.grpc_url, timeout=120) as client:
        first, second = (client.complete(CAPITAL, model=model) for model in ("chat", "chat_direct"))
    assert (first.reasoning, first.content, first.usage) == (second.reasoning, second.content, second.usage)


def test_chats_that_are_decoded_together_keep_their_own(demo: TritonServer) -> None:
    asked = [(model, body) for model in ("chat", "chat_direct") for body in (CAPITAL, CALL)]
    answers = []
    for message in ask_all(demo.grpc_url, asked):
        assert isinstance(message, Message), message
        answers.append(message)
    for index in (0, 2):
        assert "Paris" in (answers[index].content or "")
        schema_valid_call(answers[index + 1])


@pytest.mark.parametrize("part", range(SCHEMAS // ABREAST))
def test_calls_under_random_schemas_fit_them(part: int, demo: TritonServer) -> None:
    tools = [random_tool(seed) for seed in range(part * ABREAST, (part + 1) * ABREAST)]
    bodies = [
        {
            "messages": [{"role": "user", "content": "Please call the tool with values that you choose."}],
            "tools": [tool],
            "tool_choice": "required"
            if number % 2
            else {"type": "function", "function": {"name": f"tool_{part * ABREAST + number}"}},
            "seed": number,
            "max_tokens": 600,
        }
        for number, tool in enumerate(tools)
    ]
    for tool, message in zip(tools, ask_all(demo.grpc_url, [("chat", body) for body in bodies]), strict=True):
        assert isinstance(message, Message), message
        (call,) = message.tool_calls
        assert (call.name, call.status) == (tool["function"]["name"], "complete")
        assert message.finish_reason in ("tool_calls", "stop")
        jsonschema.validate(json.loads(call.arguments), tool["function"]["parameters"])


@both
def test_hidden_reasoning_is_counted_but_not_sent(model: str, demo: TritonServer) -> None:
    with ChatClient(demo.grpc_url, timeout=120) as client:
        message = client.complete({**CAPITAL, "include_reasoning": False}, model=model)
    assert message.reasoning is None
    assert message.content
    assert message.usage is not None
    assert message.usage.reasoning_tokens


@both
def test_a_cut_answer_says_so(model: str, demo: TritonServer) -> None:
    with ChatClient(demo.grpc_url, timeout=120) as client:
        message = client.complete({**CAPITAL, "max_tokens": 5}, model=model)
    assert message.finish_reason == "length"
    assert message.usage is not None
    assert message.usage.completion_tokens == 5


def test_chat_direct_stops_the_llm_when_its_client_goes(demo: TritonServer) -> None:
    """Free again at once: a chat after 16 that were left, as many as decode together, is not kept waiting."""
    body = {**CAPITAL, "max_tokens": 2000, "ignore_eos": True}
    with ChatClient(demo.grpc_url, timeout=120) as client:
        for _ in range(16):
            with client.stream(body, model="chat_direct") as deltas:
                assert next(deltas)
        eventually(lambda: metric(demo, "tristream_streams_live", model="chat_direct"), lambda live: live == 0)
        started = time.monotonic()
        assert client.complete({**CAPITAL, "max_tokens": 5}, model="chat_direct").finish_reason == "length"
    assert time.monotonic() - started < 20


def test_the_llm_ends_a_stream_on_stop(demo: TritonServer) -> None:
    """By `stream_id`; an unknown one is ignored."""
    answer = infer(demo.grpc_url, "llm", {"stream_id": "unknown", "stop": True})
    assert not answer.responses
    assert not answer.error


@both
def test_a_prompt_longer_than_the_model_s_context(model: str, demo: TritonServer) -> None:
    body = {"messages": [{"role": "user", "content": "many words " * 8192}]}
    answer = infer(demo.grpc_url, model, {"request": json.dumps(body)})
    assert "messages: found a prompt of " in answer.error
    assert "context of 8192" in answer.error


def test_nothing_was_logged_as_an_error_of_ours(demo: TritonServer) -> None:
    assert demo.log_file is not None
    log = demo.log_file.read_text(encoding="utf-8", errors="replace")
    assert "Traceback" not in log
