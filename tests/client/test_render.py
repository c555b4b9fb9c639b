"""An answer on the screen, block by block."""

from __future__ import annotations

import io
import re
from typing import get_args

from rich.console import Console

from tristream.client import render
from tristream.client.render import Renderer
from tristream.parsers import MessageDelta, Notice, ToolCallDelta, Usage
from tristream.parsers.events import NoticeCode


def shown(*deltas: MessageDelta, usage: bool = False) -> str:
    out = io.StringIO()
    renderer = Renderer(Console(file=out, width=200), show_usage=usage)
    for delta in deltas:
        renderer.show(delta)
    renderer.finish()
    return out.getvalue()


def call(index: int, arguments: str = "", **members: str) -> MessageDelta:
    return MessageDelta(tool_calls=(ToolCallDelta(index, arguments=arguments, **members),))  # type: ignore[arg-type]


def test_reasoning_content_and_a_call() -> None:
    text = shown(
        MessageDelta(reasoning="Let me "),
        MessageDelta(reasoning="see.\nYes."),
        MessageDelta(content="I will "),
        MessageDelta(content="look."),
        call(0, '{"city": ', id="call_1", name="get_weather"),
        call(0, '"Paris"}'),
        call(0, status="complete"),
        MessageDelta(finish_reason="tool_calls"),
    )
    assert text == ('│ Let me see.\n│ Yes.\n\nI will look.\n\n→ get_weather  call_1\n  {"city": "Paris"}  ✓\n')


def test_everything_in_one_delta() -> None:
    whole = MessageDelta(
        reasoning="r",
        content="c",
        tool_calls=(
            ToolCallDelta(0, "i0", "f", "{}", "complete"),
            ToolCallDelta(1, "i1", "g", '{"a', "incomplete"),
            ToolCallDelta(2, "i2", "h", "", "invalid"),
        ),
    )
    assert shown(whole) == ('│ r\n\nc\n\n→ f  i0\n  {}  ✓\n\n→ g  i1\n  {"a  … cut\n\n→ h  i2\n    ✗ invalid\n')


def test_calls_that_take_turns_are_told_apart() -> None:
    text = shown(call(0, "1", name="f"), call(1, "2", name="g"), call(0, "3"), call(1, "4", status="complete"))
    assert re.findall(r"→ (\w)", text) == ["f", "g", "f", "g"]


def test_notices_say_what_they_mean() -> None:
    text = shown(MessageDelta(content="a"), MessageDelta(notices=(Notice("stray_marker", 3, 9),)))
    assert text == "a\n! stray_marker ×3  a marker out of place\n"
    assert set(render._MEANING) == set(get_args(NoticeCode))


def test_the_last_line_counts() -> None:
    text = shown(MessageDelta(content="a"), MessageDelta(finish_reason="stop", usage=Usage(7, 9, 4)), usage=True)
    assert "stop · 7 prompt tokens · 9 completion tokens (4 reasoning) · first delta" in text


def test_an_answer_without_end_has_no_summary() -> None:
    assert shown(MessageDelta(content="a"), usage=True) == "a\n"
    assert shown(usage=True) == ""


def test_choices_follow_each_other() -> None:
    text = shown(
        MessageDelta(content="a"),
        MessageDelta(content="x", choice_index=1),
        MessageDelta(content="b"),
        MessageDelta(content="y", choice_index=1, finish_reason="stop"),
        MessageDelta(finish_reason="stop"),
    )
    assert text == "ab\n\nchoice 1\n\nxy\n"


def test_a_choice_whose_forerunner_never_ends_is_shown() -> None:
    text = shown(MessageDelta(content="a"), MessageDelta(content="x", choice_index=2))
    assert text == "a\n\nchoice 2\n\nx\n"


def test_hostile_names_and_ids() -> None:
    assert "\x1b" not in shown(call(0, name="\x1b[2J", id="\x1b]0;x\x07"))
