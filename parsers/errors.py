"""Errors of `tristream.parsers`.

    TristreamError
    ├── FormatDefinitionError   ours: a format's table is malformed
    ├── RequestError            the client's: its request cannot be served; names field, found, allowed
    └── UsageError              the caller's: the API was used out of order (feed after finish)

What a *model* writes raises none of them: odd output is text and a `Notice` (PROTOCOL 7).
"""

from __future__ import annotations

__all__ = ["FormatDefinitionError", "RequestError", "TristreamError", "UsageError"]


class TristreamError(Exception):
    """Base of every error this library raises on purpose."""


class FormatDefinitionError(TristreamError, ValueError):
    """A format's data contradicts itself; the message names format, state and terminal."""


class RequestError(TristreamError, ValueError):
    """A request that cannot be served.

    Args:
        field: dotted path of the offending field in the request body, e.g. `tools[0].function.name`.
        found: what was there, already shortened for a message.
        allowed: what would have been accepted.
    """

    def __init__(self, field: str, found: str, allowed: str) -> None:
        super().__init__(f"{field}: found {found}; allowed: {allowed}")
        self.field = field
        self.found = found
        self.allowed = allowed


class UsageError(TristreamError, RuntimeError):
    """A method was called when it may not be called."""
