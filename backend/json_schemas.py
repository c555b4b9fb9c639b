"""Is this a JSON schema? Checked before anything compiles it, in bounded time and without recursion.

Looks at the shape of every keyword that the grammar compiler or the parser reads, and at references; unknown
keywords are annotations, as JSON Schema (draft 2020-12, core 4.3.1) has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from tristream.parsers.errors import RequestError

from .json_text import shown

__all__ = ["MAX_ENUM_VALUES", "MAX_SCHEMA_DEPTH", "check_schema"]

MAX_SCHEMA_DEPTH: Final = 64
MAX_ENUM_VALUES: Final = 4096
TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")

_SCHEMA: Final = (
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
)
_SCHEMA_MAP: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LIST: Final = ("anyOf", "oneOf", "allOf", "prefixItems")


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


_VALUES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    **dict.fromkeys(
        (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ),
        (_count, "a whole number from 0"),
    ),
    **dict.fromkeys(("minimum", "maximum"), (_number, "a number")),
    # draft 4 has a flag here
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), (lambda v: _number(v) or _flag(v), "a number")),
    "multipleOf": (lambda v: _number(v) and v > 0, "a number over 0"),
    **dict.fromkeys(("pattern", "format", "title", "description", "$ref", "$anchor"), (_text, "a string")),
    "uniqueItems": (_flag, "true or false"),
}
"""Keyword -> its test, and what is allowed."""


def check_schema(schema: Any, field: str, *, object_only: bool = False) -> None:
    """Check a schema from a request.

    Args:
        schema: parsed JSON.
        field: how errors name it.
        object_only: it describes arguments, so its top must admit an object.

    Raises:
        RequestError: it is no schema, too deep, has too many enum values, or a `$ref` that leads nowhere.
    """
    if not isinstance(schema, dict) and (object_only or not isinstance(schema, bool)):
        raise RequestError(field, shown(schema), "a JSON schema object")
    if object_only and isinstance(schema, dict):
        kinds = schema.get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            raise RequestError(f"{field}.type", shown(kinds), "'object': arguments are one")
    enum_values = 0
    waiting: list[tuple[Any, str, int]] = [(schema, field, 1)]
    while waiting:
        part, where, depth = waiting.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise RequestError(where, shown(part), "a JSON schema: an object, true or false")
        if depth > MAX_SCHEMA_DEPTH:
            raise RequestError(
                field, f"schemas nested over {MAX_SCHEMA_DEPTH} deep", f"at most {MAX_SCHEMA_DEPTH} levels"
            )
        enum_values += _check_keywords(part, where)
        if enum_values > MAX_ENUM_VALUES:
            raise RequestError(
                f"{where}.enum", f"over {MAX_ENUM_VALUES} values", f"at most {MAX_ENUM_VALUES} in a schema"
            )
        if "$ref" in part:
            _check_reference(schema, part["$ref"], f"{where}.$ref")
        waiting.extend((inner, name, depth + 1) for inner, name in _subschemas(part, where))


def _check_keywords(schema: Mapping[str, Any], where: str) -> int:
    """The keywords that hold no schemas; returns the number of enum values."""
    for keyword, (fits, allowed) in _VALUES.items():
        if keyword in schema and not fits(schema[keyword]):
            raise RequestError(f"{where}.{keyword}", shown(schema[keyword]), allowed)
    if "type" in schema:
        kinds = schema["type"]
        listed = kinds if isinstance(kinds, list) else [kinds]
        if not listed or any(kind not in TYPES for kind in listed):
            raise RequestError(f"{where}.type", shown(kinds), ", ".join(TYPES) + ", or a list of these")
    if "required" in schema:
        names = schema["required"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RequestError(f"{where}.required", shown(names), "a list of property names")
    if "enum" not in schema:
        return 0
    values = schema["enum"]
    if not isinstance(values, list) or not values:
        raise RequestError(f"{where}.enum", shown(values), "a list of at least one value")
    return len(values)


def _subschemas(schema: Mapping[str, Any], where: str) -> Iterator[tuple[Any, str]]:
    for keyword in _SCHEMA:
        if keyword in schema:
            yield schema[keyword], f"{where}.{keyword}"
    for keyword in _SCHEMA_MAP:
        if keyword in schema:
            if not isinstance(schema[keyword], dict):
                raise RequestError(f"{where}.{keyword}", shown(schema[keyword]), "an object of schemas")
            for name, inner in schema[keyword].items():
                yield inner, f"{where}.{keyword}.{name[:64]}"
    lists: tuple[str, ...] = _SCHEMA_LIST
    if "items" in schema:
        if isinstance(schema["items"], list):
            lists = (*lists, "items")
        else:
            yield schema["items"], f"{where}.items"
    for keyword in lists:
        if keyword in schema:
            if not isinstance(schema[keyword], list) or not schema[keyword]:
                raise RequestError(f"{where}.{keyword}", shown(schema[keyword]), "a list of at least one schema")
            for index, inner in enumerate(schema[keyword]):
                yield inner, f"{where}.{keyword}[{index}]"


def _check_reference(root: Any, reference: str, where: str) -> None:
    """Follow a `$ref`, and those it leads to, until something else than a bare reference comes."""
    seen: set[str] = set()
    while True:
        if reference in seen:
            raise RequestError(where, f"{shown(reference)}, which leads back to itself", "a reference to a schema")
        seen.add(reference)
        target = _resolve(root, reference, where)
        if isinstance(target, bool):
            return
        if not isinstance(target, dict):
            raise RequestError(where, f"{shown(reference)}, which is no schema", "a reference to a schema")
        if not isinstance(target.get("$ref"), str):
            return
        reference = target["$ref"]


def _resolve(root: Any, reference: str, where: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        raise RequestError(where, shown(reference), "a reference within the schema: #/$defs/...")
    target = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and name in target:
            target = target[name]
        elif (
            isinstance(target, list) and name.isascii() and name.isdigit() and len(name) < 9 and int(name) < len(target)
        ):
            target = target[int(name)]
        else:
            raise RequestError(
                where, f"{shown(reference)}, which leads nowhere", "a reference within the schema: #/$defs/..."
            )
    return target
