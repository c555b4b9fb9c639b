"""DeepSeek V3's own template, which writes calls only where the content is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tristream.backend.null_content import without_content
from tristream.backend.rendering import ChatTemplate
from tristream.backend.request_body import ChatMessage

CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
WRITTEN = (
    "<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
    '```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>'
)


@pytest.fixture(scope="module")
def deepseek_v3(project: Path) -> ChatTemplate:
    return ChatTemplate(project / "build" / "tokenizers" / "deepseek_v3")


def render(template: ChatTemplate, answer: dict[str, Any]) -> str:
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", **answer},
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
    ]
    return template.render([ChatMessage.model_validate(message) for message in messages], None, {})


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
def test_a_call_in_the_history_is_written(deepseek_v3: ChatTemplate, content: dict[str, Any]) -> None:
    prompt = render(deepseek_v3, {"tool_calls": [CALL], **content})
    assert f"<｜User｜>Weather?{WRITTEN}" in prompt
    assert "sun<｜tool▁output▁end｜>" in prompt


def test_text_before_a_call_is_written_too(deepseek_v3: ChatTemplate) -> None:
    prompt = render(deepseek_v3, {"content": "Let me look.", "tool_calls": [CALL]})
    assert f"<｜Assistant｜>Let me look.<｜end▁of▁sentence｜>{WRITTEN}" in prompt


def test_text_alone_stays(deepseek_v3: ChatTemplate) -> None:
    assert "<｜Assistant｜>Hi.<｜end▁of▁sentence｜>" in render(deepseek_v3, {"content": "Hi."})


def test_a_turn_with_both_becomes_two() -> None:
    both = {"role": "assistant", "content": "text", "reasoning_content": "plan", "tool_calls": [CALL]}
    text, calls = without_content([both])
    assert text == {"role": "assistant", "content": "text", "reasoning_content": "plan"}
    assert calls == {"role": "assistant", "tool_calls": [CALL]}
