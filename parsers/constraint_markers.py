"""Markers of a structural tag that are one token of the tokenizer: held to that token.

A grammar over text lets a model spell `<tool_call>` in pieces where it would rather have written `<b>`. In the id view
(PROTOCOL 1) that is text, no marker, and the call would be lost. So each marker that is an added token becomes a
`token` node with its id (xgrammar 0.2.9, `structural_tag.py`: TokenFormat, TokenTriggeredTagsFormat).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["bind_markers"]

_Node: TypeAlias = dict[str, Any]


def bind_markers(tag: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """The structural tag with its markers bound to token ids.

    Args:
        tag: what `build_constraint` returns.
        ids: spelling -> id of markers that the tokenizer has as one added token.
    """
    if not ids:
        return dict(tag)
    longest_first = sorted(ids, key=len, reverse=True)
    return {**tag, "format": _Binder(ids, re.compile("|".join(map(re.escape, longest_first)))).bind(tag["format"])}


class _Binder:
    def __init__(self, ids: Mapping[str, int], pattern: re.Pattern[str]) -> None:
        self._ids = ids
        self._pattern = pattern

    def bind(self, node: _Node) -> _Node:
        """The node, rewritten. Free text needs no change: what it excludes, it excludes in every spelling."""
        kind = node["type"]
        if kind == "const_string":
            return _sequence(self._split(node["value"]))
        if kind == "tag":
            return self._tag(node)
        if kind == "triggered_tags":
            return self._triggered(node)
        bound = dict(node)
        for key in ("elements", "tags"):
            if key in node:
                bound[key] = [self.bind(inner) for inner in node[key]]
        if "content" in node:
            bound["content"] = self.bind(node["content"])
        return bound

    def _tag(self, node: _Node) -> _Node:
        begin, end = self._split(node["begin"]), self._split(node["end"])
        first: str | _Node = ""
        last: str | _Node = ""
        if begin and begin[0]["type"] == "token":
            first = begin.pop(0)
        elif begin:
            first = begin.pop(0)["value"]
        if end and end[-1]["type"] == "token":
            last = end.pop()
        elif end:
            last = end.pop()["value"]
        content = [*begin, self.bind(node["content"]), *end]
        return {"type": "tag", "begin": first, "content": _sequence(content), "end": last}

    def _triggered(self, node: _Node) -> _Node:
        """Free text ends at the marker's token; its spelling in pieces is prose, for the parser too."""
        if not all(trigger in self._ids for trigger in node["triggers"]):
            # A trigger of text must be the beginning of its tags' text.
            return {
                **node,
                "tags": [{**self.bind({**tag, "begin": ""}), "begin": tag["begin"]} for tag in node["tags"]],
            }
        tags = [self.bind(tag) for tag in node["tags"]]
        excluded = [self._ids[text] for text in node.get("excludes", ()) if text in self._ids]
        return {
            "type": "token_triggered_tags",
            "trigger_tokens": [self._ids[trigger] for trigger in node["triggers"]],
            "tags": tags,
            "at_least_one": node["at_least_one"],
            "stop_after_first": node["stop_after_first"],
            # others stay possible in pieces, which begin nothing
            **({"exclude_tokens": excluded} if excluded else {}),
        }

    def _split(self, text: str) -> list[_Node]:
        """A literal as const strings and tokens."""
        nodes: list[_Node] = []
        start = 0
        for match in self._pattern.finditer(text):
            if match.start() > start:
                nodes.append({"type": "const_string", "value": text[start : match.start()]})
            nodes.append({"type": "token", "token": self._ids[match[0]]})
            start = match.end()
        if start < len(text):
            nodes.append({"type": "const_string", "value": text[start:]})
        return nodes


def _sequence(nodes: Sequence[_Node]) -> _Node:
    return nodes[0] if len(nodes) == 1 else {"type": "sequence", "elements": list(nodes)}
