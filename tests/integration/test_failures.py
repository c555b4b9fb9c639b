"""LLMs that fail, tokens that belong to nobody: an end for every stream, no text that may not be shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.probing import Answer, infer
from support.serving import TIGHT_IDLE_S, TIGHT_PATIENCE_S, ReplayServer
from support.talking import ask_all
from support.vectors import cases, chat_body, difference, replay_body
from tristream.client import ChatClient, ChatError, RequestRefused, ServerFailed
from tristream.parsers import Message

both = pytest.mark.parametrize("model", ["chat", "chat_direct"])
REASON = "CUDA out of memory"
LOST = {"finish_reason": ["error"], "notices": ['[{"code":"stream_lost","count":1,"offset":0}]']}


def failing(way: str, after: int, **members: Any) -> dict[str, Any]:
    return chat_body({"words": 40, "fail_after": after, "fail": way}, format="qwen3", **members)


def lost(message: Message) -> bool:
    return message.finish_reason == "error" and "stream_lost" in [notice.code for notice in message.notices]


@both
def test_the_llm_says_itself_that_it_failed(model: str, replay: ReplayServer) -> None:
    """What came stays, the answer ends with `error`, the state goes at once, other streams do not notice."""
    case = cases("qwen3_coder")[0]
    asked = [(model, failing("in_band", 10)), (model, replay_body(case, delay_ms=5)), (model, failing("in_band", 30))]
    first, whole, second = ask_all(replay.grpc_url, asked)
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert isinstance(whole, Message)
    assert (first.content, second.content) == (" the" * 10, " the" * 30)
    assert lost(first)
    assert lost(second)
    assert first.usage is not None
    assert first.usage.completion_tokens == 10
    assert REASON not in repr(first)
    assert difference(case, whole) is None
    replay.wait_empty("postprocess" if model == "chat" else model)


@pytest.mark.parametrize("way", ["error", "silent"])
def test_chat_direct_ends_the_answer_for_an_llm_that_breaks_off(way: str, replay: ReplayServer) -> None:
    with ChatClient(replay.grpc_url, timeout=30) as client:
        message = client.complete(failing(way, 10), model="chat_direct")
    assert message.content == " the" * 10
    assert lost(message)
    assert REASON not in repr(message)
    replay.wait_empty("chat_direct")


@pytest.mark.parametrize("way", ["error", "silent"])
def test_chat_ends_with_an_error_where_the_llm_breaks_off(way: str, replay: ReplayServer) -> None:
    """postprocess never hears of it (TRITON.md, ensembles, 9): the client gets the error, the idle limit the state."""
    with ChatClient(replay.grpc_url, timeout=30) as client, pytest.raises(ChatError) as caught:
        client.complete(failing(way, 10), model="chat_tight")
    # An error of the LLM overtakes the tokens that postprocess still has, all of them at times: our llm speaks in-band.
    assert (" the" * 10).startswith(caught.value.received.content or "")
    replay.wait_empty("postprocess_tight", TIGHT_IDLE_S + 10)


def test_chat_direct_gives_up_an_llm_that_hangs(replay: ReplayServer) -> None:
    """In time, with what had come, and the LLM is told; before the first token it is an error."""
    body = chat_body({"words": 40, "fail_after": 10, "fail": "hang", "tag": "hangs"}, format="qwen3")
    with ChatClient(replay.grpc_url, timeout=TIGHT_PATIENCE_S + 10) as client:
        message = client.complete(body, model="chat_direct_tight")
        with pytest.raises(ServerFailed) as caught:
            client.complete(chat_body({"words": 1, "fail_after": 0, "fail": "hang"}), model="chat_direct_tight")
    assert message.content == " the" * 10
    assert lost(message)
    assert "first_token_timeout_s" in str(caught.value)
    (entry,) = replay.ended("hangs")
    assert entry["end"] in ("cancelled", "stopped")
    replay.wait_empty("chat_direct_tight")


def test_chat_gives_up_an_llm_that_hangs_at_the_idle_limit(replay: ReplayServer) -> None:
    """postprocess drops the stream and has the LLM stop it; that end comes back through it, as a lost stream's."""
    body = chat_body({"words": 40, "fail_after": 10, "fail": "hang", "tag": "hangs too"}, format="qwen3")
    with ChatClient(replay.grpc_url, timeout=TIGHT_IDLE_S + 20) as client:
        message = client.complete(body, model="chat_tight")
    assert message.content == " the" * 10
    assert lost(message)
    (entry,) = replay.ended("hangs too")
    assert entry["end"] == "stopped"
    replay.wait_empty("postprocess_tight")


@both
@pytest.mark.parametrize("way", ["in_band", "error"])
def test_the_llm_fails_before_its_first_token(way: str, model: str, replay: ReplayServer) -> None:
    with (
        ChatClient(replay.grpc_url, timeout=30) as client,
        pytest.raises((ServerFailed, RequestRefused)) as caught,
    ):
        # Where its error comes as Triton's, not in-band, it has only words that nobody here knows (RequestRefused),
        # and postprocess waits for the stream until its limit.
        client.complete(failing(way, 0), model=f"{model}_tight")
    assert "Traceback" not in str(caught.value)


@both
def test_the_llm_s_own_refusal_reaches_the_client_as_it_is(model: str, replay: ReplayServer) -> None:
    text = "constraint.regex: found a pattern that does not compile; allowed: a regular expression"
    with ChatClient(replay.grpc_url, timeout=30) as client, pytest.raises(RequestRefused) as caught:
        client.complete(chat_body({"refuse": text}, format="qwen3"), model=f"{model}_tight")
    assert text in str(caught.value)


