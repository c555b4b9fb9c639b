"""The search for places where a terminal may begin: one compiled regular expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

__all__ = ["candidate_regex"]


def candidate_regex(literals: Iterable[str], *, framed: bool = False) -> Callable[..., re.Match[str] | None]:
    """Search for the first two characters of any literal, or the first one at the text's end.

    Searching one character would stop four times as often in text full of `<` (DESIGN 4).

    Args:
        literals: beginnings of terminals.
        framed: a newline before one of them, or at the text's end, is a candidate too.
    """
    seconds: dict[str, set[str]] = {}
    for literal in literals:
        seconds.setdefault(literal[0], set()).add(literal[1:2])
    parts = []
    for first, following in seconds.items():
        if "" in following:
            parts.append(re.escape(first))
        else:
            parts.append(f"{re.escape(first)}(?:[{''.join(map(re.escape, sorted(following)))}]|\\Z)")
    if framed and seconds:
        parts.append(f"\\n(?:[{''.join(map(re.escape, sorted(seconds)))}]|\\Z)")
    return re.compile("|".join(parts) if parts else r"(?!)").search
