"""Arguments written as nested elements: `<city>Paris</city>`, where every tag bears a prefix (MiniMax M3).

A string parameter streams as it comes. One that may be anything else is held to its closing tag and
then read as a tree: elements become members, repeated ones lists, by the schema (FORMATS 3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final

from ..candidates import candidate_regex
from ..header import BLANK_CHARS
from ..schema import ANY_STRING, ParameterType, convert, kinds_of, member_schema
from .decoder import CallContext, End

__all__ = ["NestedElements", "NestedDecoder"]

_TAG_LIMIT: Final = 256
"""Longest tag, in characters."""

_DEPTH_LIMIT: Final = 64
"""Deepest nesting that is read as a tree; what lies deeper stays text."""

_tag: Final = re.compile(r"\s{0,8}<(/?)([^<>\n]{1,240})>").match


@dataclass(frozen=True, slots=True)
class NestedElements:
    """Syntax: nested elements.

    Args:
        prefix: what stands before every tag.
        call: name of the element that is the call; its closing tag ends it.
    """

    prefix: str
    call: str

    def decoder(self, context: CallContext) -> NestedDecoder:
        return NestedDecoder(self, context)

    def translated(self, spell: Callable[[str], str]) -> NestedElements:
        return NestedElements(spell(self.prefix), self.call)


@lru_cache(maxsize=64)
def _stop(prefix: str) -> Callable[..., re.Match[str] | None]:
    return candidate_regex((prefix,))


class NestedDecoder:
    """Reads one call's elements; see `Decoder`."""

    __slots__ = ("_context", "_data", "_held", "_key", "_kind", "_open", "_pieces", "_seen", "end", "id", "name")

    def __init__(self, data: NestedElements, context: CallContext) -> None:
        self.name = context.name
        self.id = context.id
        self.end: End | None = None
        self._data = data
        self._context = context
        self._key = ""  # of the open parameter, "" between parameters
        self._kind: ParameterType = ANY_STRING
        self._open: list[str] = []  # elements open inside a held parameter
        self._pieces: list[tuple[str, str]] = []  # of a held parameter: ("text" | "open" | "close", what)
        self._held = 0
        self._seen: set[str] = set()

    def quick(self) -> Callable[[str], str | None] | None:
        return self._quick if self._key and self._streams else None

    def _quick(self, text: str) -> str | None:
        return None if _stop(self._data.prefix)(text) else encode_basestring(text)[1:-1]

    @property
    def _streams(self) -> bool:
        return self._kind.streams and not self._kind.is_nullable

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        prefix = self._data.prefix
        while self.end is None and pos < len(text):
            match = _stop(prefix)(text, pos)
            at = match.start() if match else len(text)
            if at > pos:
                self._text(text[pos:at], out, pos)
                pos = at
                continue
            tag = _tag(text, pos + len(prefix)) if text.startswith(prefix, pos) else None
            if tag is None:
                if not final and len(text) - pos < len(prefix) + _TAG_LIMIT and "\n" not in text[pos + len(prefix) :]:
                    return pos  # held: the tag is not whole
                self._text(text[pos : pos + 1], out, pos)
                pos += 1
                continue
            following = self._element(tag[2].strip(), bool(tag[1]), text[pos : tag.end()], out, pos, tag.end())
            if following < 0:
                return pos
            pos = following
        return pos

    def _text(self, text: str, out: list[str], pos: int) -> None:
        if not self._key:
            if text.strip(BLANK_CHARS):
                self._context.note("invalid_arguments", pos)
        elif self._streams:
            out.append(encode_basestring(text)[1:-1])
        else:
            self._hold("text", text)

    def _hold(self, kind: str, what: str) -> None:
        self._pieces.append((kind, what))
        self._held += len(what) + 1
        if self._held > self._context.max_held:
            self._context.note("held_text_released", -1)
            self.end = End.INVALID

    def _element(self, name: str, closes: bool, raw: str, out: list[str], pos: int, end: int) -> int:
        """A whole tag: where to go on."""
        if not self._key:
            if closes:
                if name == self._data.call:
                    out.append("}" if self._seen else "{}")
                    self.end = End.COMPLETE
                elif name != self._data.call and name not in self._seen:
                    # Something outside the call: it ends here without its closer.
                    self._context.note("recovered_end", pos)
                    out.append("}" if self._seen else "{}")
                    self.end = End.COMPLETE
                    return pos
                return end
            if name.split(" ")[0] == self._data.call:
                self._context.note("recovered_end", pos)
                out.append("}" if self._seen else "{}")
                self.end = End.COMPLETE
                return pos
            self._begin(name, out, pos)
            return end
        if closes and not self._open and name == self._key:
            self._close(out, pos)
            return end
        if self._streams:
            out.append(encode_basestring(raw)[1:-1])
        elif closes:
            if self._open and self._open[-1] == name:
                self._open.pop()
                self._hold("close", name)
            else:
                self._hold("text", raw)
        else:
            self._open.append(name)
            self._hold("open", name)
        return end

    def _begin(self, key: str, out: list[str], pos: int) -> None:
        if key in self._seen:
            self._context.note("repeated_parameter", pos)
        out.append(f"{', ' if self._seen else '{'}{encode_basestring(key)}: ")
        self._seen.add(key)
        self._key = key
        self._kind = self._context.tools.of(self.name or "").of(key)
        if self._streams:
            out.append('"')

    def _close(self, out: list[str], pos: int) -> None:
        if self._streams:
            out.append('"')
        else:
            tool = self._context.tools.of(self.name or "")
            tree, _ = _tree(self._pieces, 0)
            schema = member_schema(tool.schema, self._key, tool.schema)
            value, fits = _value(tree, schema, tool.schema, self._kind, 0)
            out.append(value)
            if not fits:
                self._context.note("value_type_mismatch", pos)
        self._key = ""
        self._open.clear()
        self._pieces.clear()
        self._held = 0


