"""Replays a recorded output in every chunking and compares the fold with what a client must get.

A case is a dict with the fields of `tests/vectors/README.md`. All chunkings of one case must give
the *same* message, and it must be the expected one (PROTOCOL 1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .chat import ChatStream
from .errors import TristreamError
from .events import Delta
from .formats import load_format
from .header import BLANK_CHARS
from .message import Message, fold
from .request import ChatOptions

__all__ = ["CaseResult", "chunkings", "expectation", "fold_chunks", "outcome", "run_case"]

_SIZES: Final = (1, 2, 3, 5, 16)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How a case went.

    Args:
        id: the case's id.
        passed: every chunking gave the same, expected result.
        chunking: the first that did not, in words.
        got: what it gave, in the shape of `expected`.
        expected: what the case expects.
    """

    id: str
    passed: bool
    chunking: str | None = None
    got: Any = None
    expected: Any = None


def chunkings(text: str, recorded: Sequence[str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Every chunking a case is run in, with its name: whole, recorded, in pieces, at every cut."""
    yield "whole", [text]
    if recorded:
        yield "recorded", list(recorded)
    for size in _SIZES:
        yield f"size {size}", [text[at : at + size] for at in range(0, len(text), size)]
    for cut in range(1, len(text)):
        yield f"cut at {cut}", [text[:cut], text[cut:]]


def fold_chunks(case: Mapping[str, Any], chunks: Sequence[str], options: ChatOptions | None = None) -> Message:
    """The message that these pieces of the case's output fold into.

    Args:
        case: the case.
        chunks: its output in pieces.
        options: those of the case, where they have been read before.
    """
    if options is None:
        options = _options(case)
    stream = ChatStream(load_format(case["format"]), options, case.get("prompt_tail"))
    deltas = [delta for chunk in chunks for delta in stream.feed(Delta(chunk))]
    return fold((*deltas, *stream.finish(case.get("finish") or "stop")))


def _options(case: Mapping[str, Any]) -> ChatOptions:
    body = {**(case.get("options") or {}), "tools": case.get("tools") or None}
    return ChatOptions.from_openai(body, id_seed="replay")


def run_case(case: Mapping[str, Any]) -> CaseResult:
    """Run one case in every chunking, text view. A case that cannot be run has failed; nothing raises."""
    identifier = str(case.get("id", ""))
    expected = case.get("expect")
    first: Message | None = None
    name = "whole"
    try:
        options = _options(case)
        for name, chunks in chunkings(case["output"], case.get("chunks")):
            message = fold_chunks(case, chunks, options)
            if first is None:
                first = message
                if not _matches(message, case):
                    return CaseResult(identifier, False, name, outcome(message), expected)
            elif message != first:
                return CaseResult(identifier, False, name, outcome(message), outcome(first))
    except (TristreamError, KeyError, TypeError) as error:
        return CaseResult(identifier, False, name, f"{type(error).__name__}: {error}", expected)
    return CaseResult(identifier, True)


def outcome(message: Message) -> dict[str, Any]:
    """A message in the shape of a case's `expect`."""
    calls: list[dict[str, Any]] = []
    for call in message.tool_calls:
        if call.status == "complete":
            calls.append({"name": call.name, "arguments": json.loads(call.arguments)})
        else:
            calls.append({"name": call.name, "arguments": None, "arguments_text": call.arguments})
    return {
        "reasoning": message.reasoning,
        "content": message.content,
        "tool_calls": calls,
        "finish_reason": message.finish_reason,
    }


def expectation(case: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the case accepts: `expect`, or one of `alt`."""
    return [case["expect"], *(case.get("alt") or ())]


def _matches(message: Message, case: Mapping[str, Any]) -> bool:
    got = outcome(message)
    strip = case.get("compare") == "strip"
    for expected in expectation(case):
        calls = got["tool_calls"]
        if not expected["tool_calls"]:
            calls = [call for call in calls if call["arguments"] is not None]
        if (
            _exactly(calls) == _exactly(expected["tool_calls"])
            and got["finish_reason"] == expected["finish_reason"]
            and all(_text(got[name], strip) == _text(expected[name], strip) for name in ("reasoning", "content"))
        ):
            return True
    return False


def _exactly(value: Any) -> str:
    """Values that compare as JSON does: 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


def _text(text: str | None, strip: bool) -> str:
    return (text or "").strip(BLANK_CHARS) if strip else text or ""
