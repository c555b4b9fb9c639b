"""The grammar round trip: whatever a family's grammar lets a model write is calls that fit their schemas."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from support.grammar_walks import Walker
from tristream.parsers import ChatOptions, FormatDefinitionError, format_names, load_format, parse
from tristream.parsers.constraint import CALL_SHAPES, CallShape, build_constraint

WALKS: Final = int(os.environ.get("TRISTREAM_WALKS", "8"))
"""Walks of each family; `TRISTREAM_WALKS=200` for the long run."""

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "plan_trip": {
        "type": "object",
        "properties": {
            "stops": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "options": {
                "type": "object",
                "properties": {"größe": {"type": "number"}, "eilig": {"type": "boolean"}},
                "required": ["eilig"],
                "additionalProperties": False,
            },
            "note": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["stops", "options"],
        "additionalProperties": False,
    },
}
TOOLS: Final = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]
FORMATS: Final = [name for name in format_names() if load_format(name).constraint in CALL_SHAPES]


@pytest.fixture(scope="module")
def walker(qwen3_tokenizer: Path) -> Walker:
    return Walker(qwen3_tokenizer)


@pytest.mark.parametrize("format", FORMATS)
def test_every_walk_is_calls_that_fit_their_schemas(format: str, walker: Walker) -> None:
    options = ChatOptions.from_openai({"tools": TOOLS, "tool_choice": "required"})
    calls = CALL_SHAPES[load_format(format).constraint]
    tag = build_constraint(options, calls=calls)
    assert tag is not None
    grammar = walker.compile(tag)
    for seed in range(WALKS):
        text = walker.walk(grammar, calls.style, seed)
        message = parse(text, format, options)
        assert message.tool_calls, (seed, text)
        assert (message.content, message.reasoning) == (None, None), (seed, text, message)
        for call in message.tool_calls:
            assert call.status == "complete", (seed, text, call)
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.parametrize("format", FORMATS)
def test_every_shape_compiles_under_auto_too(format: str, walker: Walker) -> None:
    calls = CALL_SHAPES[load_format(format).constraint]
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}, TOOLS[1]]  # type: ignore[dict-item]
    tag = build_constraint(ChatOptions.from_openai({"tools": strict}), calls=calls)
    assert (tag is None) == (not calls.opener)
    if tag is not None:
        walker.compile(tag)


def test_a_shape_without_the_functions_name_is_refused() -> None:
    with pytest.raises(FormatDefinitionError, match="must start with"):
        CallShape(opener="<x>", begin="<x>", end="")
