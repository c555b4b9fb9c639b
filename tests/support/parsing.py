"""Outputs through the core, and recorded cases as tests see them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tristream.parsers import ChatOptions, ChatStream, Delta, Message, MessageDelta

__all__ = [
    "VECTORS",
    "call",
    "case_options",
    "family_cases",
    "notices",
    "pieces",
    "run",
    "tool",
    "vectors",
]

VECTORS: Final = Path(__file__).parents[1] / "vectors"


@cache
def vectors() -> tuple[dict[str, Any], ...]:
    """All cases of `tests/vectors`."""
    cases: list[dict[str, Any]] = []
    for path in sorted(VECTORS.rglob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            cases += map(json.loads, lines)
    return tuple(cases)


@cache
def family_cases() -> dict[str, list[dict[str, Any]]]:
    """The vectors of the families, by format."""
    found: dict[str, list[dict[str, Any]]] = {}
    for case in vectors():
        if case["id"].startswith("family-"):
            found.setdefault(case["format"], []).append(case)
    return found


def case_options(case: Mapping[str, Any], **members: Any) -> ChatOptions:
    """The options of a case's request."""
    body = {**(case.get("options") or {}), "tools": case.get("tools") or None, **members}
    return ChatOptions.from_openai(body, id_seed="replay")


def run(
    format: str,
    output: str | Iterable[Delta],
    body: Mapping[str, Any] | None = None,
    *,
    prompt_tail: str | None = None,
    finish: Any = "stop",
    special: Collection[str] = (),
    added: Collection[str] | None = None,
    **counts: int,
) -> list[MessageDelta]:
    """All message deltas of an output; a string is one Delta."""
    options = ChatOptions.from_openai(body or {}, id_seed="seed")
    stream = ChatStream(format, options, prompt_tail, special, added)
    deltas = [Delta(output)] if isinstance(output, str) else output
    return [*(sent for delta in deltas for sent in stream.feed(delta)), *stream.finish(finish, **counts)]


def pieces(text: str, cuts: Sequence[int]) -> Iterator[str]:
    """The text, cut at these places."""
    edges = sorted({0, len(text), *(cut for cut in cuts if 0 < cut < len(text))})
    return (text[start:end] for start, end in itertools.pairwise(edges))


def tool(name: str, properties: Mapping[str, Any] | None = None, **schema: Any) -> dict[str, Any]:
    """A tool definition."""
    parameters = {"type": "object", "properties": dict(properties or {}), **schema}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def call(name: str, arguments: str) -> str:
    """A call as Hermes writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def notices(message: Message) -> dict[str, int]:
    """Counts by code."""
    return {notice.code: notice.count for notice in message.notices}
