"""Our deltas as the `openai` package's types: folded by its own accumulator, asked for as its `create` is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from openai import omit
from openai.types.chat import ChatCompletion

from support.openai_facts import facts, folded
from support.parsing import vectors
from support.scripts import END, fail, say
from tristream.client import AsyncChatClient, ChatClient, RequestRefused, StreamBroken
from tristream.client.openai import AsyncChatCompletions, ChatCompletions, ChunkWriter, completion
from tristream.parsers import (
    ChatOptions,
    ChatStream,
    Delta,
    Message,
    MessageDelta,
    Notice,
    ToolCallDelta,
    Usage,
    UsageError,
    fold,
)
from tristream.parsers.formats import load_format

SIZE = 24
FOLDERS = 20
"""Tests that the vectors are dealt out to: pydantic takes its time."""

CASES = vectors()
ENTRY = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}


def accumulated(deltas: Iterable[MessageDelta], **options: Any) -> ChatCompletion:
    """What the package's accumulator makes of these deltas."""
    writer = ChunkWriter("chat", **options)
    return folded([*(chunk for delta in deltas for chunk in writer.chunks(delta, "1")), *writer.last()])


def expected(message: Message) -> tuple[Any, ...]:
    calls = [(call.id, call.name, call.arguments, call.status) for call in message.tool_calls]
    return message.choice_index, message.reasoning, message.content, calls, message.finish_reason


def parsed(case: dict[str, Any]) -> list[MessageDelta]:
    body = {**(case.get("options") or {}), "tools": case.get("tools") or None}
    options = ChatOptions.from_openai(body, id_seed="openai")
    stream = ChatStream(load_format(case["format"]), options, case.get("prompt_tail"))
    deltas = [delta for piece in _pieces(case["output"]) for delta in stream.feed(Delta(piece))]
    return [*deltas, *stream.finish(case.get("finish") or "stop")]


