"""The search for places where a terminal may begin: one compiled regular expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

__all__ = ["beginning_regex", "candidate_regex"]


@lru_cache(maxsize=4096)
def _compiled(literals: tuple[str, ...], framed: bool) -> re.Pattern[str]:
    trie: dict[str, Any] = {}
    for literal in literals:
        node = trie
        for char in literal:
            node = node.setdefault(char, {})
        node[""] = {}
    if not trie:
        return re.compile(r"(?!)")
    found = _branches(trie)
    return re.compile(f"(?:{found})|\\n(?:\\Z|{found})" if framed else found)


def candidate_regex(literals: Iterable[str], *, framed: bool = False) -> Callable[..., re.Match[str] | None]:
    """Search for any of these literals, or a beginning of one at the text's end.

    A search for their first character alone would stop at every `<` of a program (DESIGN 4), and
    each stop costs more than a hundred characters of search.

    Args:
        literals: beginnings of terminals.
        framed: a newline before one of them, or at the text's end, is a candidate too.
    """
    return _compiled(tuple(sorted(set(literals))), framed).search


def beginning_regex(literals: Iterable[str]) -> Callable[..., re.Match[str] | None]:
    """Match one of these literals at a place (the shortest), or a beginning of one that ends the text there."""
    return _compiled(tuple(sorted(set(literals))), False).match


def _branches(node: dict[str, Any]) -> str:
    """The alternatives below one node of the trie; single characters together as one class."""
    ends = sorted(char for char, below in node.items() if char and "" in below)
    parts = [re.escape(char) + _below(below) for char, below in sorted(node.items()) if char and "" not in below]
    if ends:
        parts.append(f"[{''.join(map(re.escape, ends))}]")
    return "|".join(parts)


def _below(node: dict[str, Any]) -> str:
    """What follows a character: nothing (a literal is complete), the text's end, or more."""
    return f"(?:\\Z|{_branches(node)})"
