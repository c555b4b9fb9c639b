"""`StreamTable`: the live streams of one process, bounded, each with an idle limit.

A live stream is never evicted to make room: a full table refuses (DESIGN 6). Since Triton tells a post model
nothing of a cancelled client (TRITON.md, ensembles, 9), streams go when no token has come for a while.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tristream.parsers.errors import RequestError

from .errors import UnavailableError
from .opening import MAX_KEY_CHARS
from .settings import PostprocessSettings
from .streams import Stream

__all__ = ["StreamTable"]

MAX_REMEMBERED: Final = 65_536
"""Ids of streams that are over and for which tokens may still come (about 10 MiB). One that falls out and does get
tokens is told once more that it is lost: harmless."""


class StreamTable:
    """Stream id -> `Stream`. Not for several threads at once.

    Args:
        settings: `max_streams`, `max_options_bytes`, `idle_ttl_s`, `first_token_ttl_s`.
        clock: seconds, monotonic.
    """

    __slots__ = ("_bytes", "_clock", "_over", "_running", "_settings", "_waiting")

    def __init__(self, settings: PostprocessSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        # Each in the order of last use and with one limit for all, so the first entry is the first to expire.
        self._waiting: OrderedDict[str, tuple[float, Stream]] = OrderedDict()
        self._running: OrderedDict[str, tuple[float, Stream]] = OrderedDict()
        # Streams that are over: when they were last heard of, and whether their clients know.
        self._over: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def __contains__(self, key: str) -> bool:
        return key in self._running or key in self._waiting

    def check_room(self, key: str, size: int) -> None:
        """May a stream be added?

        Args:
            key: its id.
            size: bytes of its options.

        Raises:
            RequestError: the id is in use.
            UnavailableError: the table is full.
        """
        if key in self:
            raise RequestError("stream_id", "one that is in use", "a fresh id for every request")
        if len(self) >= self._settings.max_streams:
            raise UnavailableError(
                "max_streams", f"{len(self)} live streams", "try again later, raise it, or add another server or shard"
            )
        if self._bytes + size > self._settings.max_options_bytes:
            raise UnavailableError(
                "max_options_bytes",
                f"{self._bytes} bytes of options are held and {size} more asked for",
                "try again later, or raise it",
            )

    def add(self, key: str, stream: Stream) -> None:
        """Add a stream that waits for its first token.

        Raises:
            RequestError: the id is in use.
            UnavailableError: the table is full.
        """
        self.check_room(key, stream.opening.size)
        self._bytes += stream.opening.size
        self._waiting[key] = (self._clock(), stream)
        self._over.pop(key, None)

    def use(self, key: str) -> Stream | None:
        """The stream that a token belongs to, now used; None where there is none."""
        entry = self._running.get(key)
        if entry is None:
            entry = self._waiting.pop(key, None)
            if entry is None:
                return None
        stream = entry[1]
        self._running[key] = (self._clock(), stream)
        self._running.move_to_end(key)
        return stream

    def close(self, key: str, *, silent: bool = True) -> None:
        """A stream has ended: free its state.

        Args:
            key: its id.
            silent: tokens that still come for it get no answer. False where clients may use an id again.
        """
        self._remove(key)
        if silent:
            self._remember(key, told=True)

    def is_over(self, key: str) -> bool:
        """Was there such a stream, and may tokens still come for it?"""
        heard, _ = self._over.get(key[:MAX_KEY_CHARS], (-math.inf, False))
        return self._clock() - heard <= self._settings.idle_ttl_s

    def first_lost(self, key: str) -> bool:
        """A token came for a stream that is not there. True the first time: then the client is told."""
        key = key[:MAX_KEY_CHARS]
        told = self.is_over(key) and self._over[key][1]
        self._remember(key, told=True)
        return not told

    def expire(self) -> list[str]:
        """Drop the streams that were idle too long; cheap where there are none. Returns their ids."""
        now = self._clock()
        expired = []
        for streams, limit in (
            (self._running, self._settings.idle_ttl_s),
            (self._waiting, self._settings.first_token_ttl_s),
        ):
            while streams:
                key, (used, _) = next(iter(streams.items()))
                if now - used <= limit:
                    break
                self._remove(key)
                self._remember(key, told=False)
                expired.append(key)
        return expired

    def _remove(self, key: str) -> None:
        entry = self._running.pop(key, None) or self._waiting.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1].opening.size

    def _remember(self, key: str, *, told: bool) -> None:
        self._over[key] = (self._clock(), told)
        self._over.move_to_end(key)
        if len(self._over) > MAX_REMEMBERED:
            self._over.popitem(last=False)
