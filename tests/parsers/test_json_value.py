"""The incremental JSON check against `json` itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.json_prefix import is_prefix
from tristream.parsers.arguments.json_value import JsonValue, escape_control


def read(text: str, size: int = 1) -> tuple[str, str, JsonValue]:
    """What passed, what was refused, and the check."""
    value, out = JsonValue(), list[str]()
    for at in range(0, len(text), size):
        piece = text[at : at + size]
        end = value.feed(piece, 0, out)
        if end < len(piece):
            return "".join(out), text[at + end :], value
    return "".join(out), "", value


texts = st.text(alphabet='{}[]":,\\/truefalsn0.5-eE+ \n\tu0aé', max_size=16)
valid = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@given(texts | valid.map(json.dumps), st.integers(1, 5))
@settings(max_examples=400)
def test_what_passes_is_the_longest_prefix_of_json(text: str, size: int) -> None:
    text = "[" + text  # where a bare number ends only its reader knows
    sent, refused, value = read(text, size)
    if not any(char < " " for char in text):
        assert sent + refused == text
    assert is_prefix(sent) or not sent
    if refused and not value.done:
        assert not is_prefix(text[: len(text) - len(refused) + 1])
    if value.done:
        json.loads(sent)


@given(valid.filter(lambda value: isinstance(value, dict | list | str)), st.booleans(), st.integers(1, 7))
def test_json_is_done_where_it_ends(value: Any, ascii_only: bool, size: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    sent, refused, check = read(f"{text}, x", size)
    assert (sent, refused, check.done) == (text, ", x", True)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('{"a" "b"}', '{"a" '),
        ('{"a": 1 "b"}', '{"a": 1 '),
        ('{"a", 1}', '{"a"'),
        ("{1: 2}", "{"),
        ("{[1]: 2}", "{"),
        ('{"a": [}', '{"a": ['),
        ('["a" {', '["a" '),
        ("[1 [", "[1 "),
        ("[}", "["),
        ("[1,]", "[1,"),
        ("[01]", "[0"),
        ("[-a]", "[-"),
        ("[1.e3]", "[1."),
        ("[1e+]", "[1e+"),
        ("[nul]", "[nul"),
        ("[True]", "["),
        ("[NaN]", "["),
        ('["\\x"]', '["\\'),
        ('["\\u12g4"]', '["\\u12'),
        ("['a']", "["),
        ("// x", ""),
    ],
)
def test_sending_stops_before_what_cannot_follow(text: str, passes: str) -> None:
    for size in (1, 3, 100):
        sent, _, value = read(text, size)
        assert sent == passes
        assert value.invalid
        assert not value.done


def test_raw_control_characters_in_strings_are_escaped() -> None:
    raw = '{"a\n": "\t\r\b\f\x01\x1f"}'
    assert read(raw)[0] == read(raw, 100)[0] == '{"a\\n": "\\t\\r\\b\\f\\u0001\\u001f"}'
    assert escape_control("\n") == "\\n"
    assert escape_control("\x7f") == "\\u007f"


def test_the_fast_path_takes_all_or_nothing() -> None:
    value = JsonValue()
    value.feed('{"a": "', 0, [])
    assert value.passed("plain") == "plain"
    assert value.passed('end", "b": [1, "') == 'end", "b": [1, "'
    assert value.passed("raw\n") is None
    assert value.passed('x"]}') is None
    assert value.passed('x", }') is None
    assert value.passed("more") == "more"
    out: list[str] = []
    assert value.feed('"]} rest', 0, out) == 3
    assert (out, value.done) == (['"]}'], True)


def test_deep_nesting_is_no_recursion() -> None:
    text = "[" * 100_000 + "]" * 100_000
    sent, refused, value = read(text, 1000)
    assert (len(sent), refused, value.done) == (200_000, "", True)
