"""Requests that cannot be served: INVALID_ARG or UNAVAILABLE before anything is generated, in words that help."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from support.probing import Answer, infer, infer_unary, post
from support.serving import TIGHT_CONTEXT, TIGHT_STREAMS, ReplayServer
from support.talking import collect, talk
from support.vectors import chat_body
from tristream.client import AsyncChatClient, ChatClient, RequestRefused, Retries, ServerBusy
from tristream.parsers import fold

both = pytest.mark.parametrize("model", ["chat", "chat_direct"])

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def body(**members: Any) -> str:
    return json.dumps({"messages": HELLO, **members})


def tool(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


# What is wrong -> the request, and what the answer must name: the field, what was found, what is allowed.
BAD: dict[str, tuple[str | bytes, tuple[str, str, str]]] = {
    "empty": ("", ("request", "found", "JSON")),
    "not JSON": ("{'messages': []}", ("request", "found", "JSON")),
    "JSON cut short": ('{"messages": [', ("request", "found", "JSON")),
    "not UTF-8": (b'{"messages": "\xff"}', ("request", "UTF-8", "UTF-8")),
    "NaN": ('{"messages": NaN}', ("request", "NaN", "JSON")),
    "nested too deep": (body(metadata=0).replace("0", "[" * 100_000 + "]" * 100_000), ("request", "nesting", "levels")),
    "a list": ("[]", ("request", "array", "object")),
    "messages of another type": (json.dumps({"messages": "Hello"}), ("messages", '"Hello"', "a list")),
    "a message of another type": (json.dumps({"messages": ["Hello"]}), ("messages[0]", '"Hello"', "an object")),
    "an unknown role": (
        json.dumps({"messages": [{"role": "bot", "content": "x"}]}),
        ("messages[0].role", '"bot"', "user"),
    ),
    "content of another type": (
        json.dumps({"messages": [{"role": "user", "content": 5}]}),
        ("messages[0].content", "5", "a string"),
    ),
    "max_tokens of another type": (body(max_tokens="many"), ("max_tokens", '"many"', "whole number")),
    "temperature out of range": (body(temperature=-1), ("temperature", "-1", "0")),
    "stream of another type": (body(stream="yes"), ("stream", '"yes"', "true or false")),
    "tools of another type": (body(tools={}), ("tools", "{}", "a list")),
    "include_reasoning of another type": (body(include_reasoning=1), ("include_reasoning", "1", "true or false")),
    "messages missing": ("{}", ("messages", "nothing", "at least one")),
    "messages empty": (json.dumps({"messages": []}), ("messages", "empty", "at least one")),
    "an unknown format": (body(format="qwen9"), ("format", "qwen9", "hermes")),
    "tool_choice required without tools": (body(tool_choice="required"), ("tool_choice", "required", "auto")),
    "tool_choice named without tools": (body(tool_choice=named("f")), ("tool_choice", "f", "auto")),
    "tool_choice naming an undeclared tool": (
        body(tools=[WEATHER], tool_choice=named("get_time")),
        ("tool_choice.function.name", "get_time", "get_weather"),
    ),
    "tool_choice that is no choice": (body(tools=[WEATHER], tool_choice="maybe"), ("tool_choice", "maybe", "required")),
    "a schema that is text": (body(tools=[tool("object")]), ("tools[0].function.parameters", '"object"', "schema")),
    "a schema with an unknown type": (
        body(tools=[tool({"type": "objekt"})]),
        ("tools[0].function.parameters", "objekt", "object"),
    ),
    "a schema with properties that are none": (
        body(tools=[tool({"type": "object", "properties": {"city": 5}})]),
        ("tools[0].function.parameters.properties.city", "5", "schema"),
    ),
    "a schema that refers to nothing": (
        body(tools=[tool({"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}})]),
        ("tools[0].function.parameters", "#/$defs/city", "allowed"),
    ),
    "the chat template itself": (
        body(chat_template_kwargs={"chat_template": "{{ 7 * 7 }}"}),
        ("chat_template_kwargs.chat_template", "7 * 7", "enable_thinking"),
    ),
    "a variable that the template does not read": (
        body(chat_template_kwargs={"colour": "red"}),
        ("chat_template_kwargs.colour", "red", "enable_thinking"),
    ),
    "the renderer's own arguments": (
        body(chat_template_kwargs={"tokenize": True}),
        ("chat_template_kwargs.tokenize", "true", "enable_thinking"),
    ),
    "too many answers": (body(n=1000), ("n", "1000", "max_choices")),
    "over the bound": (
        body(messages=[{"role": "user", "content": "x" * (4 << 20)}]),
        ("request", "bytes", "max_request_bytes"),
    ),
}
bad = pytest.mark.parametrize(("request_text", "words"), BAD.values(), ids=BAD)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_generated(replay: ReplayServer) -> Iterator[None]:
    """Every refusal of this file comes before the LLM, whose journal would name a prompt that tells it nothing."""
    yield
    assert not replay.ended("no directive", 0)


def assert_clear(answer: Answer, words: Sequence[str]) -> None:
    """An error of gRPC that names what is in `words`, without anything that a client should not see."""
    assert not answer.responses
    assert answer.code == "OK", answer
    for word in words:
        assert word in answer.error, answer.error
    assert_harmless(answer.error)


def assert_harmless(text: str) -> None:
    """No traceback, no path, no wall of text reaches a client."""
    for word in ("Traceback", 'File "', "site-packages", ".py", "0x"):
        assert word not in text, text
    assert len(text) < 1000, text


def status_and_text(replay: ReplayServer, model: str, request_text: str) -> tuple[int, str]:
    """HTTP tells the error's code by its status: 400 is INVALID_ARG, 503 UNAVAILABLE."""
    return post(f"{replay.server.http_url}/v2/models/{model}/generate_stream", {"request": request_text})


