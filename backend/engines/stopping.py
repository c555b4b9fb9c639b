"""Stop strings, over tokens: which tokens may be sent, and where the answer ends.

Matching is on bytes, since a token may hold part of a character. A token is held back while its text may
still belong to a stop string. Once one is complete, tokens that begin before it are sent, the others never; a token
that begins before it and ends within it is sent whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

__all__ = ["StopMatcher"]


class StopMatcher(Generic[Item]):
    """Watches one choice. An item is a token and what goes with it.

    Args:
        stops: the stop strings; none passes every token on at once.
    """

    __slots__ = ("_held", "_stops", "_tail", "_tail_start")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(text.encode("utf-8", "replace") for text in stops)
        self._held: list[tuple[Item, int]] = []
        # text from the first position that a stop string may begin at, and that position
        self._tail = b""
        self._tail_start = 0

    def push(self, item: Item, text: bytes) -> tuple[list[Item], bool]:
        """Take the next token.

        Args:
            item: what to hand back once it may be sent.
            text: its bytes; empty for a token without text.

        Returns:
            Items that may be sent now, and whether a stop string is complete.
        """
        if not self._stops:
            return [item], False
        self._held.append((item, self._tail_start + len(self._tail)))
        self._tail += text
        found = [at for at in map(self._tail.find, self._stops) if at >= 0]
        keep_from = min(found) if found else self._open_at()
        self._tail_start += keep_from
        self._tail = self._tail[keep_from:]
        passed = [held for held, start in self._held if start < self._tail_start]
        if found:
            self._held.clear()
            return passed, True
        if not self._tail:
            passed = self.flush()
        else:
            del self._held[: len(passed)]
        return passed, False

    def flush(self) -> list[Item]:
        """All items held back: the answer ends for another reason."""
        held = [item for item, _ in self._held]
        self._held.clear()
        return held

    def _open_at(self) -> int:
        """Where the earliest suffix of the tail begins that may become a stop string."""
        longest = max(map(len, self._stops)) - 1
        for at in range(max(0, len(self._tail) - longest), len(self._tail)):
            if any(stop.startswith(self._tail[at:]) for stop in self._stops):
                return at
        return len(self._tail)
