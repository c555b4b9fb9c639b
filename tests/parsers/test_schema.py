"""Types by schema: what the vectors of types do not reach."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tristream.parsers import ToolDefinition
from tristream.parsers.schema import ANY_STRING, ParameterType, compile_tools, convert, kinds_of

ALL = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


def kinds(schema: Any) -> frozenset[str]:
    return compile_tools((ToolDefinition("f", {"properties": {"v": schema}}),)).of("f").of("v").kinds


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["integer", "null", "weird"]}, {"integer", "null"}),
        ({"type": "enum", "enum": ["a"]}, {"string"}),
        ({"type": 3}, set()),
        (True, set()),
        ({"enum": "abc"}, set()),
        ({"enum": [1, 1.5, "a", True, None, [], {}]}, ALL),
        ({"const": None}, {"null"}),
        ({"prefixItems": []}, {"array"}),
        ({"anyOf": [{"type": "integer"}, "junk", {"oneOf": [{"type": "boolean"}]}]}, {"integer", "boolean"}),
        ({"anyOf": {"type": "integer"}}, set()),
        ({"$ref": 1}, set()),
        ({"$ref": "#/properties/v"}, set()),
    ],
)
def test_kinds(schema: Any, expected: set[str]) -> None:
    assert kinds(schema) == expected


def test_a_schema_deeper_than_the_limit_is_not_read() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(80):
        schema = {"anyOf": [schema]}
    assert kinds_of(schema, schema) == frozenset()


def test_equal_tools_share_one_index() -> None:
    schema = {"properties": {"v": {"type": "integer"}}}
    first, second = (compile_tools((ToolDefinition("f", schema),)) for _ in range(2))
    assert first is second
    assert "f" in first
    assert list(first) == ["f"]
    assert "g" not in first
    assert first.of("g").of("v") is ANY_STRING
    assert list(compile_tools(())) == []


NO_BOOLEAN = (
    "[" * 100 + "]" * 100, "('" + "x" * 70_000 + "',)", "[1,", "{}[", "[b'x']", "{1: {2}}", "[1j]", "[...]", "[float]",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_BOOLEAN)
def test_what_is_no_value_of_its_type_is_a_string(text: str) -> None:
    written, fits = convert(text, ParameterType(frozenset({"boolean"})))
    assert json.loads(written) == text
    assert not fits


@given(st.text(max_size=30), st.sets(st.sampled_from(sorted(ALL))))
def test_any_text_becomes_json(text: str, names: set[str]) -> None:
    written, fits = convert(text, ParameterType(frozenset(names)))
    value = json.loads(written)
    if not fits:
        assert value == text
    if not names:
        assert (value, fits) == (text, True)


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_a_python_literal_is_read_as_what_it_says(value: Any) -> None:
    kind = ParameterType(frozenset({"array", "object", "boolean", "null"}))
    written, fits = convert(repr(value), kind)
    if isinstance(value, str):
        assert not fits
    else:
        assert (json.loads(written), fits) == (value, True)
