"""One module per argument syntax: text of a call's arguments -> JSON fragments, append-only."""

from __future__ import annotations

from .decoder import ArgumentSyntax, CallContext, Decoder, End

__all__ = ["ArgumentSyntax", "CallContext", "Decoder", "End"]
