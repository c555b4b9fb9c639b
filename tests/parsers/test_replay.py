"""Replaying cases: what a failed one says."""

from __future__ import annotations

from typing import Any

import pytest

from tristream.parsers import ChatStream, replay
from tristream.parsers.events import Delta

CASE: dict[str, Any] = {
    "id": "a",
    "format": "qwen3",
    "output": "<think>A</think>B ",
    "expect": {"reasoning": "A", "content": "B ", "tool_calls": [], "finish_reason": "stop"},
}


def test_a_case_passes() -> None:
    assert replay.run_case(CASE) == replay.CaseResult("a", True)


def test_chunkings() -> None:
    named = dict(replay.chunkings("abc", ["a", "bc"]))
    assert list(named) == [
        "whole", "recorded", "size 1", "size 2", "size 3", "size 5", "size 16", "cut at 1", "cut at 2",
    ]  # fmt: skip
    assert named["size 2"] == ["ab", "c"]
    assert named["cut at 2"] == ["ab", "c"]
    assert all("".join(chunks) == "abc" for chunks in named.values())
    assert "recorded" not in dict(replay.chunkings("abc"))


def test_what_is_not_expected_fails() -> None:
    result = replay.run_case({**CASE, "expect": {**CASE["expect"], "content": "C"}})
    assert not result.passed
    assert result.chunking == "whole"
    assert result.got == {**CASE["expect"]}
    assert result.expected["content"] == "C"


def test_alternatives_and_stripped_comparison() -> None:
    wrong = {**CASE["expect"], "content": "B"}
    assert not replay.run_case({**CASE, "expect": wrong}).passed
    assert replay.run_case({**CASE, "expect": wrong, "compare": "strip"}).passed
    assert replay.run_case({**CASE, "expect": wrong, "alt": [CASE["expect"]]}).passed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "nope"}, "RequestError: format: found 'nope'"),
        ({"options": {"tool_choice": "required"}}, "RequestError: tool_choice"),
        ({"output": None}, "TypeError"),
        ({"tools": 3}, "RequestError: tools"),
    ],
)
def test_a_case_that_cannot_be_run_has_failed(change: dict[str, Any], says: str) -> None:
    result = replay.run_case({**CASE, **change})
    assert not result.passed
    assert result.got.startswith(says)
    without_output = {key: value for key, value in CASE.items() if key != "output"}
    assert replay.run_case(without_output).got.startswith("KeyError")


def test_a_chunking_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a parser to which chunks do show."""

    class Wrong(ChatStream):
        def feed(self, delta: Delta) -> Any:
            return super().feed(Delta(delta.text.replace("B ", "b ")))

    monkeypatch.setattr(replay, "ChatStream", Wrong)
    case = {**CASE, "expect": {**CASE["expect"], "content": "b "}}
    result = replay.run_case(case)
    assert (result.passed, result.chunking) == (False, "size 1")
    assert (result.got["content"], result.expected["content"]) == ("B ", "b ")


def test_calls_that_are_not_complete() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    cut = {**CASE, "tools": tools, "format": "hermes", "finish": "length"}
    cut["output"] = '<tool_call>{"name": "f", "arguments": {"a": 1'
    part = {"name": "f", "arguments": None, "arguments_text": '{"a": 1'}
    expected = {"reasoning": None, "content": None, "tool_calls": [part], "finish_reason": "length"}
    assert replay.run_case({**cut, "expect": expected}).passed
    assert replay.run_case({**cut, "expect": {**expected, "tool_calls": []}}).passed
    other = {**part, "arguments_text": '{"a": '}
    assert not replay.run_case({**cut, "expect": {**expected, "tool_calls": [other]}}).passed


def test_numbers_compare_as_json() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    case = {**CASE, "tools": tools, "format": "hermes", "output": '<tool_call>{"name": "f", "arguments": {"a": 1}}'}

    sent = {"reasoning": None, "content": None, "finish_reason": "tool_calls"}

    def expecting(value: Any) -> dict[str, Any]:
        calls = [{"name": "f", "arguments": {"a": value}}]
        return {**case, "expect": {**CASE["expect"], **sent, "tool_calls": calls}}

    assert replay.run_case(expecting(1)).passed
    assert not replay.run_case(expecting(1.0)).passed
    assert not replay.run_case(expecting(True)).passed
