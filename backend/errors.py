"""Errors of `tristream.backend`, beside those of `tristream.parsers`.

    TristreamError
    ├── SettingsError       the operator's: a parameter of config.pbtxt cannot be used
    └── UnavailableError    nobody's: the server is at a limit; the message names it, trying later may help

`responder.py` maps them to Triton's error codes.
"""

from __future__ import annotations

from typing import Final

from tristream.parsers.errors import TristreamError

__all__ = ["BUSY_PREFIX", "SettingsError", "UnavailableError"]

BUSY_PREFIX: Final = "server busy: "
"""How every refusal for lack of room begins: an error that arrives within a gRPC stream has no status code,
so the client tells "try again" from "refused" by its text."""


class SettingsError(TristreamError, ValueError):
    """A setting that cannot be used.

    Args:
        parameter: its name in config.pbtxt, or the part of the configuration that is meant.
        found: what was there.
        allowed: what would have been accepted.
    """

    def __init__(self, parameter: str, found: str, allowed: str) -> None:
        super().__init__(f"config.pbtxt parameter {parameter!r}: found {found}; allowed: {allowed}")
        self.parameter = parameter
        self.found = found
        self.allowed = allowed


class UnavailableError(TristreamError):
    """A request that is fine but cannot be served now: a limit is reached.

    Args:
        limit: the setting that is the limit, e.g. `max_streams`.
        found: how things stand.
        advice: what to do.
    """

    def __init__(self, limit: str, found: str, advice: str) -> None:
        super().__init__(f"{BUSY_PREFIX}limit {limit} reached: {found}; {advice}")
        self.limit = limit
        self.found = found
        self.advice = advice
