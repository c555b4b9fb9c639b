"""How long a chat may take, and when its request is sent again: values that callers set."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, fields
from typing import Final

from tristream.parsers import UsageError

__all__ = ["NEVER", "Deadlines", "Expiry", "Retries"]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a chat may take, in seconds; None sets no bound. When one passes, the stream is cancelled.

    Args:
        connect: until a connection stands.
        first_delta: from sending the request to its first delta. Hidden reasoning (`include_reasoning`
            false) comes before it.
        idle: between two deltas. Long: arguments that are no strings, and hidden reasoning, are silent
            for as long as the model writes them.
        total: the whole chat, with all tries.
    """

    connect: float | None = 5.0
    first_delta: float | None = 600.0
    idle: float | None = 600.0
    total: float | None = None

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if value is not None and not value > 0:
                raise UsageError(f"deadline {spec.name}: found {value!r}; allowed: seconds above 0, or None")

    @classmethod
    def of(cls, timeout: float | Deadlines | None, default: Deadlines) -> Deadlines:
        """`timeout` as users give it: a number bounds the whole chat, None takes the client's default."""
        if timeout is None:
            return default
        if isinstance(timeout, Deadlines):
            return timeout
        return cls(default.connect, default.first_delta, default.idle, timeout)


@dataclass(frozen=True, slots=True)
class Retries:
    """When a request is sent again: only before its first delta, and only where the server could not be
    reached, lost the connection, or said that it has no room or is still loading.

    Args:
        tries: most tries, the first one included.
        delay: seconds before the second try; doubled for each further one, with jitter.
        max_delay: most seconds between two tries.
    """

    tries: int = 4
    delay: float = 0.2
    max_delay: float = 3.0

    def __post_init__(self) -> None:
        if self.tries < 1 or self.delay < 0 or self.max_delay < 0:
            raise UsageError(f"{self}: allowed: tries at least 1, delays at least 0 s")

    def before(self, next_try: int) -> float:
        """Seconds to wait before try number `next_try` (2 is the first retry): half of it is jitter."""
        longest = min(self.max_delay, self.delay * 2.0 ** min(next_try - 2, 30))
        return longest * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Expiry:
    """The deadline that passes next.

    Args:
        at: when, by `time.monotonic`.
        which: the field of `Deadlines`.
        seconds: its value.
    """

    at: float
    which: str = ""
    seconds: float = 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds from now; None where it never passes."""
        return None if self.at == math.inf else self.at - time.monotonic()


NEVER: Final = Expiry(math.inf)
