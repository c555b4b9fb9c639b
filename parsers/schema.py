"""Types of parameter values, read from the tools' JSON schemas; text of a value -> JSON text.

Formats that write values as text between tags need the schema to know a number from a string
(PROTOCOL 5, "Types"). A schema is read once per tool set and shared: `compile_tools` keeps the
last ones by content.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final

from .request import ToolDefinition

__all__ = [
    "ANY_JSON",
    "ANY_STRING",
    "ParameterType",
    "ToolIndex",
    "ToolTypes",
    "compile_tools",
    "convert",
    "kinds_of",
    "member_schema",
]

_DEPTH_LIMIT: Final = 64
"""Deepest schema and deepest Python literal that is read; requests are refused above it (DESIGN 8)."""

_LITERAL_LIMIT: Final = 65_536
"""Longest value tried as a Python literal, in characters: `ast` needs far more memory than the text."""

_ALIASES: Final = {
    "str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
    "int": "integer", "int32": "integer", "int64": "integer", "long": "integer", "short": "integer",
    "float": "number", "double": "number", "decimal": "number",
    "bool": "boolean", "dict": "object", "map": "object", "list": "array", "tuple": "array",
}  # fmt: skip
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_COMBINING: Final = frozenset((*_LISTS, "$ref"))
_KINDS: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


@dataclass(frozen=True, slots=True)
class ParameterType:
    """What a parameter may be.

    Args:
        kinds: JSON schema type names; empty means undeclared, which is read as string.
        words: the only strings there are, where the schema lists them (`enum`, `const`); empty = any.
    """

    kinds: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    @property
    def is_string(self) -> bool:
        """A string is allowed: the text is the value."""
        return not self.kinds or "string" in self.kinds

    @property
    def streams(self) -> bool:
        """A string, and not one of a few words: blanks around those are framing, so they wait for their end."""
        return self.is_string and not self.words

    @property
    def is_nullable(self) -> bool:
        """`null` is allowed."""
        return "null" in self.kinds


ANY_STRING: Final = ParameterType()
ANY_JSON: Final = ParameterType(_KINDS - {"string"})
"""The format itself says that a value is JSON."""


@dataclass(frozen=True, slots=True)
class ToolTypes:
    """Parameter types of one tool.

    Args:
        parameters: declared parameters; their order is the schema's.
        extra: the type of parameters that are not declared.
        schema: the tool's schema, for values that nest.
    """

    parameters: Mapping[str, ParameterType] = field(default_factory=dict)
    extra: ParameterType = ANY_STRING
    schema: Any = None

    def of(self, name: str) -> ParameterType:
        """The type of the parameter called `name`."""
        return self.parameters.get(name, self.extra)


@dataclass(frozen=True, slots=True)
class ToolIndex:
    """Types of all declared tools, by name."""

    tools: Mapping[str, ToolTypes] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.tools

    def __iter__(self) -> Iterator[str]:
        return iter(self.tools)

    def of(self, name: str) -> ToolTypes:
        """Types of the tool called `name`; of an undeclared one, everything is a string."""
        return self.tools.get(name, _NO_TYPES)


_NO_TYPES: Final = ToolTypes()


def compile_tools(tools: tuple[ToolDefinition, ...]) -> ToolIndex:
    """The index of a tool set; equal sets share one (immutable, bounded)."""
    if not tools:
        return _EMPTY
    return _compile(tuple((tool.name, json.dumps(tool.parameters, sort_keys=True)) for tool in tools))


_EMPTY: Final = ToolIndex()


@lru_cache(maxsize=256)
def _compile(tools: tuple[tuple[str, str], ...]) -> ToolIndex:
    return ToolIndex({name: _tool_types(json.loads(parameters)) for name, parameters in tools})


def _tool_types(schema: Any) -> ToolTypes:
    parameters: dict[str, ParameterType] = {}
    extra = ANY_STRING
    for branch in _branches(schema, schema, 0):
        properties = branch.get("properties")
        if isinstance(properties, Mapping):
            for name, member in properties.items():
                kinds = kinds_of(member, schema)
                words = _words_of(member, schema)
                if name in parameters:
                    kinds |= parameters[name].kinds
                    words = frozenset()
                parameters[name] = ParameterType(kinds, words)
        additional = branch.get("additionalProperties")
        if isinstance(additional, Mapping):
            extra = ParameterType(kinds_of(additional, schema))
    return ToolTypes(parameters, extra, schema)


def member_schema(schema: Any, name: str | None, root: Any) -> Any:
    """The schema of the member called `name` of an object, or (None) of an array's items; {} if undeclared."""
    for branch in _branches(schema, root, 0):
        if name is None:
            if "items" in branch:
                return branch["items"]
            continue
        properties = branch.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            return properties[name]
        if isinstance(branch.get("additionalProperties"), Mapping):
            return branch["additionalProperties"]
    return {}


