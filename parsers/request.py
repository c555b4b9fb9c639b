"""What a request asks of the parser: `ChatOptions`, read from an OpenAI chat.completions body.

Reads only what concerns the parser and requires no field; `tristream.backend.prompt` checks the
whole body. Frozen, and shared freely between threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from .errors import RequestError

__all__ = ["DEFAULT_MAX_HELD_CHARS", "ChatOptions", "ToolChoice", "ToolDefinition", "UnknownToolPolicy"]

ToolChoice: TypeAlias = Literal["auto", "none", "required", "named"]
UnknownToolPolicy: TypeAlias = Literal["pass", "drop", "content"]

DEFAULT_MAX_HELD_CHARS: Final = 1_048_576
"""Most characters of undecided text one stream may hold (PROTOCOL 1): a whole long argument that
comes before the call's name, or a non-string value, fits; memory stays bounded."""

NAME_SHAPE: Final = "1 to 128 characters of A-Z a-z 0-9 _ . : / -"


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One declared function.

    Args:
        name: the function's name.
        parameters: its JSON schema; {} where none was given.
        strict: OpenAI's `strict`: hold the arguments to the schema while decoding.
        description: for the prompt; the parser does not read it.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """A request, as far as the parser is concerned.

    Args:
        tools: the declared functions; empty switches tool parsing off.
        tool_choice: auto, none, required, or named (then `function` names the one).
        function: the function's name where `tool_choice` is named, else None.
        allowed: names that `allowed_tools` admits; None admits all.
        parallel_tool_calls: False lets one call through.
        include_reasoning: False hides the reasoning and everything that would show it.
        unknown_tool: what becomes of a call to an undeclared function.
        force_nonempty_content: at the end, where no content was sent, send the reasoning once more as content.
        logprobs: send log probabilities of content tokens.
        reasoning_logprobs: also those of reasoning tokens.
        return_token_ids: send token ids.
        template_switches: `chat_template_kwargs` and `reasoning_effort` that may decide where reasoning starts.
        id_seed: seed of derived call ids; the server mints one for each request.
        history_calls: tool calls in the request's messages (Kimi's ids go on from there).
        max_held_chars: most characters of undecided text held back.
    """

    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = "auto"
    function: str | None = None
    allowed: frozenset[str] | None = None
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    unknown_tool: UnknownToolPolicy = "pass"
    force_nonempty_content: bool = False
    logprobs: bool = False
    reasoning_logprobs: bool = False
    return_token_ids: bool = False
    template_switches: Mapping[str, Any] = field(default_factory=dict)
    id_seed: str = ""
    history_calls: int = 0
    max_held_chars: int = DEFAULT_MAX_HELD_CHARS

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise RequestError("tools", f"two functions named {twice!r}", "each name once")
        if self.tool_choice in ("required", "named") and not self.tools:
            raise RequestError(
                "tool_choice", f"{self.tool_choice!r} without tools", "'auto' or 'none', or declare tools"
            )
        if self.tool_choice == "named" and self.function not in names:
            raise RequestError("tool_choice.function.name", repr(self.function), f"a declared tool: {', '.join(names)}")
        if self.unknown_tool not in get_args(UnknownToolPolicy):
            raise RequestError("unknown_tool", repr(self.unknown_tool), "'pass', 'drop' or 'content'")
        if self.max_held_chars < 1024:
            raise RequestError("max_held_chars", str(self.max_held_chars), "at least 1024")

    @classmethod
    def from_openai(cls, body: Mapping[str, Any], *, id_seed: str = "") -> ChatOptions:
        """Read an OpenAI chat.completions body (and our extras: `include_reasoning`, `unknown_tool`, …).

        Args:
            body: the request as parsed JSON; unknown members are ignored.
            id_seed: see the class; taken from `body["id_seed"]` where it is empty.

        Raises:
            RequestError: a member that concerns the parser is not what the API allows.
        """
        tools = tuple(_tool(index, tool) for index, tool in enumerate(_list(body, "tools")))
        choice, function, allowed = _tool_choice(body.get("tool_choice"), tools)
        switches = dict(_mapping(body, "chat_template_kwargs"))
        if body.get("reasoning_effort") is not None:
            switches.setdefault("reasoning_effort", body["reasoning_effort"])
        unknown: Any = body.get("unknown_tool") or "pass"
        held = body.get("max_held_chars")
        return cls(
            tools=tools,
            tool_choice=choice,
            function=function,
            allowed=allowed,
            parallel_tool_calls=_flag(body, "parallel_tool_calls", True),
            include_reasoning=_flag(body, "include_reasoning", True),
            unknown_tool=unknown,
            force_nonempty_content=_flag(body, "force_nonempty_content", bool(switches.get("force_nonempty_content"))),
            logprobs=_flag(body, "logprobs", False),
            reasoning_logprobs=_flag(body, "reasoning_logprobs", False),
            return_token_ids=_flag(body, "return_token_ids", False),
            template_switches=switches,
            id_seed=id_seed or str(body.get("id_seed") or ""),
            history_calls=_count_calls(body.get("messages")),
            max_held_chars=DEFAULT_MAX_HELD_CHARS if held is None else _whole(held, "max_held_chars"),
        )


def _tool(index: int, tool: Any) -> ToolDefinition:
    where = f"tools[{index}]"
    if not isinstance(tool, Mapping):
        raise RequestError(where, _shown(tool), "an object with `type` and `function`")
    kind = tool.get("type", "function")
    if kind != "function":
        raise RequestError(f"{where}.type", _shown(kind), "'function'")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise RequestError(f"{where}.function", _shown(function), "an object with `name` and `parameters`")
    name = function.get("name")
    if not isinstance(name, str) or not valid_name(name):
        raise RequestError(f"{where}.function.name", _shown(name), NAME_SHAPE)
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise RequestError(f"{where}.function.parameters", _shown(parameters), "a JSON schema object")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise RequestError(f"{where}.function.strict", _shown(strict), "true or false")
    return ToolDefinition(name, parameters, bool(strict), str(function.get("description") or ""))


def _tool_choice(choice: Any, tools: Sequence[ToolDefinition]) -> tuple[ToolChoice, str | None, frozenset[str] | None]:
    """OpenAI's `tool_choice`: a word, a named function, or `allowed_tools`."""
    if choice is None:
        return "auto", None, None
    if choice in ("auto", "none", "required"):
        return choice, None, None
    if isinstance(choice, Mapping):
        if choice.get("type") == "function":
            function = choice.get("function")
            name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
            if not isinstance(name, str):
                raise RequestError("tool_choice.function.name", _shown(name), "the name of a declared tool")
            if not tools:
                raise RequestError(
                    "tool_choice", f"function {name!r} without tools", "'auto' or 'none', or declare tools"
                )
            return "named", name, None
        if choice.get("type") == "allowed_tools":
            return _allowed_tools(choice, tools)
    raise RequestError(
        "tool_choice",
        _shown(choice),
        "'none', 'auto', 'required', {type: function, function: {name}} or {type: allowed_tools, ...}",
    )


def _allowed_tools(
    choice: Mapping[str, Any], tools: Sequence[ToolDefinition]
) -> tuple[ToolChoice, str | None, frozenset[str] | None]:
    spec = choice.get("allowed_tools", choice)
    where = "tool_choice.allowed_tools"
    if not isinstance(spec, Mapping) or not isinstance(spec.get("tools"), list):
        raise RequestError(where, _shown(spec), "an object with `mode` and a list `tools`")
    mode = spec.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise RequestError(f"{where}.mode", _shown(mode), "'auto' or 'required'")
    declared = {tool.name for tool in tools}
    names = set()
    for index, tool in enumerate(spec["tools"]):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if name not in declared:
            raise RequestError(
                f"{where}.tools[{index}]",
                _shown(name),
                f"a declared tool: {', '.join(sorted(declared)) or 'none declared'}",
            )
        names.add(str(name))
    return mode, None, frozenset(names)


def valid_name(name: str) -> bool:
    """May a function be called `name` (PROTOCOL 5)?"""
    return 0 < len(name) <= 128 and name.isascii() and name.translate(_NAME_EXTRAS).isalnum()


_NAME_EXTRAS: Final = str.maketrans("_.:/-", "aaaaa")


def _list(body: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = body.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise RequestError(name, _shown(value), "a list")
    return value


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RequestError(name, _shown(value), "an object")
    return value


def _flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError(name, _shown(value), "true or false")
    return value


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(name, _shown(value), "a whole number")
    return value


def _count_calls(messages: Any) -> int:
    count = 0
    for message in messages if isinstance(messages, list) else ():
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        count += len(calls) if isinstance(calls, list) else 0
    return count


def _shown(value: Any) -> str:
    """A value, short enough for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
