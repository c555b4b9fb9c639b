"""Outputs of every family cut by length, anywhere: what was sent stays, nothing is closed artificially (PROTOCOL 5)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pytest

from support.fragments import literals
from support.parsing import family_cases
from tristream.parsers import Message
from tristream.parsers.replay import fold_chunks

KINDS: Final = ("nested", "two-calls", "thinks-calls", "text-around", "marker-in-value", "preamble", "commentary")
STEP: Final = 3
HALF_HEADER: Final = "plamo3"
"""Cut in the optional part of its header, what is there reads as arguments that are no JSON."""
CASES: Final = {
    format: [case for case in cases if case["id"].removeprefix(f"family-{format}-") in KINDS]
    for format, cases in family_cases().items()
}


def in_pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def cuts(format: str, text: str) -> Iterable[int]:
    """Every third place, and those next to where a marker begins or ends."""
    places = set(range(1, len(text), STEP))
    for literal in literals(format):
        at = text.find(literal) if len(literal) > 1 else -1
        while at >= 0:
            end = at + len(literal)
            places |= {at, at + 1, end - 1, end, end + 1}
            at = text.find(literal, end)
    return sorted(place for place in places if 0 < place < len(text))


def common(one: str, other: str) -> int:
    """How many characters they begin with are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def is_cut(sent: str, uncut: str, output: str) -> bool:
    """Is it the beginning of these arguments? The held beginning of a closer is released at the end (PROTOCOL 1)."""
    same = common(sent, uncut)
    tails = (json.dumps(output[-size:], ensure_ascii=False)[1:-1] for size in range(1, 24))
    return sent == uncut[:same] or any(sent.endswith(tail) and len(sent) - len(tail) <= same for tail in tails)


def check(case: dict[str, Any], cut: int, uncut: Message) -> None:
    format = case["format"]
    where = f"{case['id']} cut at {cut}: {case['output'][:cut]!r}"
    short = {**case, "output": case["output"][:cut], "finish": "length"}
    whole = fold_chunks(short, [short["output"]])
    # The two sizes take turns: with both at every place this would take minutes.
    size = 1 if cut % 2 else 5
    assert fold_chunks(short, in_pieces(short["output"], size)) == whole, f"{where}, in pieces of {size}"
    assert whole.finish_reason == "length", where
    assert len(whole.tool_calls) <= len(uncut.tool_calls), where
    for got, call in zip(whole.tool_calls, uncut.tool_calls, strict=False):
        assert (got.id, got.name) == (call.id, call.name), where
        assert got.status in ("complete", "incomplete") or (got.status, format) == ("invalid", HALF_HEADER), where
        if got.status == "complete":
            assert got.arguments == call.arguments, where
        else:
            text = got.arguments
            if case["id"].endswith("marker-in-value") and short["output"].rstrip().endswith(">"):
                text = text.removesuffix('"')  # at the end of the output the marker in the value is its closer
            assert is_cut(text, call.arguments, short["output"]), f"{where}: {got.arguments!r}"
    assert all(call.status == "complete" for call in whole.tool_calls[:-1]), where
    assert (uncut.reasoning or "").startswith(whole.reasoning or "") or not whole.tool_calls, where


@pytest.mark.parametrize("format", [format for format, cases in CASES.items() if cases])
def test_cut_by_length(format: str) -> None:
    for case in CASES[format]:
        uncut = fold_chunks(case, [case["output"]])
        for cut in cuts(format, case["output"]):
            check(case, cut, uncut)
