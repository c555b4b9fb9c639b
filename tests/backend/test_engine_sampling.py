"""From logits to tokens."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from tristream.backend.engines.base import Sampling
from tristream.backend.engines.sampling import CANDIDATES, RowSampler, choose, penalise, report

CPU = torch.device("cpu")
LOGITS = torch.tensor([math.log(share) for share in (0.5, 0.25, 0.15, 0.1)])


def sampler(vocabulary: int = 4, prompt: tuple[int, ...] = (), index: int = 0, **parameters: Any) -> RowSampler:
    return RowSampler(Sampling(**parameters), index, prompt, vocabulary, CPU)


def draws(count: int, logits: torch.Tensor = LOGITS, **parameters: Any) -> Counter[int]:
    row = sampler(len(logits), seed=1, **parameters)
    return Counter(choose(logits[None], [row])[0] for _ in range(count))


def test_greedy() -> None:
    assert choose(torch.stack([LOGITS, LOGITS.flip(0)]), [sampler(temperature=0), sampler(temperature=1e-6)]) == [0, 3]


def test_draws_follow_the_probabilities() -> None:
    counts = draws(4000)
    for token, share in enumerate((0.5, 0.25, 0.15, 0.1)):
        assert counts[token] / 4000 == pytest.approx(share, abs=0.03)


def test_temperature_flattens() -> None:
    shares = torch.softmax(LOGITS / 3, -1).tolist()
    counts = draws(4000, temperature=3.0)
    assert counts[3] / 4000 == pytest.approx(shares[3], abs=0.03)


@pytest.mark.parametrize(
    ("parameters", "allowed"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_p": 0.01}, {0}),
        ({"top_k": 3, "top_p": 0.8}, {0, 1}),  # of 0.9 that top_k leaves, 0.75 is enough for 0.72
        ({"min_p": 0.4}, {0, 1}),
        ({"min_p": 0.25, "top_k": 2}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        ({"top_k": 10}, {0, 1, 2, 3}),
    ],
)
def test_filters(parameters: dict[str, Any], allowed: set[int]) -> None:
    assert set(draws(300, **parameters)) == allowed


def test_filters_of_one_row_leave_the_others_alone() -> None:
    rows = [sampler(seed=1, top_k=1), sampler(seed=1), sampler(temperature=0), sampler(seed=2, top_p=0.6)]
    seen: list[set[int]] = [set() for _ in rows]
    for _ in range(300):
        for tokens, token in zip(seen, choose(LOGITS.expand(4, -1), rows), strict=True):
            tokens.add(token)
    assert seen == [{0}, {0, 1, 2, 3}, {0}, {0, 1}]


def test_top_p_beyond_the_first_candidates() -> None:
    flat = torch.zeros(CANDIDATES * 4)
    assert len(draws(3000, flat, top_p=0.99)) > CANDIDATES * 2
    assert len(draws(3000, flat, top_k=CANDIDATES * 2)) > CANDIDATES


def test_forbidden_tokens_are_never_drawn() -> None:
    logits = torch.full((1000,), -torch.inf)
    logits[[3, 700]] = 0.0
    cases: tuple[dict[str, Any], ...] = ({}, {"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.1}, {"temperature": 50.0})
    for parameters in cases:
        assert set(draws(200, logits, **parameters)) == {3, 700}


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_ends_of_the_random_numbers(number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf])
    row = sampler()
    monkeypatch.setattr(RowSampler, "draw", lambda _self: number)
    assert choose(logits[None], [row]) == [1 if number == 0 else 2]


def test_a_seed_repeats_and_choices_differ() -> None:
    def tokens(row: RowSampler) -> list[int]:
        return [choose(LOGITS[None], [row])[0] for _ in range(40)]

    assert tokens(sampler(seed=7)) == tokens(sampler(seed=7))
    assert tokens(sampler(seed=7)) != tokens(sampler(seed=8))
    assert tokens(sampler(seed=7)) != tokens(sampler(seed=7, index=1))
    assert tokens(sampler()) != tokens(sampler())


def test_a_row_draws_the_same_in_any_batch() -> None:
    alone, together = sampler(seed=5), sampler(seed=5)
    others = [sampler(seed=1, top_k=2), sampler(temperature=0)]
    for _ in range(20):
        assert choose(LOGITS[None], [alone]) == choose(LOGITS.expand(3, -1), [others[0], together, others[1]])[1:2]


def test_penalties() -> None:
    row = sampler(presence_penalty=1.0, frequency_penalty=0.5)
    row.note(0)
    row.note(0)
    row.note(2)
    logits = torch.zeros(1, 4)
    penalise(logits, [row])
    assert logits[0].tolist() == [-2.0, 0.0, -1.5, 0.0]


def test_repetition_penalty_counts_the_prompt() -> None:
    row = sampler(prompt=(1,), repetition_penalty=2.0)
    row.note(2)
    logits = torch.tensor([[1.0, 1.0, -1.0, -1.0]])
    penalise(logits, [row])
    assert logits[0].tolist() == [1.0, 0.5, -2.0, -1.0]


def test_report_is_the_models_view() -> None:
    found = report(LOGITS.expand(2, -1), [1, 3], [0, 2])
    assert found[0].chosen == pytest.approx(math.log(0.25))
    assert found[0].top == ()
    assert found[1].chosen == pytest.approx(math.log(0.1))
    assert [token for token, _ in found[1].top] == [0, 1]
