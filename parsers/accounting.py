"""Which delta a token's id and log probability travel with, and which channel it counts for.

A token belongs to the channel of its first character that is sent, markers to none (PROTOCOL 4).
Text may be held for a while, so tokens wait here as (start, end) in the model's text until the
text they cover is sent, or is known to be a marker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["NOTHING_TAKEN", "Taken", "Token", "TokenLedger", "account"]


class Token(NamedTuple):
    """One token, or several that only together are text.

    Args:
        start, end: the characters of the model's text that it covers.
        ids: its id (ids).
        logprobs: an entry for each id, or none.
    """

    start: int
    end: int
    ids: tuple[int, ...]
    logprobs: Sequence[Mapping[str, Any]]


class Taken(NamedTuple):
    """What some text accounts for.

    Args:
        ids: ids in order, those of markers before the text included.
        count: how many ids begin in the text itself.
        logprobs: entries of those.
    """

    ids: tuple[int, ...] = ()
    count: int = 0  # type: ignore[assignment]  # hides a method of tuple nobody needs here
    logprobs: tuple[Mapping[str, Any], ...] = ()


NOTHING_TAKEN = Taken()


def account(tokens: Iterable[Token], start: int) -> Taken:
    """The tokens of a text that begins at `start`; what ends before it was a marker."""
    ids: list[int] = []
    logprobs: list[Mapping[str, Any]] = []
    count = 0
    for token in tokens:
        ids += token.ids
        if token.end > start:
            count += len(token.ids)
            logprobs += token.logprobs
    return Taken(tuple(ids), count, tuple(logprobs))


class TokenLedger:
    """Tokens whose text is not decided yet."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Token] = deque()

    def put(self, token: Token) -> None:
        """A token has come."""
        self._waiting.append(token)

    def before(self, end: int) -> list[Token]:
        """Take the tokens that begin before `end`."""
        waiting = self._waiting
        taken = []
        while waiting and waiting[0].start < end:
            taken.append(waiting.popleft())
        return taken

    def rest(self) -> list[Token]:
        """Take all that still wait, at the end of the output."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken
