"""tool_choice in all its forms x the family's own syntax and forced JSON x streamed and not, on the real server."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from support.serving import ReplayServer
from support.vectors import chat_body
from tristream.client import ChatClient
from tristream.parsers import Message

CITY: Final = {"city": "Paris", "days": 3}
ZONE: Final = {"zone": "UTC"}


def tool(name: str, **properties: str) -> dict[str, Any]:
    members = {key: {"type": kind} for key, kind in properties.items()}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": members}}}


TOOLS: Final = [tool("get_weather", city="string", days="integer"), tool("get_time", zone="string")]
XML: Final = "<tool_call>\n<function={}>\n{}\n</function>\n</tool_call>"

OWN: Final = {
    "hermes": "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
        for name, arguments in (("get_weather", CITY), ("get_time", ZONE))
    ),
    "qwen3_coder": "\n".join(
        (
            XML.format("get_weather", "<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>"),
            XML.format("get_time", "<parameter=zone>\nUTC\n</parameter>"),
        )
    ),
    "mistral": f"[TOOL_CALLS]get_weather[ARGS]{json.dumps(CITY)}[TOOL_CALLS]get_time[ARGS]{json.dumps(ZONE)}",
}
FIRST_OF: Final = {
    "hermes": OWN["hermes"].partition("\n<tool_call>")[0],
    "qwen3_coder": OWN["qwen3_coder"].partition("\n<tool_call>")[0],
    "mistral": f"[TOOL_CALLS]get_weather[ARGS]{json.dumps(CITY)}",
}
FORCED: Final = json.dumps([{"name": "get_weather", "parameters": CITY}, {"name": "get_time", "parameters": ZONE}])

WEATHER: Final = {"type": "function", "function": {"name": "get_weather"}}


def allowed(mode: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [WEATHER]}}


BOTH: Final = [("get_weather", CITY), ("get_time", ZONE)]
FIRST: Final = BOTH[:1]
CHOICES: Final[dict[str, tuple[Any, list[Any], list[Any], str]]] = {
    # tool_choice; the calls of the own form; those of forced JSON; finish_reason where there are calls
    "none": ("none", [], [], "stop"),
    "auto": ("auto", BOTH, [], "tool_calls"),
    "required": ("required", BOTH, BOTH, "tool_calls"),
    "named": (WEATHER, FIRST, FIRST, "stop"),
    "allowed, auto": (allowed("auto"), FIRST, [], "tool_calls"),
    "allowed, required": (allowed("required"), FIRST, FIRST, "tool_calls"),
}


def calls(message: Message) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in message.tool_calls]


@pytest.mark.parametrize("model", ["chat", "chat_direct"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "not streamed"])
@pytest.mark.parametrize("format", OWN)
@pytest.mark.parametrize("choice", CHOICES)
def test_tool_choice(choice: str, format: str, streamed: bool, model: str, replay: ReplayServer) -> None:
    tool_choice, of_own, of_forced, finish = CHOICES[choice]
    with ChatClient(replay.grpc_url, timeout=60) as client:
        # A named function is called once: by its own call, or with an object that is the arguments.
        named = choice == "named"
        texts = (FIRST_OF[format], json.dumps(CITY)) if named else (OWN[format], FORCED)
        for text, expected in zip(texts, (of_own, of_forced), strict=True):
            body = chat_body({"text": text}, format=format, tools=TOOLS, tool_choice=tool_choice, stream=streamed)
            message = client.complete(body, model=model)
            assert calls(message) == expected, text
            assert all(call.status == "complete" for call in message.tool_calls)
            assert message.finish_reason == (finish if expected else "stop"), text
            if expected:
                assert message.content is None
            elif text is FORCED:
                assert message.content == FORCED  # under auto and none a JSON answer is an answer


@pytest.mark.parametrize("model", ["chat", "chat_direct"])
@pytest.mark.parametrize("text", [*OWN, "forced"])
def test_a_call_is_announced_when_it_begins(text: str, model: str, replay: ReplayServer) -> None:
    format = "hermes" if text == "forced" else text
    directive = {"text": FORCED if text == "forced" else OWN[text], "delay_ms": 10}
    body = chat_body(directive, format=format, tools=TOOLS, tool_choice="required")
    with ChatClient(replay.grpc_url, timeout=60) as client:
        deltas = list(client.stream(body, model=model))
    for index in (0, 1):
        parts = [call for delta in deltas for call in delta.tool_calls if call.index == index]
        assert parts[0].name
        assert len(parts) > 2


@pytest.mark.parametrize("model", ["chat", "chat_direct"])
@pytest.mark.parametrize("format", OWN)
def test_one_call_where_parallel_is_off(format: str, model: str, replay: ReplayServer) -> None:
    with ChatClient(replay.grpc_url, timeout=60) as client:
        body = chat_body({"text": OWN[format]}, format=format, tools=TOOLS, parallel_tool_calls=False)
        assert calls(client.complete(body, model=model)) == FIRST
