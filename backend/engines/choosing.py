"""Each row's next token, out of the logits of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from tristream.parsers.errors import RequestError

from .constraints import forbid
from .rows import Row, Token
from .sampling import choose, penalise, report
from .vocabulary import Vocabulary

__all__ = ["next_tokens"]

NO_NUMBER: Final = "the language model computed no number for the next token"
NO_TOKEN: Final = str(RequestError("constraint", "a grammar that allows no next token", "one that has an end"))


def next_tokens(rows: Sequence[Row], logits: torch.Tensor, vocabulary: Vocabulary) -> list[Token | str]:
    """Choose for every row.

    Args:
        rows: the rows.
        logits: float32 [rows, vocabulary]; not changed.
        vocabulary: of the model.

    Returns:
        For each row its token, or why it has none.
    """
    samplers = [row.sampler for row in rows]
    allowed = logits.clone()
    penalise(allowed, samplers)
    forbid(allowed, [row.constraint for row in rows])
    usable = torch.isfinite(allowed.amax(-1))
    if not bool(usable.all()):
        allowed[~usable] = 0.0
    tokens = choose(allowed, samplers)
    entries = _logprobs(rows, logits, tokens, vocabulary)
    chosen: list[Token | str] = []
    for index, fine in enumerate(usable.tolist()):
        if fine:
            chosen.append(Token(tokens[index], entries.get(index)))
        else:
            chosen.append(NO_TOKEN if bool(torch.isfinite(logits[index].amax())) else NO_NUMBER)
    return chosen


def _logprobs(
    rows: Sequence[Row], logits: torch.Tensor, tokens: Sequence[int], vocabulary: Vocabulary
) -> dict[int, dict[str, Any]]:
    asked = [index for index, row in enumerate(rows) if row.sampler.sampling.logprobs]
    if not asked:
        return {}
    top = [rows[index].sampler.sampling.top_logprobs for index in asked]
    found = report(logits[asked], [tokens[index] for index in asked], top)
    return {index: vocabulary.logprobs_entry(tokens[index], each) for index, each in zip(asked, found, strict=True)}
