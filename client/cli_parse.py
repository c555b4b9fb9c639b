"""`tristream parse`: the parsers without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tristream.parsers import ChatOptions, ChatStream, Delta, parse

from .cli_support import InputError, read_text, read_tools, reported
from .jsonable import delta_object, message_object

__all__ = ["parse_output"]

Finish = Literal["stop", "length", "content_filter"]


def parse_output(
    file: Annotated[
        Path | None, typer.Argument(help="Raw model output, special tokens spelled out.", show_default="stdin")
    ] = None,
    format: Annotated[
        str,
        typer.Option("--format", "-f", help="NAME or REASONING+TOOLS; see `tristream formats`."),
    ] = "identity",
    tools: Annotated[Path | None, typer.Option(help="JSON file with the request's tools.")] = None,
    prompt_tail: Annotated[
        str | None, typer.Option(help="End of the rendered prompt; it may have opened the reasoning.")
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Further request fields, e.g. \'{"tool_choice": "required"}\'.'),
    ] = None,
    finish: Annotated[Finish, typer.Option(help="Why the model stopped.")] = "stop",
    stream: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Feed N characters at a time and print each delta as a JSON line."),
    ] = None,
) -> None:
    """Parse raw model output into a message, as JSON."""
    with reported():
        body: dict[str, Any] = _object(options)
        if tools is not None:
            body["tools"] = read_tools(tools)
        parsed_options = ChatOptions.from_openai(body)
        text = read_text(file)
        if stream is None:
            message = parse(text, format, parsed_options, prompt_tail=prompt_tail, finish=finish)
            _write(message_object(message), indent=2)
            return
        chat = ChatStream(format, parsed_options, prompt_tail)
        for start in range(0, len(text), stream):
            for delta in chat.feed(Delta(text[start : start + stream])):
                _write(delta_object(delta))
        for delta in chat.finish(finish):
            _write(delta_object(delta))


def _object(text: str | None) -> dict[str, Any]:
    """The JSON object of an option."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"--options: no JSON ({error.msg} at column {error.colno}); allowed: a JSON object") from None
    if not isinstance(value, Mapping):
        raise InputError(f"--options: found {type(value).__name__}; allowed: a JSON object")
    return dict(value)


def _write(value: Any, *, indent: int | None = None) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=indent))
