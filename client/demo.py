"""`tristream demo`: two chats with the demonstration models, an answer and a tool call, as they stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from tristream.parsers import Message, fold

from .blocking import ChatClient
from .errors import ChatError
from .render import Renderer
from .wire import DEFAULT_URL

__all__ = ["demo", "fits"]

WEATHER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "The city, e.g. Paris"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL: Final = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city now", "parameters": WEATHER},
}
# Prompts that a model of 135 million parameters answers; greedy, so that every run shows the same.
ANSWER: Final = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
CALL: Final = {
    "messages": [{"role": "user", "content": "What is the weather in Paris in celsius?"}],
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}
COMMON: Final = {"max_tokens": 256, "temperature": 0}


def demo(
    url: Annotated[str, typer.Option(envvar="TRISTREAM_URL", help="The server's gRPC address.")] = DEFAULT_URL,
    model: Annotated[str, typer.Option(help="The model to ask: chat or chat_direct.")] = "chat",
) -> None:
    """Show a streamed answer and a tool call; status 1 where the call does not fit its schema."""
    console = Console(highlight=False)
    try:
        with ChatClient(url) as client:
            answer = _show(console, client, model, ANSWER)
            call = _show(console, client, model, CALL)
    except ChatError as error:
        console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    failure = _failure(answer, call)
    if failure:
        console.print(f"failed: {failure}", style="red", markup=False)
        raise typer.Exit(1)
    console.print("The arguments fit the declared schema.", style="green")


def _show(console: Console, client: ChatClient, model: str, body: Mapping[str, Any]) -> Message:
    console.print(f"\n> {body['messages'][0]['content']}", style="bold", markup=False)
    renderer = Renderer(console)
    deltas = []
    with client.stream({**body, **COMMON}, model=model) as stream:
        for delta in stream:
            renderer.show(delta)
            deltas.append(delta)
    renderer.finish()
    return fold(deltas)


def _failure(answer: Message, call: Message) -> str:
    """What the demonstration did not show, "" where it showed all."""
    if not answer.content:
        return "the answer has no content"
    if len(call.tool_calls) != 1 or call.tool_calls[0].status != "complete":
        return "there is no complete tool call"
    arguments = call.tool_calls[0].arguments
    try:
        value = json.loads(arguments)
    except ValueError:
        return f"the arguments are no JSON: {arguments}"
    return "" if fits(value, WEATHER) else f"the arguments do not fit the declared schema: {arguments}"


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits a schema of objects, strings and enums: all that the demonstration declares."""
    if schema["type"] == "string":
        return isinstance(value, str) and value in schema.get("enum", [value])
    properties = schema["properties"]
    return (
        isinstance(value, dict)
        and set(schema["required"]) <= value.keys() <= properties.keys()
        and all(fits(member, properties[name]) for name, member in value.items())
    )