@both
def test_hidden_reasoning_stays_hidden_where_the_llm_fails(model: str, replay: ReplayServer) -> None:
    body = chat_body(
        {"text": "<think>\nsecret secret secret secret secret", "fail_after": 5},
        format="qwen3",
        include_reasoning=False,
        force_nonempty_content=True,
    )
    with ChatClient(replay.grpc_url, timeout=30) as client:
        deltas = list(client.stream(body, model=model))
    assert "secret" not in repr(deltas)
    assert deltas[-1].finish_reason == "error"


@both
def test_a_call_that_the_llm_cannot_finish_is_incomplete(model: str, replay: ReplayServer) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}
    text = '<tool_call>\n{"name": "f", "arguments": {"a": "one two three four five six seven eight"}}\n</tool_call>'
    body = chat_body({"text": text, "fail_after": 16}, format="hermes", tools=[tool])
    with ChatClient(replay.grpc_url, timeout=30) as client:
        message = client.complete(body, model=model)
    (call,) = message.tool_calls
    assert (call.name, call.status) == ("f", "incomplete")
    assert call.arguments.startswith('{"a": "one')
    assert message.finish_reason == "error"


def step(stream_id: str, token_ids: list[int], **meta: Any) -> dict[str, Any]:
    """One step of an LLM, as a batch of one."""
    return {
        "stream_id": ((1, 1), stream_id),
        "token_ids": ((1, len(token_ids)), token_ids),
        "meta": ((1, 1), json.dumps(meta) if meta else ""),
    }


def test_a_token_of_an_unknown_stream_shows_no_text(replay: ReplayServer, qwen3_hello: list[int]) -> None:
    """The client is told once that its stream is lost; then nothing, not even when the LLM ends it."""
    for number, meta in enumerate(({}, {}, {"finish_reason": "stop"})):
        answer = infer(replay.grpc_url, "postprocess", step("nobody", qwen3_hello, **meta))
        assert answer == Answer([LOST] if number == 0 else [])


def test_tokens_after_the_end_are_nothing(replay: ReplayServer, qwen3_hello: list[int]) -> None:
    opening = {"stream_id": "ended", "request": {}, "format": "qwen3", "prompt_tail": ""}
    assert infer(replay.grpc_url, "postprocess", {"open": ((1, 1), json.dumps(opening))}) == Answer([])
    (answer,) = infer(replay.grpc_url, "postprocess", step("ended", qwen3_hello, finish_reason="stop")).responses
    assert (answer["reasoning"], answer["content"], answer["finish_reason"]) == (["hidden"], ["Hello"], ["stop"])
    assert infer(replay.grpc_url, "postprocess", step("ended", qwen3_hello)) == Answer([])


def test_tokens_that_were_lost_on_the_way_are_noticed(replay: ReplayServer, qwen3_hello: list[int]) -> None:
    opening = {"stream_id": "lossy", "request": {}, "format": "qwen3", "prompt_tail": ""}
    infer(replay.grpc_url, "postprocess", {"open": ((1, 1), json.dumps(opening))})
    end = step("lossy", qwen3_hello, finish_reason="stop", completion_tokens=len(qwen3_hello) + 2)
    (answer,) = infer(replay.grpc_url, "postprocess", end).responses
    assert '{"code":"tokens_lost","count":2,"offset":0}' in answer["notices"][0]


@pytest.mark.parametrize(
    "inputs",
    [
        {"stream_id": ((1, 1), "x")},
        {"token_ids": ((1, 1), [1]), "meta": ((1, 1), "")},
        {"meta": ((1, 1), "")},
        step("", [1]),
    ],
    ids=["no tokens", "no id", "neither", "an empty id"],
)
def test_steps_that_are_none_are_refused(inputs: dict[str, Any], replay: ReplayServer) -> None:
    answer = infer(replay.grpc_url, "postprocess", inputs)
    assert not answer.responses
    assert "found" in answer.error
    assert "allowed" in answer.error


@pytest.mark.parametrize("token_ids", [[-1], [2**31 - 1], [151_643, 10**6], []], ids=str)
def test_ids_that_no_token_has_are_no_text(token_ids: list[int], replay: ReplayServer) -> None:
    stream_id = f"odd {token_ids}"
    infer(replay.grpc_url, "postprocess", {"open": ((1, 1), json.dumps({"stream_id": stream_id, "prompt_tail": ""}))})
    (answer,) = infer(replay.grpc_url, "postprocess", step(stream_id, token_ids, finish_reason="length")).responses
    assert answer["finish_reason"] == ["length"]
    assert "content" not in answer


def test_meta_that_is_nonsense_is_passed_over(replay: ReplayServer, qwen3_hello: list[int]) -> None:
    infer(
        replay.grpc_url,
        "postprocess",
        {"open": ((1, 1), '{"stream_id": "nonsense", "format": "qwen3", "prompt_tail": ""}')},
    )
    texts = ["{", "[]", '{"finish_reason": 5, "choice_index": "x", "logprobs": {}}', '{"choice_index": 7}']
    for text in texts:
        inputs = {**step("nonsense", []), "meta": ((1, 1), text)}
        assert infer(replay.grpc_url, "postprocess", inputs) == Answer([])
    (answer,) = infer(replay.grpc_url, "postprocess", step("nonsense", qwen3_hello, finish_reason="stop")).responses
    assert answer["content"] == ["Hello"]
