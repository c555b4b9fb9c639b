"""`tristream formats`: the formats that are known, with the facts of `docs/formats.md`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tristream.parsers import format_names

from .cli_support import reported, stdout
from .format_facts import all_facts, facts_of
from .formats_page import described

__all__ = ["formats"]


def formats(
    name: Annotated[
        str | None,
        typer.Argument(help="NAME, an alias, or REASONING+TOOLS: tell all about this one.", show_default="all of them"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List the model formats; any two compose as REASONING+TOOLS."""
    with reported():
        if as_json:
            found = all_facts() if name is None else facts_of(name)
            typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
        elif name is None:
            _list()
        else:
            _show(facts_of(name))


def _list() -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    widths = [max(map(len, format_names())), 24, 24 if stdout.width >= 100 else 14]
    widths.append(max(10, stdout.width - sum(widths) - 2 * len(widths)))
    for column, width in zip(("format", "reasoning", "tool calls", "models"), widths, strict=True):
        table.add_column(column, no_wrap=True, width=width, overflow="ellipsis")
    for facts in all_facts():
        reasoning, tools = facts["reasoning"], facts["tools"]
        marks = "by message" if facts["message_frames"] else ""
        if reasoning is not None:
            marks = f"{reasoning['starts'][0]} … {reasoning['ends'][0]}"
        opener = "" if tools is None else next(iter(tools["openers"]), "without a marker")
        table.add_row(
            Text(facts["name"], "bold"),
            Text(_one_line(marks)),
            Text(_one_line(opener)),
            Text(", ".join(facts["models"]), "dim"),
        )
    stdout.print(table, crop=False)
    stdout.print(
        Text(
            "\nAny two compose as REASONING+TOOLS, e.g. qwen3+hermes. `tristream formats NAME` shows one; --json tells "
            "everything.",
            "dim",
        )
    )


def _show(facts: dict[str, Any]) -> None:
    stdout.print(Text(facts["name"], "bold"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for head, text in described(facts):
        table.add_row(Text(head), Text(text))
    stdout.print(table)
    for sample in facts["tools"]["samples"] if facts["tools"] is not None else ():
        stdout.print()
        # Printed as it is: a wrapped sample could not be copied.
        stdout.print(Text(sample), soft_wrap=True)


def _one_line(text: str) -> str:
    return text.replace("\n", "⏎")
