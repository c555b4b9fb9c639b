"""Text as no model writes it: pieces of a format's markers, of JSON and of anything, in any order."""

from __future__ import annotations

from functools import cache
from typing import Final

from hypothesis import strategies as st

from tristream.parsers import load_format
from tristream.parsers.format import table
from tristream.parsers.header import translate

__all__ = ["FUNCTION", "SPECIAL", "added_spellings", "fragments", "literals", "outputs"]

FUNCTION: Final = "get_weather"

SPECIAL: Final = ("<|zap|>", "<|zip|>")
"""Spellings that a tokenizer may flag special and no format knows."""

_VALUES: Final = (
    "{", "}", "[", "]", '"', "\\", ",", ":", "null", "true", "True", "1", "-2.5e3", "'x'", '""', "{}", "}}", "}}}",
    FUNCTION, "f", "nope", "city", "days", "tags", '"name"', '"arguments"', '"parameters"', '"function"', '"id"',
    '{"city": "Oslo"}', f'{{"name": "{FUNCTION}", "arguments": {{"city": "Oslo"}}}}',
    '{"arguments": {"a": 1}, "name": "f"}',
    f'[{{"name": "{FUNCTION}", "parameters": {{}}}}, ', '"{\\"city\\": \\"x\\"}"', "\\u00e9", "\\ud83d", "\\ude00",
    f"<function={FUNCTION}>", "<parameter=city>", "<parameter=days>", "<parameter=tags>", "<parameter=nope>",
    f"{FUNCTION}\n```json\n",
)  # fmt: skip
_BLANKS: Final = (" ", "\n", "\n\n", "  ", "\t", "\r\n", " " * 65, "\n" * 1100)
_ANY: Final = (
    "<",
    "</",
    ">",
    "é",
    "🚀",
    "\u2028",
    "\x00",
    "\x1b",
    "\ud800",
    "\udfff",
    "<b>",
    "a < b",
    "x" * 300,
    "x" * 1100,
)


@cache
def literals(name: str) -> tuple[str, ...]:
    """All literal text of a format's terminals and arguments."""
    found: set[str] = set()

    def note(literal: str) -> str:
        found.add(literal)
        return literal

    for (_, pattern), transition in table(load_format(name)).items():
        translate(pattern, note)
        if transition.arguments is not None:
            transition.arguments.translated(note)
    return tuple(sorted(found - {""}))


@cache
def added_spellings(name: str) -> frozenset[str]:
    """The format's markers that a tokenizer would have as tokens of their own."""
    return frozenset(
        literal for literal in literals(name) if len(literal) > 4 and literal[0] == "<" and literal[-1] == ">"
    )


@cache
def fragments(name: str) -> tuple[str, ...]:
    """What outputs of a format are put together of."""
    markers = literals(name)
    halves = {half for marker in markers for half in (marker[: len(marker) // 2], marker[len(marker) // 2 :])}
    return (*markers, *markers, *sorted(halves - {""}), *_VALUES, *_BLANKS, *_ANY, *SPECIAL, "<|z", "ap|>")


def outputs(name: str, pieces: int = 12) -> st.SearchStrategy[list[str]]:
    """Outputs as lists of fragments."""
    return st.lists(st.one_of(st.sampled_from(fragments(name)), st.text(max_size=6)), max_size=pieces)
