"""Random tool schemas: nested three deep, arrays, enums, anyOf, optional members, bounds, keys beyond ASCII."""

from __future__ import annotations

import random
from typing import Any, Final

__all__ = ["random_tool"]

DEPTH: Final = 3
NAMES: Final = ("city", "größe", "名前", "count", "mode", "notes", "über_uns", "items", "x1", "émoji🚀")
WORDS: Final = ("red", "green", "grün", "蓝", "on", "off")


def random_tool(seed: int) -> dict[str, Any]:
    """The tool of this seed; strings and arrays are bounded, so that a small model comes to an end."""
    chance = random.Random(seed)
    return {
        "type": "function",
        "function": {
            "name": f"tool_{seed}",
            "description": "Does what the user asks for",
            "parameters": _object(chance, DEPTH),
        },
    }


def _object(chance: random.Random, depth: int) -> dict[str, Any]:
    names = chance.sample(NAMES, chance.randint(1, 3))
    required = [name for name in names if chance.random() < 0.7] or names[:1]
    return {
        "type": "object",
        "properties": {name: _value(chance, depth - 1) for name in names},
        "required": required,
        "additionalProperties": False,
    }


def _value(chance: random.Random, depth: int) -> dict[str, Any]:
    if depth > 0 and chance.random() < 0.5:
        if chance.random() < 0.6:
            return _object(chance, depth)
        return {"type": "array", "items": _value(chance, depth - 1), "minItems": chance.randint(0, 2), "maxItems": 3}
    low = chance.randint(-50, 50)
    return chance.choice(
        [
            {"type": "string", "maxLength": 12},
            {"type": "string", "enum": chance.sample(WORDS, 3)},
            {"type": "integer", "minimum": low, "maximum": low + chance.randint(0, 200)},
            {"type": "boolean"},
            {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "null"}]},
            {"anyOf": [{"type": "string", "enum": list(WORDS[:2])}, {"type": "boolean"}]},
            {"const": chance.choice(WORDS)},
        ]
    )
