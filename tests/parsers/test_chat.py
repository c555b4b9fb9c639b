"""What the vectors do not say: ids, order of deltas, token accounting, log probabilities, misuse."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from support.parsing import call, case_options, notices, run, tool, vectors
from tristream.parsers import (
    ChatOptions,
    ChatStream,
    Delta,
    Message,
    MessageDelta,
    RequestError,
    UsageError,
    fold,
    load_format,
    parse,
)
from tristream.parsers.states import State

TOOLS = [tool("get_weather", {"city": {"type": "string"}}), tool("now")]
OSLO = call("get_weather", '{"city": "Oslo"}')
CASES = vectors()


def tokens(*texts: str, special: Sequence[str] = ()) -> list[Delta]:
    """One token per text, ids from 0; log probability -id."""
    return [
        Delta(text, (number,), text in special, ({"token": text, "logprob": -number},))
        for number, text in enumerate(texts)
    ]


def chars(text: str) -> list[Delta]:
    return tokens(*text)


def folded(*arguments: Any, **options: Any) -> Message:
    return fold(run(*arguments, **options))


# --- one delta --------------------------------------------------------------------------------


def test_fields_of_one_delta_are_in_the_models_order() -> None:
    sent = run("qwen3+hermes", f"<think>A</think>B{OSLO}C<think>D</think>", {"tools": TOOLS})
    assert [(delta.reasoning, delta.content, bool(delta.tool_calls)) for delta in sent] == [
        ("A", "B", True),
        (None, "C", False),
        ("D", None, False),
        (None, None, False),
    ]


def test_a_calls_first_delta_has_id_and_name_and_its_last_the_status() -> None:
    for case in CASES:
        deltas = [call for sent in run_case_in_characters(case) for call in sent.tool_calls]
        for index in {delta.index for delta in deltas}:
            first, *rest = [delta for delta in deltas if delta.index == index]
            assert first.id, case["id"]
            assert first.name, case["id"]
            assert all(delta.id is None and delta.name is None for delta in rest), case["id"]
            assert [bool(delta.status) for delta in (first, *rest)] == [False] * len(rest) + [True], case["id"]
            assert all(delta.arguments or delta.status for delta in rest), f"{case['id']}: an empty delta"


def test_calls_come_one_after_the_other() -> None:
    for case in CASES:
        indexes = [delta.index for sent in run_case_in_characters(case) for delta in sent.tool_calls]
        assert all(before <= after <= before + 1 for before, after in pairwise(indexes)), case["id"]
        assert not indexes or indexes[0] == 0, case["id"]


def test_no_delta_is_empty() -> None:
    for case in CASES:
        *sent, last = run_case_in_characters(case)
        empty = MessageDelta()
        assert not [delta for delta in sent if delta == empty], case["id"]
        assert last.finish_reason is not None


def run_case_in_characters(case: dict[str, Any]) -> list[MessageDelta]:
    stream = ChatStream(case["format"], case_options(case), case.get("prompt_tail"))
    sent = [delta for char in case["output"] for delta in stream.feed(Delta(char))]
    return [*sent, *stream.finish(case.get("finish") or "stop")]


def test_finish_reason_and_usage_are_on_the_last_delta_only() -> None:
    *sent, last = run("hermes", chars(f"A{OSLO}"), {"tools": TOOLS}, prompt_tokens=7, cached_tokens=2)
    assert all(delta.finish_reason is None and delta.usage is None for delta in sent)
    assert last.finish_reason == "tool_calls"
    assert last.usage is not None
    assert last.usage.to_openai() == {
        "prompt_tokens": 7,
        "completion_tokens": len(f"A{OSLO}"),
        "total_tokens": 7 + len(f"A{OSLO}"),
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_usage_without_any_count_is_absent() -> None:
    assert run("hermes", "Hello.")[-1].usage is None


def test_the_llms_own_count_of_completion_tokens_counts() -> None:
    usage = folded("qwen3", tokens("<think>", "A", "</think>", "B"), completion_tokens=9).usage
    assert usage is not None
    assert (usage.completion_tokens, usage.reasoning_tokens) == (9, 1)


# --- ids --------------------------------------------------------------------------------------


def test_ids_are_derived_from_seed_choice_and_index() -> None:
    def ids(seed: str, choice: int) -> list[str]:
        stream = ChatStream("hermes", ChatOptions.from_openai({"tools": TOOLS}, id_seed=seed), choice_index=choice)
        message = fold((*stream.feed(Delta(OSLO + OSLO)), *stream.finish()))
        assert message.choice_index == choice
        return [call.id for call in message.tool_calls]

    first, second = ids("a", 0)
    assert first != second
    assert first.startswith("call_")
    assert len(first) == len("call_") + 24
    assert ids("a", 0) == [first, second]
    assert not {first, second} & {*ids("a", 1), *ids("b", 0)}


def test_the_models_own_id_is_kept_where_it_precedes_the_arguments() -> None:
    before = '<tool_call>{"id": "abc", "name": "now", "arguments": {}}</tool_call>'
    after = '<tool_call>{"name": "now", "arguments": {}, "id": "abc"}</tool_call>'
    assert folded("hermes", before, {"tools": TOOLS}).tool_calls[0].id == "abc"
    assert folded("hermes", after, {"tools": TOOLS}).tool_calls[0].id.startswith("call_")


# --- a call's status ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "finish", "status", "reason", "codes"),
    [
        (OSLO, "stop", "complete", "tool_calls", {}),
        (OSLO[:50], "stop", "incomplete", "stop", {"incomplete_call": 1}),
        (OSLO[:50], "length", "incomplete", "length", {}),
        (OSLO[:50], "content_filter", "incomplete", "content_filter", {}),
        (OSLO[:50], "error", "incomplete", "error", {}),
        (OSLO.replace('"Oslo"', "Oslo"), "stop", "invalid", "stop", {"invalid_arguments": 1}),
        (OSLO.replace('"Oslo"', "Oslo"), "length", "invalid", "length", {"invalid_arguments": 1}),
    ],
)
def test_status(output: str, finish: str, status: str, reason: str, codes: dict[str, int]) -> None:
    message = folded("hermes", output, {"tools": TOOLS}, finish=finish)
    assert [call.status for call in message.tool_calls] == [status]
    assert message.finish_reason == reason
    assert notices(message) == codes


def test_a_complete_call_beside_a_broken_one_counts() -> None:
    message = folded("hermes", OSLO + OSLO[:50], {"tools": TOOLS})
    assert [call.status for call in message.tool_calls] == ["complete", "incomplete"]
    assert message.finish_reason == "tool_calls"


def test_the_engines_word_for_calls_is_stop() -> None:
    assert folded("hermes", "Hello.", {"tools": TOOLS}, finish="tool_calls").finish_reason == "stop"


def test_notices_say_where() -> None:
    message = folded("qwen3", "A</think>B</think>", prompt_tail="<think>\n\n</think>\n\n")
    assert [tuple(notice) for notice in message.notices] == [("stray_marker", 2, 1)]
    message = folded("hermes", "Hi. " + OSLO.replace("get_weather", "nope"), {"tools": TOOLS})
    assert [tuple(notice) for notice in message.notices] == [("unknown_tool", 1, 4)]


# --- accounting ---------------------------------------------------------------------------------

THOUGHT = ("<think>", "Let", " me", " see", ".", "\n", "</think>", "\n\n", "It", " is", " so", ".", "\n")


def usage_of(texts: Sequence[str], **body: Any) -> tuple[int | None, int | None]:
    usage = folded("qwen3+hermes", tokens(*texts), body, prompt_tail="<|im_start|>assistant\n").usage
    assert usage is not None
    return usage.completion_tokens, usage.reasoning_tokens


@pytest.mark.parametrize("body", [{}, {"return_token_ids": True}, {"logprobs": True}, {"include_reasoning": False}])
def test_reasoning_tokens(body: dict[str, Any]) -> None:
    """Markers belong to no channel, nor do blanks that are not sent."""
    assert usage_of(THOUGHT, **body) == (len(THOUGHT), 4)


def test_reasoning_tokens_where_the_prompt_opened_it() -> None:
    for body in ({}, {"return_token_ids": True}):
        message = folded("qwen3", tokens("Let", " me", "</think>", "Hi"), body, prompt_tail="<think>\n")
        assert message.usage is not None
        assert message.usage.reasoning_tokens == 2


def test_a_token_belongs_to_the_channel_of_its_first_sent_character() -> None:
    texts = ("<think>", "A", ".</th", "ink>B", "C")
    message = folded("qwen3", tokens(*texts), {"return_token_ids": True, "logprobs": True, "reasoning_logprobs": True})
    assert (message.reasoning, message.content) == ("A.", "BC")
    assert message.usage is not None
    assert message.usage.reasoning_tokens == 2
    assert [entry["token"] for entry in message.reasoning_logprobs] == ["A", ".</th"]
    assert [entry["token"] for entry in message.logprobs] == ["ink>B", "C"]
    assert message.token_ids == [0, 1, 2, 3, 4]


def test_log_probabilities_are_of_content_only() -> None:
    texts = (*THOUGHT, *OSLO)
    message = folded("qwen3+hermes", tokens(*texts), {"tools": TOOLS, "logprobs": True})
    assert [entry["token"] for entry in message.logprobs] == ["It", " is", " so", "."]
    assert message.reasoning_logprobs == []
    assert message.token_ids == []


def test_ids_travel_with_their_text() -> None:
    sent = run("qwen3+hermes", tokens(*THOUGHT), {"return_token_ids": True}, prompt_tail="<|im_start|>assistant\n")
    by_text = {delta.reasoning or delta.content: delta.token_ids for delta in sent}
    assert by_text["Let"] == (0, 1)  # the marker's id waits for the text after it
    assert by_text[" see"] == (3,)
    assert [identifier for delta in sent for identifier in delta.token_ids] == list(range(len(THOUGHT)))


@pytest.mark.parametrize("body", [{}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}])
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_every_id_is_sent_once_and_in_order(body: dict[str, Any], finish: str) -> None:
    texts = ("A", " ", *OSLO, " ", "<|im_end|>", "\n", "<tool_call>", "\n", "{", '"name"')
    message = folded("qwen3+hermes", tokens(*texts), {**body, "return_token_ids": True}, finish=finish)
    assert message.token_ids == list(range(len(texts)))


def test_hidden_reasoning_has_no_side_channel() -> None:
    body = {"include_reasoning": False, "logprobs": True, "reasoning_logprobs": True, "return_token_ids": True}
    sent = run("qwen3+hermes", tokens(*THOUGHT, *OSLO), {**body, "tools": TOOLS})
    message = fold(sent)
    assert (message.reasoning, message.content) == (None, "It is so.")
    assert not message.logprobs
    assert not message.reasoning_logprobs
    assert not message.token_ids
    assert message.usage is not None
    assert message.usage.reasoning_tokens == 4
    assert MessageDelta() not in sent


def test_hidden_reasoning_sends_nothing_while_it_lasts() -> None:
    stream = ChatStream("qwen3", ChatOptions(include_reasoning=False), "<think>\n")
    assert [sent for delta in chars("Let me see.\n") for sent in stream.feed(delta)] == []
    assert stream.state is State.REASONING


def test_the_fast_path_and_the_slow_one_give_the_same() -> None:
    """Asking for ids switches the fast path off."""
    for case in CASES:
        messages = []
        for extras in (False, True):
            stream = ChatStream(case["format"], case_options(case, return_token_ids=extras), case.get("prompt_tail"))
            sent = [delta for token in chars(case["output"]) for delta in stream.feed(token)]
            message = fold((*sent, *stream.finish(case.get("finish") or "stop")))
            if extras and case_options(case).include_reasoning:
                assert message.token_ids == list(range(len(case["output"]))), case["id"]
            message.token_ids.clear()
            messages.append(message)
        assert messages[0] == messages[1], case["id"]


# --- special tokens ---------------------------------------------------------------------------


def test_spellings_flagged_special_are_removed_in_the_text_view() -> None:
    body = {"tools": TOOLS}
    message = folded("hermes", f"A<|zap|>B{OSLO}<|zap|> C", body, special=["<|zap|>"])
    assert (message.content, len(message.tool_calls)) == ("AB C", 1)
    message = folded("qwen3", "A<|zap|>B</think><|zap|>C", prompt_tail="<think>", special=["<|zap|>"])
    assert (message.reasoning, message.content) == ("AB", "C")
    assert folded("hermes", "A<|zap|>B").content == "A<|zap|>B"


def test_a_special_spelling_inside_a_value_is_data() -> None:
    message = folded("hermes", call("get_weather", '{"city": "<|zap|>"}'), {"tools": TOOLS}, special=["<|zap|>"])
    assert message.tool_calls[0].arguments == '{"city": "<|zap|>"}'


def test_a_special_token_inside_a_value_is_removed() -> None:
    before, after = OSLO.split("slo")
    deltas = [Delta(before), Delta("<|zap|>", special=True), Delta("slo" + after)]
    message = folded("hermes", deltas, {"tools": TOOLS}, special=["<|zap|>"], added=["<|zap|>"])
    assert message.tool_calls[0].arguments == '{"city": "Oslo"}'


def test_in_the_id_view_a_spelling_without_its_id_is_text() -> None:
    view: dict[str, Any] = {"special": ["<|im_end|>"], "added": ["<think>", "</think>", "<tool_call>", "<|im_end|>"]}
    for text in ("<think>A</think>B", OSLO, "A<|im_end|>B"):
        assert folded("qwen3+hermes", text, {"tools": TOOLS}, **view).content == text


def test_other_added_tokens_are_text() -> None:
    deltas = [Delta("A"), Delta("<|box|>", special=True), Delta("B")]
    assert folded("qwen3", deltas, added=["<|box|>"]).content == "A<|box|>B"
    assert folded("qwen3", deltas).content == "A<|box|>B"


def test_a_lone_surrogate_is_no_marker_in_the_id_view() -> None:
    view: dict[str, Any] = {"special": ["<|im_end|>"], "added": ["<think>", "</think>", "<|im_end|>"]}
    for number in range(0xD800, 0xE000):
        message = folded("qwen3", f"<{chr(number)}>", **view)
        assert message.content is not None
        assert message.reasoning is None
        assert len(message.content) == 3


# --- misuse -------------------------------------------------------------------------------------


def test_after_finish_nothing_is_accepted() -> None:
    stream = ChatStream("identity", ChatOptions())
    stream.feed(Delta("A"))
    stream.finish()
    with pytest.raises(UsageError, match="feed after finish"):
        stream.feed(Delta("B"))
    with pytest.raises(UsageError, match="finish after finish"):
        stream.finish()


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(RequestError, match=r"allowed: .*qwen3") as error:
        ChatStream("nope", ChatOptions())
    assert error.value.field == "format"


def test_parse_takes_options_or_a_body() -> None:
    fmt = load_format("qwen3")
    assert (
        parse("<think>A</think>B", fmt)
        == parse("<think>A</think>B", "qwen3", {})
        == parse("<think>A</think>B", "qwen3", ChatOptions())
    )
    assert parse("A", "qwen3", finish="length").finish_reason == "length"
    assert parse("A", "qwen3", prompt_tail="<think>").reasoning == "A"
    wrong: Any = ["tools"]
    with pytest.raises(RequestError, match="options"):
        parse("A", "qwen3", wrong)


def test_empty_deltas_do_nothing() -> None:
    stream = ChatStream("qwen3+hermes", ChatOptions.from_openai({"tools": TOOLS}))
    for text in ("", "A", "", " ", "", OSLO[:40], "", OSLO[40:], ""):
        assert all(delta != MessageDelta() for delta in stream.feed(Delta(text)))
    assert json_calls(stream.finish()) == []


def json_calls(deltas: Iterable[MessageDelta]) -> list[Any]:
    return [json.loads(call.arguments) for call in fold(deltas).tool_calls]


# --- what is sent again, and when ---------------------------------------------------------------


def test_force_nonempty_content_is_bounded() -> None:
    body = {"force_nonempty_content": True, "max_held_chars": 1024}
    message = folded("qwen3", [Delta("x" * 100)] * 30, body, prompt_tail="<think>")
    assert message.reasoning == "x" * 3000
    assert message.content == "x" * 1024


def test_content_is_sent_as_it_comes() -> None:
    stream = ChatStream("qwen3+hermes", ChatOptions.from_openai({"tools": TOOLS}))
    assert [[d.content for d in stream.feed(Delta(text))] for text in ("Hello", ", wor", "ld", " <", "b", ">")] == [
        ["Hello"], [", wor"], ["ld"], [], [" <b"], [">"],
    ]  # fmt: skip


def test_arguments_are_sent_as_they_come() -> None:
    stream = ChatStream("qwen3", ChatOptions.from_openai({"tools": TOOLS}))
    stream.feed(Delta("<tool_call>\n<function=get_weather>\n<parameter=city>\n"))
    sent = ["".join(c.arguments for d in stream.feed(Delta(t)) for c in d.tool_calls) for t in ("O", "sl", "o<", "b>")]
    assert "".join(sent).endswith("Oslo<b>")
    assert sent[1] == "sl"


def test_a_marker_between_blanks_that_are_kept_counts_for_no_channel() -> None:
    texts = ("A", " ", "<think>", "\n", "B", "</think>", "C")
    for body in ({}, {"logprobs": True, "reasoning_logprobs": True}):
        message = folded("qwen3", tokens(*texts), body, prompt_tail="<think>")
        assert (message.reasoning, message.content) == ("A \nB", "C")
        assert message.usage is not None
        assert message.usage.reasoning_tokens == 4


# --- runs of blanks beyond the bound --------------------------------------------------------------

LONG = " " * 1500
BOUND = {"max_held_chars": 1024}


@pytest.mark.parametrize(
    ("output", "reasoning", "content", "count"),
    [
        (f"<think>A{LONG}B</think>C", f"A{LONG}B", "C", 0),
        (f"<think>A{LONG}</think>C", f"A{LONG}", "C", 1),
        (f"<think>{LONG}A</think>C", f"{LONG}A", "C", 1),
        (f"<think>A{LONG}", f"A{LONG}", None, 1),
        (f"<think>A</think>{LONG}C", "A", f"{LONG}C", 1),
        (f"A{LONG}B", None, f"A{LONG}B", 0),
        (f"A{LONG}<think>B</think>C", "B", f"A{LONG}C", 1),
        (f"A{LONG}", None, f"A{LONG}", 0),
        (f"A<think>B</think>{LONG}", "B", f"A{LONG}", 1),
        (f"A {LONG[:500]}<think>B</think>{LONG[:600]}C", "B", f"A {LONG[:1100]}C", 1),
    ],
)
def test_a_long_run_of_blanks(output: str, reasoning: str | None, content: str | None, count: int) -> None:
    whole = folded("qwen3", output, BOUND)
    assert (whole.reasoning, whole.content) == (reasoning, content)
    assert notices(whole) == ({"held_text_released": count} if count else {})
    for size in (1, 3, 7, 999, 1030):
        cut = [Delta(output[at : at + size]) for at in range(0, len(output), size)]
        assert folded("qwen3", cut, BOUND) == whole
