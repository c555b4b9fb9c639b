"""The token view agrees with what a client gets."""

from __future__ import annotations

from support.parsing import call, tool
from tristream.parsers import ChatOptions, Delta
from tristream.parsers.tokens import TokenView

ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


def deltas(*texts: str) -> list[Delta]:
    return [Delta(text, (number,), text in ADDED) for number, text in enumerate(texts)]


def ended(view: TokenView) -> bool:
    return view.reasoning_ended


def test_ids_of_each_channel() -> None:
    view = TokenView("qwen3", ChatOptions(include_reasoning=False), added_spellings=ADDED)
    assert ended(view)
    view.feed(deltas("<think>", "\n", "A", "B"))
    assert not ended(view)
    view.feed([Delta("</think>", (4,), True), Delta("\n\n", (5,)), Delta("C", (6,))])
    assert ended(view)
    assert (view.reasoning_ids, view.content_ids) == ([2, 3], [6])
    assert view.count_reasoning_tokens() == 2


def test_where_the_prompt_opened_the_reasoning() -> None:
    view = TokenView("qwen3", ChatOptions(), "<think>\n", added_spellings=ADDED)
    assert not ended(view)
    view.feed(deltas("A", "</think>"))
    assert ended(view)
    assert view.reasoning_ids == [0]


def test_a_call_ends_the_reasoning_when_its_name_is_read() -> None:
    options = ChatOptions.from_openai({"tools": [tool("now")]})
    view = TokenView("qwen3+hermes", options, "<think>\n")
    whole = call("now", "{}")
    for char in whole[: whole.index('now"')]:
        view.feed(deltas(char))
        assert not ended(view)
    view.feed(deltas('now"'))
    assert ended(view)
