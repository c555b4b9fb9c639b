"""What a client is told where the LLM ended its request before the first token.

The LLM says why in words: as an error of Triton's, whose code the gRPC stream does not carry, or in-band, as the
`error` of its last step (so that `postprocess` hears of it and frees the stream). The words decide.
"""

from __future__ import annotations

from typing import Final

from tristream.parsers.errors import RequestError, TristreamError

from .errors import BUSY_PREFIX, UnavailableError

__all__ = ["LlmUnavailableError", "refusal"]

MAX_ERROR_CHARS: Final = 500


class LlmUnavailableError(UnavailableError):
    """The LLM cannot be reached, or failed before its first token; nothing of the answer was sent."""

    def __init__(self, text: str) -> None:
        TristreamError.__init__(self, text)
        self.limit, self.found, self.advice = "llm", text, "try again later"


def refusal(text: str) -> Exception:
    """The error for a client.

    The LLM's own refusals (a constraint that does not compile, a full queue) go on as they are. Of anything else only
    the first line: a traceback stays here.

    Args:
        text: what the LLM said.
    """
    text = text.partition("\n")[0][:MAX_ERROR_CHARS]
    start = text.find(BUSY_PREFIX)
    if start >= 0:
        return LlmUnavailableError(text[start:])
    field, colon, rest = text.partition(": found ")
    found, allowed_word, allowed = rest.partition("; allowed: ")
    if colon and allowed_word:
        return RequestError(field.rpartition(" ")[2], found, allowed)
    return LlmUnavailableError(f"the LLM failed before its first token: {text}")