def _pieces(text: str) -> list[str]:
    """At most some hundred pieces, also of a long output: the package copies the message for each."""
    size = max(SIZE, len(text) // 100)
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("folder", range(FOLDERS))
def test_the_packages_accumulator_makes_our_message_of_every_vector(folder: int) -> None:
    for case in CASES[folder::FOLDERS]:
        deltas = parsed(case)
        message = fold(deltas)
        assert facts(accumulated(deltas)) == [expected(message)], case["id"]
        assert facts(completion([message], model="chat", request_id="1")) == [expected(message)], case["id"]


def test_choices_that_answer_out_of_order_fold_in_order() -> None:
    deltas = [
        MessageDelta(content="b", choice_index=1),
        MessageDelta(content="a"),
        MessageDelta(finish_reason="stop", choice_index=1),
        MessageDelta(finish_reason="length"),
    ]
    assert facts(accumulated(deltas, choices=2)) == [(0, None, "a", [], "length"), (1, None, "b", [], "stop")]


def test_usage_comes_alone_and_on_request() -> None:
    last = MessageDelta(finish_reason="stop", usage=Usage(3, 9, 2, 1))
    writer = ChunkWriter("chat", include_usage=True)
    chunks = [*writer.chunks(last, "1"), *writer.last()]
    assert [chunk.choices == [] for chunk in chunks] == [False, False, True]
    assert [chunk.usage is None for chunk in chunks] == [True, True, False]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 12
    silent = ChunkWriter("chat")
    assert all(chunk.usage is None for chunk in [*silent.chunks(last, "1"), *silent.last()])


def test_what_the_api_has_no_place_for_stands_beside() -> None:
    delta = MessageDelta(
        reasoning="hm",
        content="x",
        tool_calls=(ToolCallDelta(0, "call_1", "f", "{}", "complete"),),
        finish_reason="tool_calls",
        notices=(Notice("stray_marker", 1, 4),),
        token_ids=(1, 2),
        logprobs=(ENTRY,),
        reasoning_logprobs=(ENTRY,),
    )
    *_, chunk = ChunkWriter("chat").chunks(delta, "abc")
    assert (chunk.id, chunk.model) == ("chatcmpl-abc", "chat")
    choice = chunk.to_dict()["choices"][0]  # type: ignore[index]
    assert choice["delta"] == {
        "reasoning": "hm",
        "content": "x",
        "tool_calls": [
            {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
                "status": "complete",
            }
        ],
    }
    assert choice["logprobs"] == {"content": [ENTRY], "refusal": None, "reasoning": [ENTRY]}
    assert choice["notices"] == [{"code": "stray_marker", "count": 1, "offset": 4}]
    assert choice["token_ids"] == [1, 2]


def test_a_lost_stream_raises_with_what_came() -> None:
    writer = ChunkWriter("chat")
    first = MessageDelta(content="half")
    assert len(list(writer.chunks(first, "1"))) == 2
    with pytest.raises(StreamBroken) as caught:
        list(writer.chunks(MessageDelta(finish_reason="error"), "1"))
    assert caught.value.received.content == "half"


# --- against a real server whose model does as it is told ------------------------------------------

SCRIPT = [
    {"delta": {"reasoning": "hm"}},
    say("Grüße"),
    {"delta": {"tool_calls": [{"index": 0, "id": "call_1", "name": "f", "arguments": '{"a":'}]}},
    {"delta": {"tool_calls": [{"index": 0, "arguments": " 1}", "status": "complete"}]}},
    {"delta": {"finish_reason": "tool_calls", "usage": {"prompt_tokens": 3, "completion_tokens": 9}}},
]
ANSWER = [(0, "hm", "Grüße", [("call_1", "f", '{"a": 1}', "complete")], "tool_calls")]
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.server
def test_create_streamed_and_whole(scripted: Any) -> None:
    with ChatClient(scripted.url) as client:
        chat = ChatCompletions(client)
        asked: dict[str, Any] = {
            "model": scripted.model,
            "messages": MESSAGES,
            "temperature": omit,
            "extra_body": scripted.body(*SCRIPT),
        }
        whole = chat.create(**asked)
        streamed = folded(chat.create(stream=True, stream_options={"include_usage": True}, **asked))
    assert facts(whole) == facts(streamed) == ANSWER
    assert whole.usage == streamed.usage
    assert whole.usage is not None
    assert whole.usage.total_tokens == 12


@pytest.mark.server
def test_create_for_asyncio(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:
            chat = AsyncChatCompletions(client)
            asked: dict[str, Any] = {
                "model": scripted.model,
                "messages": MESSAGES,
                "extra_body": scripted.body(*SCRIPT),
            }
            assert facts(await chat.create(**asked)) == ANSWER
            async with await chat.create(stream=True, **asked) as chunks:
                assert facts(folded([chunk async for chunk in chunks])) == ANSWER

    asyncio.run(run())


@pytest.mark.server
def test_closing_a_stream_ends_the_generation(scripted: Any) -> None:
    with ChatClient(scripted.url) as client:
        body = scripted.body(say("x"), {"sleep": 30.0}, END, tag="openai close")
        with ChatCompletions(client).create(
            model=scripted.model, messages=MESSAGES, stream=True, extra_body=body
        ) as chunks:
            next(chunks)
        assert [entry["end"] for entry in scripted.ended("openai close")] == ["cancelled"]


def test_parameters_the_package_does_not_know_are_refused() -> None:
    with ChatClient("127.0.0.1:9") as client:
        chat = ChatCompletions(client)
        with pytest.raises(TypeError, match=r"include_reasoning.*extra_body"):
            chat.create(messages=MESSAGES, include_reasoning=False)
        with pytest.raises(TypeError, match="messages"):
            chat.create()
        with pytest.raises(UsageError, match="extra_headers"):
            chat.create(messages=MESSAGES, extra_headers={"x": "y"})
        with pytest.raises(UsageError, match="timeout"):
            chat.create(messages=MESSAGES, timeout="5")


@pytest.mark.server
def test_what_create_returned_may_come_back_in_the_history(scripted: Any) -> None:
    with ChatClient(scripted.url) as client:
        chat = ChatCompletions(client)
        asked: dict[str, Any] = {"model": scripted.model, "extra_body": scripted.body(*SCRIPT)}
        first = chat.create(messages=MESSAGES, **asked)
        result = {"role": "tool", "tool_call_id": "call_1", "content": "2"}
        assert facts(chat.create(messages=[*MESSAGES, first.choices[0].message, result], **asked)) == ANSWER


@pytest.mark.server
def test_a_refusal_is_raised(scripted: Any) -> None:
    body = scripted.body(fail("messages: found nothing; allowed: a list", "INVALID_ARG"))
    with ChatClient(scripted.url) as client, pytest.raises(RequestRefused, match="messages: found nothing"):
        ChatCompletions(client).create(model=scripted.model, messages=MESSAGES, extra_body=body)
