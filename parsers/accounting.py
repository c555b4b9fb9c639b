"""Which delta a token's id and log probability travel with, and which channel it counts for.

A token belongs to the channel of its first character that is sent, markers to none (PROTOCOL 4).
Text may be held for a while, so tokens wait here as (start, end) in the model's text until the
text they cover is sent, or is known to be a marker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from .events import UNKNOWN_ID

__all__ = ["NOTHING_TAKEN", "Taken", "Token", "TokenLedger", "account"]

_start: Final = attrgetter("start")


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
        count: how many tokens begin in the text itself.
        logprobs: entries of those.
    """

    count: int = 0  # type: ignore[assignment]  # hides a method of tuple nobody needs here
    logprobs: tuple[Mapping[str, Any], ...] = ()


NOTHING_TAKEN: Final = Taken()


def account(tokens: Iterable[Token], start: int) -> Taken:
    """The tokens of a text that begins at `start`; what ends before it was a marker."""
    logprobs: list[Mapping[str, Any]] = []
    count = 0
    for token in tokens:
        if token.end > start:
            count += len(token.ids)
            logprobs += token.logprobs
    return Taken(count, tuple(logprobs))


class TokenLedger:
    """Tokens whose text is not decided yet.

    Args:
        keeps_ids: ids are to be sent. They travel in the order of the tokens: with the first delta
            whose text lies at or after them, whatever channel it is of.
    """

    __slots__ = ("_ids", "_waiting")

    def __init__(self, keeps_ids: bool) -> None:
        # Lists: an empty deque takes 600 bytes of every live stream, and few tokens wait at a time.
        self._waiting: list[Token] = []
        self._ids: list[Token] | None = [] if keeps_ids else None

    def put(self, token: Token) -> None:
        """A token has come."""
        self._waiting.append(token)
        if self._ids is not None:
            self._ids.append(token)

    def before(self, end: int) -> list[Token]:
        """Take the tokens that begin before `end`, to account for them."""
        return _take(self._waiting, end)

    def between(self, start: int, end: int) -> list[Token]:
        """The same, without those that end before `start`: they were markers."""
        return [token for token in _take(self._waiting, end) if token.end > start]

    def drop(self, end: int) -> None:
        """Forget the tokens of a text that is not sent. One that ends behind it may be what follows."""
        taken = _take(self._waiting, end)
        if taken and taken[-1].end > end:
            self._waiting.insert(0, taken[-1])

    def ids_before(self, end: int | None) -> tuple[int, ...]:
        """Take the ids of the tokens that begin before `end`; None: of all."""
        if not self._ids:
            return ()
        tokens = _take(self._ids, end if end is not None else self._ids[-1].start + 1)
        return tuple(identifier for token in tokens for identifier in token.ids if identifier != UNKNOWN_ID)


def _take(waiting: list[Token], end: int) -> list[Token]:
    if not waiting or waiting[0].start >= end:
        return []
    count = len(waiting) if waiting[-1].start < end else bisect_left(waiting, end, key=_start)
    taken = waiting[:count]
    del waiting[:count]
    return taken
