"""Options read from a request: what is accepted, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from support.parsing import tool
from tristream.parsers import ChatOptions, RequestError, ToolDefinition

TOOLS = [tool("f"), tool("g", {"x": {"type": "integer"}})]


def read(**body: Any) -> ChatOptions:
    return ChatOptions.from_openai(body)


def test_defaults() -> None:
    assert read() == ChatOptions()
    assert read(tools=None, tool_choice=None, unknown_tool=None, parallel_tool_calls=None) == ChatOptions()
    assert read(model="m", temperature=1, stream=True) == ChatOptions()


def test_tools() -> None:
    plain, strict = read(
        tools=[
            {"function": {"name": "f"}},
            {"type": "function", "function": {"name": "g", "strict": True, "parameters": {"a": 1}, "description": "d"}},
        ]
    ).tools
    assert plain == ToolDefinition("f")
    assert strict == ToolDefinition("g", {"a": 1}, True, "d")


@pytest.mark.parametrize("name", ["f", "a.b", "a_b-c", "ns/f:1", "x" * 128])
def test_names_that_a_function_may_have(name: str) -> None:
    assert read(tools=[tool(name)]).tools[0].name == name


def test_tool_choice() -> None:
    assert read(tools=TOOLS, tool_choice="required").tool_choice == "required"
    named = read(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "g"}})
    assert (named.tool_choice, named.function) == ("named", "g")
    assert read(tools=TOOLS, tool_choice={"type": "function", "name": "g"}) == named
    spec = {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}
    some = read(tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": spec})
    assert (some.tool_choice, some.allowed) == ("required", frozenset({"f"}))
    assert read(tools=TOOLS, tool_choice={"type": "allowed_tools", **spec, "tools": [{"name": "f"}]}) == some


def test_switches_and_counts() -> None:
    options = read(
        chat_template_kwargs={"enable_thinking": False, "force_nonempty_content": True},
        reasoning_effort="low",
        messages=[{"role": "assistant", "tool_calls": [{}, {}]}, {"role": "tool"}, "x", {"tool_calls": None}],
    )
    assert options.template_switches["reasoning_effort"] == "low"
    assert options.template_switches["enable_thinking"] is False
    assert options.force_nonempty_content
    assert options.history_calls == 2
    assert read(messages="x").history_calls == 0
    own = read(chat_template_kwargs={"reasoning_effort": "high"}, reasoning_effort="low")
    assert own.template_switches["reasoning_effort"] == "high"


def test_the_seed() -> None:
    assert read(id_seed="a").id_seed == "a"
    assert ChatOptions.from_openai({"id_seed": "a"}, id_seed="b").id_seed == "b"


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("body", "field", "found"),
    [
        ({"tools": {}}, "tools", "{}"),
        ({"tools": ["f"]}, "tools[0]", '"f"'),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", '"web_search"'),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "null"),
        ({"tools": [tool("f"), tool("a b")]}, "tools[1].function.name", '"a b"'),
        ({"tools": [tool("")]}, "tools[0].function.name", '""'),
        ({"tools": [tool("ä")]}, "tools[0].function.name", '"ä"'),
        ({"tools": [tool("x" * 129)]}, "tools[0].function.name", '"xxx'),
        ({"tools": [{"function": {"name": 1}}]}, "tools[0].function.name", "1"),
        ({"tools": [{"function": {"name": "f", "parameters": []}}]}, "tools[0].function.parameters", "[]"),
        ({"tools": [{"function": {"name": "f", "strict": "yes"}}]}, "tools[0].function.strict", '"yes"'),
        ({"tools": [tool("f"), tool("f")]}, "tools", "two functions named 'f'"),
        ({"tool_choice": "required"}, "tool_choice", "'required' without tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "function 'f' without tools"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", '"any"'),
        ({"tools": TOOLS, "tool_choice": 1}, "tool_choice", "1"),
        ({"tools": TOOLS, "tool_choice": {"type": "f"}}, "tool_choice", '{"type": "f"}'),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.function.name", "null"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "h"}}},
            "tool_choice.function.name",
            "'h'",
        ),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools", '{"type'),
        (
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "none", "tools": []}},
            "tool_choice.allowed_tools.mode",
            '"none"',
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "tools": [{"name": "f"}, {"name": "h"}]}},
            "tool_choice.allowed_tools.tools[1]",
            '"h"',
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": ["f"]}},
            "tool_choice.allowed_tools.tools[0]",
            "null",
        ),
        ({"unknown_tool": "keep"}, "unknown_tool", "'keep'"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls", "1"),
        ({"include_reasoning": "no"}, "include_reasoning", '"no"'),
        ({"chat_template_kwargs": []}, "chat_template_kwargs", "[]"),
        ({"max_held_chars": 10}, "max_held_chars", "10"),
        ({"max_held_chars": True}, "max_held_chars", "true"),
        ({"max_held_chars": "big"}, "max_held_chars", '"big"'),
        ({"include_reasoning": CIRCLE}, "include_reasoning", "list"),
        ({"include_reasoning": object()}, "include_reasoning", "object"),
    ],
)
def test_refused(body: dict[str, Any], field: str, found: str) -> None:
    with pytest.raises(RequestError) as error:
        ChatOptions.from_openai(body)
    assert error.value.field == field
    assert error.value.found.startswith(found)
    assert error.value.allowed
    assert len(str(error.value)) < 400
