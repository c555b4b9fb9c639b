"""Rows that are decoded together, and the model's forward pass over them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .cache import RowCache
from .loading import LoadedModel
from .rows import Row

__all__ = ["Batch", "forward"]


class Batch:
    """Rows that share a cache. Each has `length` tokens in it; its last token is not among them, but the next input.

    Args:
        model: the model.
        cache: the rows' cache.
        rows: in the cache's order.
    """

    __slots__ = ("_model", "cache", "rows")

    def __init__(self, model: LoadedModel, cache: RowCache, rows: list[Row]) -> None:
        self._model = model
        self.cache = cache
        self.rows = rows

    def decode(self) -> torch.Tensor:
        """Run every row's last token through the model; on an error the cache is as it was.

        Returns:
            float32 [rows, vocabulary].
        """
        mark = self.cache.mark() if self.cache.joinable else None
        try:
            logits = forward(
                self._model, self.cache, [[row.last_token] for row in self.rows], [row.length for row in self.rows]
            )
        except Exception:
            if mark is not None:
                self.cache.rewind(mark)
            raise
        for row in self.rows:
            row.length += 1
        return logits

    def keep(self, rows: Sequence[Row]) -> None:
        """Drop all other rows."""
        if len(rows) < len(self.rows):
            kept = [index for index, row in enumerate(self.rows) if row in rows]
            self.rows = [self.rows[index] for index in kept]
            if kept:
                self.cache.keep(kept, max(row.length for row in self.rows))

    def join(self, others: Sequence[Batch]) -> None:
        """Take over the rows of other batches."""
        if others:
            self.cache.join([other.cache for other in others])
            self.rows = [row for batch in (self, *others) for row in batch.rows]

    def split(self) -> list[Batch]:
        """One batch for each row."""
        return [Batch(self._model, self.cache.single(index, row.length), [row]) for index, row in enumerate(self.rows)]


def forward(
    model: LoadedModel, cache: RowCache, tokens: Sequence[Sequence[int]], lengths: Sequence[int]
) -> torch.Tensor:
    """One forward pass.

    Args:
        model: the model.
        cache: what came before; the new columns are appended.
        tokens: as many new tokens for each row.
        lengths: tokens of each row in the cache.

    Returns:
        Logits after each row's last token, float32 [rows, vocabulary]; ids that the tokenizer does not know are -inf.
    """
    device, new, width = model.device, len(tokens[0]), cache.width
    arguments: dict[str, object] = {model.cache_argument: cache.past}
    filled = torch.tensor(lengths, device=device)[:, None]
    if any(length < width for length in lengths):
        columns = torch.arange(width + new, device=device)
        arguments["attention_mask"] = (columns >= width - filled).long()
    if model.takes_positions:
        arguments["position_ids"] = filled + torch.arange(new, device=device)
    if model.keeps_last:
        arguments["logits_to_keep"] = 1
    output = model.forward(input_ids=torch.tensor(tokens, device=device), use_cache=True, **arguments)
    cache.advanced(new)
    logits: torch.Tensor = output.logits[:, -1].float()
    if logits.shape[-1] > len(model.vocabulary):
        logits[:, len(model.vocabulary) :] = -torch.inf
    return logits
