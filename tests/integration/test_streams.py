"""Recorded outputs through the real server, token by token: each stream gets its own, whole and in order."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from support.openai_facts import facts, folded
from support.serving import ReplayServer
from support.talking import ask_all, collect, talk
from support.vectors import cases, chat_body, difference, replay_body
from tristream.backend.detokenizer import Vocabulary, load_vocabulary
from tristream.client import ChatClient
from tristream.client.openai import ChatCompletions
from tristream.client.wire import Endpoint, encode_body, infer_request
from tristream.parsers import Message, fold

STREAMS = 32
_EXTRAS = ("format", "chat_template_kwargs", "include_reasoning", "unknown_tool", "id_seed", "force_nonempty_content")
QWEN = ("qwen3", "qwen3_coder", "hermes", "qwen3+hermes")

both = pytest.mark.parametrize("model", ["chat", "chat_direct"])
# How the LLM hands its tokens over.
hand_over = pytest.mark.parametrize(
    "how",
    [{}, {"size": 5}, {"late": True}, {"late": True, "size": 3}],
    ids=["one token", "five tokens", "text one step late", "text of three tokens late"],
)


@pytest.fixture(scope="module")
def qwen3(qwen3_tokenizer: Path) -> Vocabulary:
    return load_vocabulary(qwen3_tokenizer)


def tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    ids: list[int] = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@both
@hand_over
def test_32_streams_at_once_each_equal_to_its_case(
    model: str, how: dict[str, Any], replay: ReplayServer, qwen3: Vocabulary
) -> None:
    chosen = list(itertools.islice(itertools.cycle(cases(*QWEN)), STREAMS))
    # The gate holds them until the last has come: their tokens are mixed as well as can be.
    gate = [f"{model} {how}", STREAMS]
    messages = ask_all(replay.grpc_url, [(model, replay_body(case, gate=gate, **how)) for case in chosen])
    wrong = {}
    for case, message in zip(chosen, messages, strict=True):
        assert isinstance(message, Message), f"{case['id']}: {message}"
        if got := difference(case, message):
            wrong[case["id"]] = {"got": got, "expected": case["expect"]}
        assert message.usage is not None
        assert message.usage.completion_tokens == len(tokens(qwen3, case["output"]))
        assert "tokens_lost" not in [notice.code for notice in message.notices]
    assert not wrong


@both
@hand_over
def test_deepseek_s_tokenizer(model: str, how: dict[str, Any], replay: ReplayServer) -> None:
    chosen = cases("deepseek_r1")
    messages = ask_all(replay.grpc_url, [(f"{model}_deepseek", replay_body(case, **how)) for case in chosen])
    for case, message in zip(chosen, messages, strict=True):
        assert isinstance(message, Message), f"{case['id']}: {message}"
        assert difference(case, message) is None


@both
@hand_over
def test_characters_of_several_tokens_are_never_cut(model: str, how: dict[str, Any], replay: ReplayServer) -> None:
    text = "Grüße 👩‍👩‍👧‍👦 aus Ουλάν Μπατόρ, 乌兰巴托 🏔️ ᠤᠯᠠᠭᠠᠨᠪᠠᠭᠠᠲᠤᠷ — fertig"
    with ChatClient(replay.grpc_url, timeout=60) as client:
        deltas = list(client.stream(chat_body({"text": text, **how}, format="qwen3"), model=model))
    assert fold(deltas).content == text
    assert all("\ufffd" not in (delta.content or "") for delta in deltas)


@both
def test_deltas_arrive_while_the_llm_still_writes(model: str, replay: ReplayServer) -> None:
    body = chat_body({"words": 20, "delay_ms": 20}, format="qwen3")
    with ChatClient(replay.grpc_url, timeout=60) as client:
        deltas = list(client.stream(body, model=model))
    assert len(deltas) > 10
    assert "".join(delta.content or "" for delta in deltas) == " the" * 20
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["stop"]
    assert deltas[-1].finish_reason == "stop"


@both
def test_several_answers_to_one_request(model: str, replay: ReplayServer) -> None:
    body = chat_body({"text": "<think>\nhm\n</think>\n\nYes, of course."}, format="qwen3", n=3)
    with ChatClient(replay.grpc_url, timeout=60) as client:
        messages = client.complete_choices(body, model=model)
    assert [(message.choice_index, message.reasoning, message.content) for message in messages] == [
        (index, "hm", "Yes, of course.") for index in range(3)
    ]
    usages = [message.usage for message in messages if message.usage is not None]
    assert len(usages) == 1, "usage goes once, after the last answer"
    assert usages[0].completion_tokens is not None
    assert usages[0].completion_tokens % 3 == 0


@both
def test_ids_and_log_probabilities_travel_with_their_text(model: str, replay: ReplayServer, qwen3: Vocabulary) -> None:
    content = "It is sunny in Oslo."
    body = chat_body(
        {"text": f"<think>\nweather\n</think>\n\n{content}"}, format="qwen3", logprobs=True, return_token_ids=True
    )
    with ChatClient(replay.grpc_url, timeout=60) as client:
        message = client.complete(body, model=model)
    assert message.content == content
    assert "".join(entry["token"] for entry in message.logprobs).strip() == content
    assert set(tokens(qwen3, content)) <= set(message.token_ids)


@both
def test_hidden_reasoning_leaves_no_trace(model: str, replay: ReplayServer) -> None:
    body = chat_body(
        {"text": "<think>\nsecret\n</think>\n\nYes."},
        format="qwen3",
        include_reasoning=False,
        logprobs=True,
        return_token_ids=True,
    )
    deltas = talk(replay.grpc_url, lambda client: collect(client, body, model))
    assert "secret" not in repr(deltas)
    message = fold(deltas)
    assert (message.reasoning, message.content) == (None, "Yes.")
    assert not message.token_ids
    assert not message.logprobs
    assert message.usage is not None
    assert message.usage.reasoning_tokens


@both
@pytest.mark.parametrize("text", ["<think>\nsecret\n</think>\n\nYes.", "<think>\nsecret", "Yes. <think>secret</think>"])
def test_no_byte_of_the_grpc_stream_tells_hidden_reasoning(model: str, text: str, replay: ReplayServer) -> None:
    def stream(**members: Any) -> bytes:
        body = chat_body(
            {"text": text}, format="qwen3", logprobs=True, top_logprobs=2, return_token_ids=True, **members
        )
        with Endpoint(replay.grpc_url).connect(grpc) as channel:
            call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer
            requests = iter((infer_request(model, encode_body(body), "hidden"),))
            return b"".join(response.SerializeToString() for response in call(requests, timeout=60))

    assert b"secret" in stream()
    hidden = stream(include_reasoning=False)
    assert b"secret" not in hidden
    for tensor in (b"reasoning", b"token_ids", b"logprobs"):
        assert tensor not in hidden.replace(b"reasoning_tokens", b"")


@both
def test_options_of_any_size_arrive_once(model: str, replay: ReplayServer) -> None:
    properties = {f"field_{number}": {"type": "integer", "description": "x" * 200} for number in range(1000)}
    tool = {
        "type": "function",
        "function": {"name": "store", "parameters": {"type": "object", "properties": properties}},
    }
    call = "<tool_call>\n<function=store>\n<parameter=field_999>\n7\n</parameter>\n</function>\n</tool_call>"
    with ChatClient(replay.grpc_url, timeout=60) as client:
        message = client.complete(chat_body({"text": call}, format="qwen3_coder", tools=[tool]), model=model)
    assert json.loads(message.tool_calls[0].arguments) == {"field_999": 7}


def test_no_stream_is_left_behind(replay: ReplayServer) -> None:
    for model in ("postprocess", "chat_direct", "postprocess_deepseek", "chat_direct_deepseek"):
        replay.wait_empty(model)


@both
def test_the_openai_packages_fold_of_every_reported_case(model: str, replay: ReplayServer) -> None:
    with ChatClient(replay.grpc_url, timeout=60) as client:
        for case in cases("hermes", "qwen3+hermes"):
            body = {**replay_body(case), "id_seed": case["id"]}
            ours = {name: body.pop(name) for name in _EXTRAS if name in body}
            asked = {**body, "model": model, "extra_body": ours}
            streamed = folded(ChatCompletions(client).create(stream=True, **asked))
            whole = ChatCompletions(client).create(**asked)
            assert facts(streamed) == facts(whole), case["id"]
            assert difference(case, client.complete({**body, **ours}, model=model)) is None
