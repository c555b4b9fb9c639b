"""`tristream parse` and `tristream formats`: the parsers without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from tristream.parsers import ChatOptions, ChatStream, Delta, Format, format_names, load_format, parse

from .cli_support import InputError, read_text, read_tools, reported, stdout
from .jsonable import delta_object, message_object

__all__ = ["formats", "parse_output"]

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


def formats(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the model formats; any two compose as REASONING+TOOLS."""
    known = [load_format(name) for name in format_names()]
    if as_json:
        _write([_describe(known_format) for known_format in known], indent=2)
        return
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    widths = [max(map(len, format_names())), 24, 14]
    widths.append(max(10, stdout.width - sum(widths) - 2 * len(widths)))
    for column, width in zip(("format", "reasoning", "tool calls", "models"), widths, strict=True):
        table.add_column(column, no_wrap=True, width=width, overflow="ellipsis")
    for known_format in known:
        described = _describe(known_format)
        reasoning = described["reasoning"]
        marks = () if reasoning is None else (*reasoning["starts"][:1], *reasoning["ends"][:1])
        table.add_row(
            Text(known_format.name, "bold"),
            Text(" … ".join(marks).replace("\n", "⏎")),
            Text(_opener(known_format, described["tool_markers"]).replace("\n", "⏎")),
            Text(", ".join(known_format.models), "dim"),
        )
    stdout.print(table, crop=False)
    stdout.print(Text("\nAny two compose as REASONING+TOOLS, e.g. qwen3+hermes; --json tells everything.", "dim"))


def _opener(known: Format, markers: Sequence[str]) -> str:
    """A marker that calls begin with, for people."""
    if known.tools is None:
        return ""
    openers = [marker for marker in markers if len(marker) > 1 and not marker.startswith("</")]
    return next(iter((*known.tools.wrappers, *reversed(openers))), "JSON or Python")


def _describe(known: Format) -> dict[str, Any]:
    reasoning = known.reasoning
    other = {*known.swallowed, *(() if reasoning is None else (*reasoning.starts, *reasoning.ends))}
    return {
        "name": known.name,
        "models": known.models,
        "reasoning": None
        if reasoning is None
        else {
            "starts": reasoning.starts,
            "ends": reasoning.ends,
            "opens_by_default": reasoning.opens_by_default,
            "interleaved": reasoning.interleaved,
        },
        "tool_markers": sorted(known.markers() - other) if known.tools is not None else [],
        "source": known.source,
    }


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
