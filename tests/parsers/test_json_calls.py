"""Call objects and encoded arguments that are not what they should be, at every cut."""

from __future__ import annotations

import pytest

from support.parsing import notices, run, tool
from tristream.parsers import Delta, Message, fold
from tristream.parsers.replay import chunkings

TOOLS = [tool("f"), tool("g", {"name": {"type": "string"}})]


def everywhere(output: str, **options: object) -> Message:
    """The message of this output; the same in every chunking."""
    body = {"tools": TOOLS, **options}
    messages = [fold(run("hermes", map(Delta, chunks), body)) for _, chunks in chunkings(output)]
    assert all(message == messages[0] for message in messages)
    return messages[0]


def called(call_object: str) -> Message:
    return everywhere(f"<tool_call>\n{call_object}\n</tool_call> end")


@pytest.mark.parametrize(
    ("written", "sent", "status"),
    [
        ('"{}"', "{}", "complete"),
        ('" {} "', "{}", "complete"),
        ('"\\n{}\\t"', "{}", "complete"),
        ('"\\n{\\"a\\": \\"\\\\n\\"}"', '{"a": "\\n"}', "complete"),
        ('"{\\"a\\": \\"b\nc\\"}"', '{"a": "b\\nc"}', "complete"),
        ('"{\\"a\\": \\"\\ud83d\\ude00\\"}"', '{"a": "😀"}', "complete"),
        ('"{\\"a\\": \\"\\ud83dx\\"}"', '{"a": "\\ud83dx"}', "complete"),
        ('"{\\"a\\": \\"\\ud83d\\"}"', '{"a": "\\ud83d"}', "complete"),
        ('"{\\"a\\": \\"\\ud83d\\u0041\\"}"', '{"a": "\\ud83dA"}', "complete"),
        ('"{\\"a\\": \\"\\u00e9\\u4f60\\"}"', '{"a": "é你"}', "complete"),
        ('""', "{}", "complete"),
        ("null", "{}", "complete"),
        ('"{}x"', "{}", "invalid"),
        ('"{}\\u0041"', "{}", "invalid"),
        ('"x"', "", "invalid"),
        ('"[1]"', "", "invalid"),
        ('"{\\"a\\": 1"', '{"a": 1', "invalid"),
        ('"{\\"a\\": \\"\\x\\"}"', '{"a": "', "invalid"),
        ('"{\\"a\\": b}"', '{"a": ', "invalid"),
        ("[1]", "", "invalid"),
        ("nil", "", "invalid"),
        ("1", "", "invalid"),
        ("true", "", "invalid"),
    ],
)
def test_arguments(written: str, sent: str, status: str) -> None:
    (call,) = called(f'{{"name": "f", "arguments": {written}}}').tool_calls
    assert (call.arguments, call.status) == (sent, status)


@pytest.mark.parametrize(
    ("call_object", "sent"),
    [
        ('{"name": "f" "id": 1}', ""),
        ('{"name": "f", 1: 2}', ""),
        ('{"name": "f", "x" 2}', ""),
        ('{"name": "f", "x": [1}}', ""),
        ('{"name": "f", "arguments": {} "id": 1}', "{}"),
        ('{"name": "f", "\\x": 1}', ""),
        (f'{{"name": "f", "{"x" * 600}": 1}}', ""),
        ('{"name": "f", "arguments": {"a": 1}, "b"}', '{"a": 1}'),
    ],
)
def test_after_the_name_a_broken_object_is_an_invalid_call(call_object: str, sent: str) -> None:
    message = called(call_object)
    assert [(call.arguments, call.status) for call in message.tool_calls] == [(sent, "invalid")]
    assert message.content == " end"
    assert notices(message) == {"invalid_arguments": 1}


@pytest.mark.parametrize(
    "call_object",
    [
        "{}",
        '{"arguments": {}}',
        '{"arguments": {}, "name": 1}',
        '{"type": "function", "name": ""}',
        '{"name": "a b"}',
        '{"name": "\\x"}',
        '{"name": ["f"]}',
        '{"type": [1}, "name": "f"}',
        '{"arguments": {"a" 1}, "name": "f"}',
        f'{{"name": "{"f" * 600}"}}',
    ],
)
def test_before_the_name_it_is_text(call_object: str) -> None:
    message = called(call_object)
    assert message.tool_calls == []
    assert message.content == f"<tool_call>\n{call_object}\n</tool_call> end"


@pytest.mark.parametrize(
    ("call_object", "name", "sent"),
    [
        ('{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}', "f", '{"a": 1}'),
        ('{"function": {"arguments": {"a": 1}, "name": "f"}, "type": "function"}', "f", '{"a": 1}'),
        ('{"function": {"name": "f"}}', "f", "{}"),
        ('{"name": "f", "arguments": {"a": 1}, "arguments": {"b": 2}}', "f", '{"a": 1}'),
        ('{"name": "f", "name": "g", "arguments": {}}', "f", "{}"),
        ('{"id": 7, "name": "f"}', "f", "{}"),
        ('{"type": null, "name": "f", "x": -1.5e3 }', "f", "{}"),
        ('{"tool_name": "f", "parameters": {}}', "f", "{}"),
    ],
)
def test_shapes(call_object: str, name: str, sent: str) -> None:
    message = called(call_object)
    assert [(call.name, call.arguments, call.status) for call in message.tool_calls] == [(name, sent, "complete")]
    assert message.content == " end"


def test_a_brace_too_few_is_forgiven_before_the_closer_only() -> None:
    unclosed = '<tool_call>\n{"name": "f", "arguments": {"a": 1}\n'
    assert everywhere(f"{unclosed}</tool_call>").tool_calls[0].status == "complete"
    assert everywhere(f"{unclosed}hello").tool_calls[0].status == "invalid"
    assert everywhere(f"{unclosed}</tool_box>").tool_calls[0].status == "invalid"
    at_the_end = everywhere(unclosed)
    assert at_the_end.tool_calls[0].status == "incomplete"
    assert notices(at_the_end) == {"incomplete_call": 1}


@pytest.mark.parametrize(
    ("output", "calls", "content"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', [("g", '{"name": "f", "arguments": {"a": 1}}')], None),
        ('{"parameters": {"a": 1}, "name": "g"}', [("g", '{"a": 1}')], None),
        ('{"parameters": {"a": 1}, "name": "f"}', [("g", '{"parameters": {"a": 1}, "name": "f"}')], None),
        ('{"parameters": {"a": 1}}', [("g", '{"parameters": {"a": 1}}')], None),
        ('{"type": "function", "name": "g", "arguments": {"a": 1}}', [("g", '{"a": 1}')], None),
        ('[{"a": 1}, {"a": 2}]', [("g", '{"a": 1}'), ("g", '{"a": 2}')], None),
        ("{}", [("g", "{}")], None),
        ('{ "a" : 1 } end', [("g", '{ "a" : 1 }')], "end"),
        ("{'a': 1}", [("g", "{")], None),
        ("[1]", [], "[1]"),
        ("1", [], "1"),
    ],
)
def test_forced_named(output: str, calls: list[tuple[str, str]], content: str | None) -> None:
    """`g` declares a parameter `name`, so that key does not make the object a call."""
    named = {"type": "function", "function": {"name": "g"}}
    message = everywhere(output, tool_choice=named)
    assert [(call.name, call.arguments) for call in message.tool_calls] == calls
    assert (message.content or "").strip() == (content or "")
    assert message.finish_reason == "stop"
