"""From logits to tokens, for all rows of a batch at once.

Order as in vLLM: penalties, constraint, temperature, min_p, top_k, top_p. A row draws with a random source of its
own, one number per token, so that its choice does not depend on who shares the batch; the same seed, prompt and
arithmetic give the same answer (bfloat16 rounds a batch of another size a little differently).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from .base import Sampling

__all__ = ["RowSampler", "TokenLogprobs", "choose", "penalise", "report"]

GREEDY_BELOW: Final = 1e-5
"""Temperatures below are greedy: dividing by them overflows."""
CANDIDATES: Final = 256
"""So many of the likeliest tokens are sorted at first, 16 times as many only for rows where top_p needs more: sorting
all 49 152 logits of a row takes 3 ms of a CPU, 256 of them a tenth of one."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probability of the chosen token and of the likeliest ones, (id, log probability) each."""

    chosen: float
    top: tuple[tuple[int, float], ...]


class RowSampler:
    """What one row needs to choose: its parameters, its random source, the counts that penalties read.

    Args:
        sampling: the request's parameters.
        choice_index: which of n answers; each draws differently.
        prompt: ids of the prompt, for the repetition penalty.
        vocab_size: number of logits.
        device: where the logits are.
    """

    __slots__ = ("_counts", "_random", "_seen", "greedy", "sampling")

    def __init__(
        self, sampling: Sampling, choice_index: int, prompt: Sequence[int], vocab_size: int, device: torch.device
    ) -> None:
        self.sampling = sampling
        self.greedy = sampling.temperature < GREEDY_BELOW
        self._random = random.Random(None if sampling.seed is None else f"{sampling.seed}/{choice_index}")
        self._counts: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._counts = torch.zeros(vocab_size, device=device)
        if sampling.repetition_penalty != 1.0:
            self._seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
            self._seen[torch.tensor(prompt, device=device)] = True

    @property
    def penalises(self) -> bool:
        """Do logits of this row need `adjust`?"""
        return self._counts is not None or self._seen is not None

    def adjust(self, logits: torch.Tensor) -> None:
        """Apply the penalties to one row of logits, float32 [vocabulary], in place."""
        if self._seen is not None:
            factor = self.sampling.repetition_penalty
            weaker = torch.where(logits > 0, logits / factor, logits * factor)
            torch.where(self._seen, weaker, logits, out=logits)
        if self._counts is not None:
            logits -= self.sampling.frequency_penalty * self._counts
            logits -= self.sampling.presence_penalty * (self._counts > 0)

    def note(self, token: int) -> None:
        """The row has got this token."""
        if self._counts is not None:
            self._counts[token] += 1
        if self._seen is not None:
            self._seen[token] = True

    def draw(self) -> float:
        """The row's next random number, in [0, 1)."""
        return self._random.random()


def penalise(logits: torch.Tensor, samplers: Sequence[RowSampler]) -> None:
    """Apply every row's penalties, in place."""
    for row, sampler in enumerate(samplers):
        if sampler.penalises:
            sampler.adjust(logits[row])


def choose(logits: torch.Tensor, samplers: Sequence[RowSampler]) -> list[int]:
    """One token for each row.

    Args:
        logits: float32 [rows, vocabulary]; -inf is forbidden, at least one of a row is not.
        samplers: one for each row.
    """
    tokens: list[int] = logits.argmax(-1).tolist()
    drawn = [row for row, sampler in enumerate(samplers) if not sampler.greedy]
    if not drawn:
        return tokens
    parameters = [samplers[row].sampling for row in drawn]
    temperatures = torch.tensor([[each.temperature] for each in parameters], device=logits.device)
    chosen = logits if len(drawn) == len(samplers) else logits[drawn]
    weights = torch.softmax(chosen / temperatures, -1)
    if any(each.min_p > 0 for each in parameters):
        floors = torch.tensor([[each.min_p] for each in parameters], device=logits.device)
        weights = weights * (weights >= floors * weights.amax(-1, keepdim=True))
    draws = [samplers[row].draw() for row in drawn]
    narrow = [index for index, each in enumerate(parameters) if each.top_k or each.top_p < 1]
    wide = [index for index, each in enumerate(parameters) if not (each.top_k or each.top_p < 1)]
    if narrow:
        picked = _draw_narrow(
            weights[narrow], [parameters[index] for index in narrow], [draws[index] for index in narrow]
        )
        for index, token in zip(narrow, picked, strict=True):
            tokens[drawn[index]] = token
    if wide:
        for index, token in zip(wide, _draw(weights[wide], [draws[index] for index in wide]).tolist(), strict=True):
            tokens[drawn[index]] = token
    return tokens


def _draw_narrow(
    weights: torch.Tensor, parameters: Sequence[Sampling], draws: Sequence[float], size: int = CANDIDATES
) -> list[int]:
    """Draw for rows with top_k or top_p, among their `size` likeliest tokens; rows that need more get them."""
    size = min(size, weights.shape[-1])
    top_ks = torch.tensor([[each.top_k or weights.shape[-1]] for each in parameters], device=weights.device)
    top_ps = torch.tensor([[each.top_p] for each in parameters], device=weights.device)
    values, ids = weights.topk(size)
    values = values * (torch.arange(size, device=weights.device) < top_ks)
    # where top_k cut, top_p counts on what is left
    total = torch.where(top_ks <= size, values.sum(-1, keepdim=True), weights.sum(-1, keepdim=True))
    enough = (top_ks <= size) | (values.sum(-1, keepdim=True) >= top_ps * total)
    # the likeliest token always stays, also where top_p is less than its share
    first = torch.arange(size, device=weights.device) == 0
    kept = values * ((values.cumsum(-1) - values < top_ps * total) | first)
    picked: list[int] = ids.gather(-1, _draw(kept, draws)[:, None])[:, 0].tolist()
    more = [row for row, fine in enumerate(enough[:, 0].tolist()) if not fine]
    if more and size < weights.shape[-1]:
        again = _draw_narrow(weights[more], [parameters[row] for row in more], [draws[row] for row in more], size * 16)
        for row, token in zip(more, again, strict=True):
            picked[row] = token
    return picked


def _draw(weights: torch.Tensor, draws: Sequence[float]) -> torch.Tensor:
    # float64: in float32 the sum over a vocabulary is off by more than rare tokens weigh
    sums = weights.double().cumsum(-1)
    goals = torch.tensor(draws, dtype=torch.float64, device=weights.device)[:, None] * sums[:, -1:]
    picked = torch.searchsorted(sums, goals, right=True)[:, 0]
    # a goal that rounds up to the whole sum must not fall behind the last token that weighs anything
    last = (sums < sums[:, -1:]).sum(-1)
    return torch.minimum(picked, last)


def report(logits: torch.Tensor, tokens: Sequence[int], top: Sequence[int]) -> list[TokenLogprobs]:
    """Log probabilities as the model sees them: before penalties, constraint and temperature.

    Args:
        logits: float32 [rows, vocabulary], untouched.
        tokens: the chosen token of each row.
        top: how many likeliest tokens to report for each row.
    """
    logprobs = torch.log_softmax(logits, -1)
    chosen = logprobs.gather(-1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0].tolist()
    values, ids = logprobs.topk(max(top, default=0))
    return [
        TokenLogprobs(value, tuple(zip(row_ids[:count], row_values[:count], strict=True)))
        for value, row_ids, row_values, count in zip(chosen, ids.tolist(), values.tolist(), top, strict=True)
    ]
