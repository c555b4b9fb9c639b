"""Tables of formats: a malformed one is an error that names format, state and terminal."""

from __future__ import annotations

import pytest

from tristream.parsers import FormatDefinitionError, compose, load_format
from tristream.parsers.arguments.json_calls import JsonCall
from tristream.parsers.arguments.json_object import JsonObject
from tristream.parsers.format import Format, ReasoningSyntax, ToolSyntax, table
from tristream.parsers.header import Blanks, Lit, Maybe, Name
from tristream.parsers.states import Do, State

THINK = ReasoningSyntax(starts=("<think>",), ends=("</think>",))


def test_a_format_needs_name_and_source() -> None:
    with pytest.raises(FormatDefinitionError, match="name and source"):
        Format(name="", source="x")
    with pytest.raises(FormatDefinitionError, match="name and source"):
        Format(name="x", source="")


def test_reasoning_needs_an_end() -> None:
    with pytest.raises(FormatDefinitionError, match="never ends"):
        Format(name="x", source="y", reasoning=ReasoningSyntax(starts=("<a>",), ends=()))


def test_a_terminal_matches_something() -> None:
    tools = ToolSyntax(arguments=JsonObject(), entries=((Blanks(), Maybe((Lit("<a>"),))),))
    with pytest.raises(FormatDefinitionError, match=r"'x', state content, terminal .*matches nothing"):
        Format(name="x", source="y", tools=tools)


def test_a_terminal_leads_to_one_place() -> None:
    tools = ToolSyntax(arguments=JsonObject(), wrappers=("<think>",), inner=((Lit("<a>"), Name()),))
    with pytest.raises(FormatDefinitionError, match=r"'x', state content, terminal .*<think>.*two transitions"):
        Format(name="x", source="y", reasoning=THINK, tools=tools)


def test_without_tools_no_row_concerns_them() -> None:
    with_tools, without = (table(load_format("hermes"), tools=tools) for tools in (True, False))
    assert set(without) < set(with_tools)
    assert not [row for row in without.values() if Do.CALL in row.do]


def test_what_does_not_interleave_opens_once() -> None:
    format = Format(name="x", source="y", reasoning=THINK)
    opens = (State.CONTENT, (Lit("<think>"),))
    assert opens in table(format)
    assert opens not in table(format, reasoned=True)
    assert opens in table(load_format("qwen3"), reasoned=True)


def test_compose_takes_reasoning_of_one_and_calls_of_the_other() -> None:
    both = compose(load_format("deepseek_r1"), load_format("hermes"))
    assert both.name == "deepseek_r1+hermes"
    assert both.reasoning is load_format("deepseek_r1").reasoning
    assert both.tools is load_format("hermes").tools
    assert isinstance(both.tools, ToolSyntax)
    assert isinstance(both.tools.arguments, JsonCall)
    assert set(both.swallowed) == {*load_format("deepseek_r1").swallowed, *load_format("hermes").swallowed}
    assert load_format("qwen3+hermes") is load_format("qwen3+hermes")