@dataclass(slots=True)
class _Node:
    text: str
    children: list[tuple[str, _Node]]


def _tree(pieces: list[tuple[str, str]], at: int) -> tuple[_Node, int]:
    """The element whose content begins at piece `at`, and where it ends. Not recursive: nesting is hostile."""
    root = _Node("", [])
    stack = [root]
    for kind, what in pieces[at:]:
        if kind == "text":
            stack[-1].text += what
        elif kind == "open":
            node = _Node("", [])
            stack[-1].children.append((what, node))
            stack.append(node)
        else:
            stack.pop()
    return root, len(pieces)


def _value(node: _Node, schema: Any, root: Any, kind: ParameterType, depth: int) -> tuple[str, bool]:
    """An element as JSON text, and whether it fits its type."""
    if not node.children or depth > _DEPTH_LIMIT:
        return convert(node.text, kind)
    if "array" in kind.kinds and "object" not in kind.kinds:
        items = member_schema(schema, None, root)
        item_kind = ParameterType(kinds_of(items, root))
        values = [_value(child, items, root, item_kind, depth + 1) for _, child in node.children]
        return f"[{', '.join(value for value, _ in values)}]", all(fits for _, fits in values)
    members: dict[str, list[_Node]] = {}
    for name, child in node.children:
        members.setdefault(name, []).append(child)
    parts, all_fit = [], not kind.kinds or "object" in kind.kinds
    for name, nodes in members.items():
        member = member_schema(schema, name, root)
        member_kind = ParameterType(kinds_of(member, root))
        if len(nodes) == 1:
            value, fits = _value(nodes[0], member, root, member_kind, depth + 1)
        else:
            items = member_schema(member, None, root)
            item_kind = ParameterType(kinds_of(items, root))
            read = [_value(one, items, root, item_kind, depth + 1) for one in nodes]
            value, fits = f"[{', '.join(one for one, _ in read)}]", all(fit for _, fit in read)
        all_fit = all_fit and fits
        parts.append(f"{encode_basestring(name)}: {value}")
    if node.text.strip(BLANK_CHARS):
        parts.append(f'"$text": {json.dumps(node.text.strip(BLANK_CHARS), ensure_ascii=False)}')
    return "{" + ", ".join(parts) + "}", all_fit
