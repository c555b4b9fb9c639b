"""What each token spells: bytes for stop strings, OpenAI's entries for log probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .sampling import TokenLogprobs

__all__ = ["Vocabulary"]

NO_LOGPROB: Final = -9999.0
"""What OpenAI sends where the probability is 0 and JSON has no -inf."""


class Vocabulary:
    """Token ids and their bytes.

    Args:
        spellings: bytes of each id; special tokens as they are written.
        end_ids: ids that end generation.
    """

    __slots__ = ("_spellings", "end_ids")

    def __init__(self, spellings: Sequence[bytes], end_ids: Sequence[int]) -> None:
        self._spellings = tuple(spellings)
        self.end_ids = frozenset(end_ids)

    def __len__(self) -> int:
        return len(self._spellings)

    def spelling(self, token: int) -> bytes:
        """The bytes of a token; none for ids that the tokenizer does not know."""
        return self._spellings[token] if token < len(self._spellings) else b""

    def logprobs_entry(self, token: int, logprobs: TokenLogprobs) -> dict[str, Any]:
        """One entry of OpenAI's `logprobs.content`."""
        entry = self._entry(token, logprobs.chosen)
        entry["top_logprobs"] = [self._entry(other, value) for other, value in logprobs.top]
        return entry

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        spelled = self.spelling(token)
        text = spelled.decode("utf-8", "replace")
        return {"token": text, "logprob": max(logprob, NO_LOGPROB), "bytes": list(spelled)}
