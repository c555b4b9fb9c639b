"""Where the output starts."""

from __future__ import annotations

from typing import Any

import pytest

from tristream.parsers import ChatOptions, load_format
from tristream.parsers.opening import Opening, opening
from tristream.parsers.states import State

REASONING, CONTENT = State.REASONING, State.CONTENT


@pytest.mark.parametrize(
    ("name", "tail", "expected"),
    [
        ("qwen3", None, Opening(CONTENT)),
        ("qwen3", "<|im_start|>assistant\n", Opening(CONTENT)),
        ("qwen3", "<|im_start|>assistant\n<think>\n", Opening(REASONING, at_marker=True)),
        ("qwen3", "<|im_start|>assistant\n<think>\nLet me", Opening(REASONING)),
        ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", Opening(CONTENT, True, True)),
        ("qwen3", "<think>\n\n</think>\n\nSure", Opening(CONTENT, True)),
        ("qwen3", "<think>a</think><|im_end|>\n<|im_start|>assistant\n", Opening(CONTENT)),
        ("qwen3", "</think><think>", Opening(REASONING, at_marker=True)),
        ("deepseek_r1", None, Opening(REASONING)),
        ("deepseek_r1", "<｜Assistant｜></think>", Opening(CONTENT, True, True)),
        ("deepseek_r1", "</think>a<｜User｜>b<｜Assistant｜>", Opening(REASONING)),
        ("deepseek_r1+hermes", "</think><|im_start|>assistant\n", Opening(REASONING)),
        ("identity", "<think>", Opening(CONTENT)),
        ("identity+hermes", "<think>", Opening(CONTENT)),
    ],
)
def test_the_prompt_decides(name: str, tail: str | None, expected: Opening) -> None:
    assert opening(load_format(name), ChatOptions(), tail) == expected


@pytest.mark.parametrize(
    ("value", "state"),
    [(True, REASONING), (False, CONTENT), ("on", REASONING), ("OFF", CONTENT), (1, REASONING), (None, CONTENT)],
)
def test_a_switch_decides_where_the_prompt_does_not(value: Any, state: State) -> None:
    options = ChatOptions(template_switches={"enable_thinking": value, "other": True})
    assert opening(load_format("qwen3"), options, "<|im_start|>assistant\n").state is state
    assert opening(load_format("qwen3"), options, "<think>").state is REASONING
