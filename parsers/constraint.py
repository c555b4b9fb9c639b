"""What an answer is held to while it is generated: tools, tool_choice and format -> a structural tag.

A structural tag is xgrammar's JSON for a grammar with tags in it (xgrammar 0.2.9,
`xgrammar/structural_tag.py`; vLLM takes the same JSON). Parser and constraint read the same shapes,
so they cannot disagree (PROTOCOL 8).

The grammar always covers the reasoning too: an engine that knows no reasoning can then start it at
the first token. What a tag must look like was tried with `GrammarCompiler`; see the tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from .call_shapes import CALL_SHAPES, FORCED_JSON, CallShape, ReasoningShape
from .errors import RequestError
from .request import ChatOptions, ToolDefinition

__all__ = ["CALL_SHAPES", "FORCED_JSON", "AutoChoice", "CallShape", "ReasoningShape", "StrictLevel", "build_constraint"]

StrictLevel: TypeAlias = Literal["auto", "function", "parameter"]
"""What `auto` holds of a tool without `strict`: nothing, name and frame, or the arguments too."""

AutoChoice: TypeAlias = Literal["model", "call", "text"]
"""What `auto` leaves to the model: the choice, or, for a model too small to choose, one call, or no call. Such a model
makes one call at a time under `required` too: it would repeat it without end."""

_Node: TypeAlias = dict[str, Any]

MAX_BLANKS: Final = 32
"""Most blanks in a row between JSON tokens: an indented object fits, a small model cannot idle."""

_VALUE_ENDS: Final[Mapping[str, str]] = {
    "qwen_xml": "</parameter>",
    "minimax_xml": "</parameter>",
    "deepseek_xml": "</｜DSML｜parameter>",
    "deepseek_v4_1_xml": "</｜DSML｜ parameter>",
    "glm_xml": "</arg_value>",
    "kimi_k3_xml": "<|close|>argument<|sep|>",
}
"""What ends a value in a style; the styles that are missing admit none of it in themselves."""

_ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}


def build_constraint(
    options: ChatOptions,
    *,
    calls: CallShape | None = None,
    reasoning: ReasoningShape | None = None,
    response_schema: Mapping[str, Any] | bool | None = None,
    level: StrictLevel = "auto",
    auto: AutoChoice = "model",
) -> dict[str, Any] | None:
    """The structural tag that holds an answer to what its request asks for.

    Args:
        options: the request.
        calls: the family's call shape; None where it has none. `required` then takes the forced
            JSON form, which the parser reads for every format, and `auto` holds nothing.
        reasoning: the family's markers and where the prompt left off; None = it has no reasoning.
        response_schema: JSON schema of `response_format`; `{"type": "object"}` for json_object.
        level: the server's floor for tools without `strict`; it never loosens a request.
        auto: what tool_choice `auto` leaves to the model.

    Returns:
        `{"type": "structural_tag", "format": ...}`, or None where nothing is to be held.

    Raises:
        RequestError: no tool is allowed where one is required.
    """
    body = _body(options, calls, response_schema, level, auto)
    if body is None and (reasoning is None or not reasoning.held):
        return None
    free = body is None
    body = body or _any_text()
    if reasoning is not None and reasoning.budget is not None:
        body = _without(body, reasoning.start)
    elements = [*_reasoning(reasoning, calls, free=free), body]
    return {"type": "structural_tag", "format": elements[0] if len(elements) == 1 else _sequence(*elements)}


def _body(
    options: ChatOptions,
    calls: CallShape | None,
    response_schema: Mapping[str, Any] | bool | None,
    level: StrictLevel,
    auto: AutoChoice,
) -> _Node | None:
    """What follows the reasoning; None = anything."""
    answer = None if response_schema is None else _json(response_schema)
    if options.tool_choice == "none" or not options.tools:
        return answer
    tools = _callable_tools(options)
    one = options.tool_choice == "named" or auto != "model" or not options.parallel_tool_calls
    if options.tool_choice != "auto":
        if not tools:
            raise RequestError("tool_choice.allowed_tools.tools", "[]", "at least one tool where one must be called")
        return _calls_only(tools, calls or FORCED_JSON, "parameter", one=one)
    if calls is None or not calls.opener:
        return answer  # under `auto` the parser reads no forced JSON
    if auto == "call" and tools:
        return _calls_only(tools, calls, "parameter", one=one)
    if not tools or auto == "text":
        return answer or _any_text(calls.opener)
    if answer is not None:
        # A plain OR with triggered tags would let prose through: tried.
        return {
            "type": "or",
            "elements": [
                answer,
                _calls_only(tools, calls, "parameter" if level == "parameter" else "function", one=one),
            ],
        }
    return _triggered(options, tools, calls, level)


def _callable_tools(options: ChatOptions) -> tuple[ToolDefinition, ...]:
    if options.tool_choice == "named":
        return tuple(tool for tool in options.tools if tool.name == options.function)
    if options.allowed is None:
        return options.tools
    return tuple(tool for tool in options.tools if tool.name in options.allowed)


def _calls_only(tools: Sequence[ToolDefinition], calls: CallShape, level: StrictLevel, *, one: bool) -> _Node:
    """One or several calls and nothing else."""
    series = _series(tools, calls, level, one=one)
    return _tag(calls.before, series, calls.after) if calls.before else series


def _series(tools: Sequence[ToolDefinition], calls: CallShape, level: StrictLevel, *, one: bool) -> _Node:
    """The same without their wrapper."""
    return {
        "type": "tags_with_separator",
        "tags": [_call(tool, calls, level) for tool in tools],
        "separator": calls.separator,
        "at_least_one": True,
        "stop_after_first": one,
    }


def _triggered(
    options: ChatOptions, tools: Sequence[ToolDefinition], calls: CallShape, level: StrictLevel
) -> _Node | None:
    """Free text in which every call is held to its tool, as far as `level` and `strict` ask."""
    restricted = options.allowed is not None
    if restricted and level == "auto":
        level = "function"
    held = [tool for tool in tools if tool.strict or level != "auto"]
    if not held and options.parallel_tool_calls:
        return None
    if calls.before:
        block = _series(held, calls, level, one=not options.parallel_tool_calls)
        tags = [_tag(calls.before, block, calls.after)] if held else []
    else:
        tags = [_call(tool, calls, level) for tool in held]
    if len(held) < len(tools):
        # The other tools' calls are free, so their tag must not admit a held tool by the back door.
        names = [calls.mention.replace("{name}", tool.name) for tool in held]
        tags.append(_tag(calls.opener, _any_text(*filter(None, (calls.closer, *names))), calls.closer))
    return {
        "type": "triggered_tags",
        "triggers": [calls.opener],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": not options.parallel_tool_calls,
    }


def _call(tool: ToolDefinition, calls: CallShape, level: StrictLevel) -> _Node:
    schema = tool.parameters if tool.strict or level == "parameter" else _ANY_OBJECT
    arguments = _json(schema or _ANY_OBJECT, calls.style)
    begin, numbered, rest = calls.begin.replace("{name}", tool.name).partition("{number}")
    if numbered:
        arguments = _sequence(_regex("[0-9]{1,3}"), _const(rest), arguments)
    return _tag(begin, arguments, calls.end)


def _reasoning(shape: ReasoningShape | None, calls: CallShape | None, *, free: bool) -> list[_Node]:
    """The reasoning before the body; `free`: the body takes any text, blanks included."""
    if shape is None or shape.state == "closed":
        return []
    bounded = shape.state == "open" and shape.bounds is not None
    # The body of a bounded answer must say something: a model cut off in its thoughts likes to end at once.
    # Not `<`: xgrammar takes a stop token for its spelling where any text may come.
    blanks = [_regex(r"\n\n[^\s<]")] if free and bounded else [] if free else [_regex(r"\n{0,2}")]
    # A call opener inside would end the reasoning for the parser, outside this grammar's tags.
    excludes = (shape.end, *([calls.opener] if calls is not None and calls.opener else ()))
    if shape.state == "open":
        return [*_reasoning_text(shape, excludes), _const(shape.end), *blanks]
    text = _thoughts(shape, excludes)
    block = _sequence(_const(shape.start), text, _const(shape.end), *blanks)
    return [{"type": "optional", "content": block}]


def _without(body: _Node, opener: str) -> _Node:
    """A body whose free text begins no reasoning: that would be reasoning without a budget."""
    if body["type"] not in ("any_text", "triggered_tags"):
        return body
    return {**body, "excludes": [*body.get("excludes", ()), opener]}


def _thoughts(shape: ReasoningShape, excludes: tuple[str, ...]) -> _Node:
    """Any text, as long as the budget lasts; then the end marker is all that may come."""
    text = _any_text(*excludes)
    return text if shape.budget is None else {**text, "max_tokens": shape.budget}


def _reasoning_text(shape: ReasoningShape, excludes: tuple[str, ...]) -> list[_Node]:
    bounds = shape.bounds
    if bounds is None:
        return [_thoughts(shape, excludes)]
    if shape.budget is not None:
        return [{**_thoughts(shape, excludes), "max_chars": bounds[1]}]
    # One sentence: a small model fills its bound with blank lines, JSON, code or half a thought otherwise.
    fewest, most = bounds
    others = {**_any_text("\n", ".", "{", "`", *excludes), "max_chars": most - max(fewest, 1) - 1}
    # `[^<]{20,160}` alone would compile in 0.7 s, these two take 0.1 s (xgrammar 0.2.9).
    return [_regex(rf"[^<{{`\"\s.][^<{{`\n.]{{{max(fewest - 2, 0)}}}"), others, _const(".")]


def _sequence(*elements: _Node) -> _Node:
    return {"type": "sequence", "elements": list(elements)}


def _const(value: str) -> _Node:
    return {"type": "const_string", "value": value}


def _regex(pattern: str) -> _Node:
    return {"type": "regex", "pattern": pattern}


def _any_text(*excludes: str) -> _Node:
    return {"type": "any_text", "excludes": list(excludes)} if excludes else {"type": "any_text"}


def _tag(begin: str, content: _Node, end: str) -> _Node:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _json(schema: Mapping[str, Any] | bool, style: str = "json") -> _Node:
    # In the tagged styles xgrammar admits blanks around values, one per side at the least. Qwen's XML needs the
    # newline; elsewhere the parser takes a blank around a string for data, around anything else for nothing.
    end = _VALUE_ENDS.get(style)
    return {
        "type": "json_schema",
        "json_schema": schema if isinstance(schema, bool) else dict(schema),
        "max_whitespace_cnt": MAX_BLANKS if style == "json" else 1,
        **({} if style == "json" else {"style": style}),
        # Inside a JSON value, the closer would end it for the parser. (xgrammar has no both: lengths would be ignored.)
        **({"excludes": [end]} if end and 'Length"' not in json.dumps(schema) else {}),
    }