@both
@bad
def test_it_is_refused_with_invalid_arg(
    model: str, request_text: str | bytes, words: tuple[str, str, str], replay: ReplayServer
) -> None:
    answer = infer(replay.grpc_url, model, {"request": request_text})
    assert_clear(answer, (*words, "found", "allowed"))
    if isinstance(request_text, str):
        status, text = status_and_text(replay, model, request_text)
        assert status == 400
        assert_harmless(text)
        assert json.loads(text.removeprefix("data: "))["error"] == answer.error


@both
def test_generate_answers_like_generate_stream(model: str, replay: ReplayServer) -> None:
    status, text = post(f"{replay.server.http_url}/v2/models/{model}/generate", {"request": "{}"})
    assert status == 400
    assert "messages: found nothing; allowed: " in text


@both
def test_the_client_s_error_carries_the_text(model: str, replay: ReplayServer) -> None:
    with ChatClient(replay.grpc_url, timeout=30) as client, pytest.raises(RequestRefused) as caught:
        client.complete({"messages": HELLO, "format": "qwen9"}, model=model)
    assert "format" in str(caught.value)
    assert "qwen9" in str(caught.value)


@both
def test_a_prompt_longer_than_the_context(model: str, replay: ReplayServer) -> None:
    text = body(messages=[{"role": "user", "content": "many words " * TIGHT_CONTEXT}])
    answer = infer(replay.grpc_url, f"{model}_tight", {"request": text})
    assert_clear(answer, ("messages", "tokens", f"context of {TIGHT_CONTEXT}"))


@both
def test_more_tokens_than_the_context_has_room_for(model: str, replay: ReplayServer) -> None:
    answer = infer(replay.grpc_url, f"{model}_tight", {"request": body(max_tokens=TIGHT_CONTEXT)})
    assert_clear(answer, ("max_tokens", str(TIGHT_CONTEXT), "context"))


