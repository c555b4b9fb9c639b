"""Ids of tool calls: derived, so that every chunking gives the same (PROTOCOL 2)."""

from __future__ import annotations

import hashlib
import string
from typing import Final

from .format import IdStyle

__all__ = ["call_id"]

_ALPHANUMERICS: Final = string.ascii_letters + string.digits


def call_id(style: IdStyle, seed: str, choice: int, index: int, name: str, number: int) -> str:
    """The id of a call the model gave none.

    Args:
        style: `call`: "call_" and 24 hex digits; `mistral`: 9 alphanumerics; `kimi`: functions.NAME:NUMBER.
        seed: the request's seed.
        choice: which of the request's answers.
        index: the call's index in it.
        name: the function's name.
        number: the call's number in the conversation.
    """
    if style == "kimi":
        return f"functions.{name}:{number}"
    digest = hashlib.sha256(f"{seed}\0{choice}\0{index}".encode("utf-8", "surrogatepass"))
    if style == "mistral":
        return "".join(_ALPHANUMERICS[byte % len(_ALPHANUMERICS)] for byte in digest.digest()[:9])
    return f"call_{digest.hexdigest()[:24]}"