def kinds_of(schema: Any, root: Any) -> frozenset[str]:
    """The JSON types that a schema admits; empty where it names none."""
    found: set[str] = set()
    for branch in _branches(schema, root, 0):
        declared = branch.get("type")
        names = declared if isinstance(declared, list) else [declared]
        known = {_ALIASES.get(name, name) for name in names if isinstance(name, str)} & _KINDS
        found |= known
        if known:
            continue
        values = branch["enum"] if isinstance(branch.get("enum"), list) else []
        found |= {_kind_of(value) for value in ([*values, branch["const"]] if "const" in branch else values)}
        if "properties" in branch:
            found.add("object")
        if "items" in branch or "prefixItems" in branch:
            found.add("array")
    return frozenset(found)


def _words_of(schema: Any, root: Any) -> frozenset[str]:
    """The strings that `enum` or `const` list; empty where another string may be admitted too."""
    words: set[str] = set()
    for branch in _branches(schema, root, 0):
        values = [branch["const"]] if "const" in branch else branch.get("enum")
        if isinstance(values, list):
            words.update(value for value in values if isinstance(value, str))
        elif _COMBINING.isdisjoint(branch) and "string" in (kinds_of(branch, root) or ("string",)):
            return frozenset()
    return frozenset(words)


def _branches(schema: Any, root: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The schema and all it refers to by `$ref`, `anyOf`, `oneOf`, `allOf`."""
    if not isinstance(schema, Mapping) or depth > _DEPTH_LIMIT:
        return
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, Mapping) else None
        # Every hop counts double, so that a circle of references ends after 32.
        yield from _branches(target, root, depth + 2)
    for word in _LISTS:
        options = schema.get(word)
        for option in options if isinstance(options, list) else ():
            yield from _branches(option, root, depth + 1)


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def convert(text: str, kind: ParameterType) -> tuple[str, bool]:
    """A parameter's text as JSON text, and whether it fits its declared type.

    What fits no declared type is a JSON string of the text as written.
    """
    if kind.is_string:
        if kind.is_nullable and text == "null":
            return "null", True
        word = text.strip()
        return encode_basestring(word if word in kind.words else text), True
    trimmed = text.strip()
    if kind.is_nullable and trimmed in ("null", "None"):
        return "null", True
    value, dumped = _read(trimmed)
    if dumped is not None:
        if _kind_of(value) in kind.kinds:
            return dumped, True
        if isinstance(value, int | float) and not isinstance(value, bool):
            if "number" in kind.kinds:
                return dumped, True
            if "integer" in kind.kinds and isinstance(value, float) and value.is_integer():
                return str(int(value)), True
    return encode_basestring(text), False


def _read(text: str) -> tuple[Any, str | None]:
    """A value written as JSON, else as a Python literal: the value, and its JSON text or None."""
    try:
        return json.loads(text, parse_constant=_refuse), text
    except (ValueError, RecursionError):
        pass
    if len(text) > _LITERAL_LIMIT or _nesting(text) > _DEPTH_LIMIT:
        return None, None
    try:
        value = ast.literal_eval(text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return None, None  # numbers follow JSON's grammar only
        return value, json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None, None


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth -= 1
    return deepest