@both
def test_a_full_table_refuses_and_names_the_limit(model: str, replay: ReplayServer) -> None:
    """A further stream is refused, by preprocess in an ensemble; the live ones go on, and then there is room again."""
    tight = f"{model}_tight"
    text = "One after the other, and nobody is thrown out."
    paced = chat_body({"text": text, "delay_ms": 150, "gate": [tight, TIGHT_STREAMS]}, format="qwen3")

    async def conversation(client: AsyncChatClient) -> tuple[list[Any], Answer, ServerBusy]:
        streams = [client.stream(paced, model=tight) for _ in range(TIGHT_STREAMS)]
        firsts = await asyncio.gather(*(anext(stream) for stream in streams))
        # while all of them run
        answer = await asyncio.to_thread(infer, replay.grpc_url, tight, {"request": body()})
        if model == "chat":  # called by itself, preprocess shows the error's code
            direct = await asyncio.to_thread(infer_unary, replay.grpc_url, "preprocess_tight", {"request": body()})
            assert direct == ("UNAVAILABLE", answer.error.removeprefix("in ensemble 'chat_tight', "))
        with pytest.raises(ServerBusy) as caught:
            await collect(client, {"messages": HELLO}, tight)

        async def rest(stream: Any) -> list[Any]:
            return [delta async for delta in stream]

        others = await asyncio.gather(*(rest(stream) for stream in streams))
        whole = [fold([first, *more]) for first, more in zip(firsts, others, strict=True)]
        return whole, answer, caught.value

    if model == "chat":  # what other tests have left there is gone after its limit
        replay.wait_empty("postprocess_tight")
    whole, answer, busy = talk(replay.grpc_url, conversation)
    assert_clear(answer, ("server busy", "max_streams", str(TIGHT_STREAMS)))
    assert "max_streams" in str(busy)
    assert [message.content for message in whole] == [text] * TIGHT_STREAMS
    with ChatClient(replay.grpc_url, timeout=30, retries=Retries(tries=5)) as client:
        assert client.complete(chat_body({"text": "Room."}, format="qwen3"), model=tight).content == "Room."


def test_a_second_open_for_a_live_id_is_refused(replay: ReplayServer, qwen3_hello: list[int]) -> None:
    """Forged or repeated: the stream that lives keeps its options, and its tokens go to it alone."""
    mine = {"stream_id": "forged-1", "request": {"include_reasoning": False}, "format": "qwen3", "prompt_tail": ""}
    forged = {"stream_id": "forged-1", "request": {}, "format": "identity"}
    assert infer(replay.grpc_url, "postprocess", {"open": ((1, 1), json.dumps(mine))}) == Answer([])
    answer = infer(replay.grpc_url, "postprocess", {"open": ((1, 1), json.dumps(forged))})
    assert_clear(answer, ("stream_id", "in use", "fresh"))
    step = {
        "stream_id": ((1, 1), "forged-1"),
        "token_ids": ((1, len(qwen3_hello)), qwen3_hello),
        "meta": ((1, 1), '{"finish_reason": "stop"}'),
    }
    answer = infer(replay.grpc_url, "postprocess", step)
    assert "hidden" not in str(answer)
    assert [response.get("content") for response in answer.responses] == [["Hello"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("open", "JSON", "object")),
        ("[]", ("open", "list", "object")),
        ("{}", ("stream_id", "0 characters", "256")),
        (json.dumps({"stream_id": "x" * 300}), ("stream_id", "300", "256")),
        (json.dumps({"stream_id": "a", "format": "qwen9"}), ("format", "qwen9", "hermes")),
        (json.dumps({"stream_id": "a", "request": {"n": 1000}}), ("n", "1000", "max_choices")),
        (json.dumps({"stream_id": "a", "request": []}), ("open.request", "list", "dict")),
    ],
    ids=["empty", "a list", "no id", "a long id", "an unknown format", "too many answers", "options of another type"],
)
def test_an_open_that_is_none(text: str, words: tuple[str, str, str], replay: ReplayServer) -> None:
    assert_clear(infer(replay.grpc_url, "postprocess", {"open": ((1, 1), text)}), words)
