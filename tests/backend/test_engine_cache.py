"""A cache whose rows come and go, against caches of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, MistralConfig

from tristream.backend.engines.cache import ROOM, RowCache

PLAIN = LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2, num_key_value_heads=1, vocab_size=8)
WINDOW = 5
SLIDING = MistralConfig(
    num_hidden_layers=2,
    hidden_size=8,
    num_attention_heads=2,
    num_key_value_heads=1,
    vocab_size=8,
    sliding_window=WINDOW,
)
both = pytest.mark.parametrize("config", [PLAIN, SLIDING], ids=["full", "sliding"])


def fill(cache: RowCache, rows: int, columns: int, value: float) -> None:
    """What a forward pass does: each row's number times ten plus the column, in every layer."""
    for layer, _ in enumerate(cache.past.layers):
        marks = value + torch.arange(columns) + 10.0 * torch.arange(rows)[:, None]
        states = marks[:, None, :, None].expand(rows, 1, columns, 4)
        cache.past.update(states, -states, layer)
    cache.advanced(columns)


def contents(cache: RowCache, layer: int = 1) -> list[list[float]]:
    keys, values = cache.past.layers[layer].keys, cache.past.layers[layer].values
    assert torch.equal(keys, -values)
    rows: list[list[float]] = keys[:, 0, :, 0].tolist()
    return rows


def of(config: Any, columns: int, value: float) -> RowCache:
    cache = RowCache(config)
    fill(cache, 1, columns, value)
    return cache


def test_rows_of_different_length_are_padded_on_the_left() -> None:
    cache = of(PLAIN, 3, 100)
    cache.join([of(PLAIN, 1, 200), of(PLAIN, 2, 300)])
    assert contents(cache) == [[100, 101, 102], [0, 0, 200], [0, 300, 301]]
    assert cache.width == cache.past.get_seq_length() == 3
    cache.keep([2, 1], 2)
    assert contents(cache) == [[300, 301], [0, 200]]
    assert cache.width == cache.past.get_seq_length() == 2
    fill(cache, 2, 1, 900)
    assert contents(cache) == [[300, 301, 900], [0, 200, 910]]


def test_a_longer_row_widens_the_batch() -> None:
    cache = of(PLAIN, 1, 100)
    cache.join([of(PLAIN, 3, 200)])
    assert contents(cache) == [[0, 0, 100], [200, 201, 202]]


def test_a_sliding_window_keeps_its_last_columns() -> None:
    cache = of(SLIDING, 9, 100)
    cache.join([of(SLIDING, 2, 200)])
    assert contents(cache) == [[105, 106, 107, 108], [0, 0, 200, 201]]
    assert cache.width == cache.past.get_seq_length() == 9
    cache.keep([1], 2)
    assert contents(cache) == [[200, 201]]
    assert cache.past.get_seq_length() == 2


@both
def test_rows_may_repeat(config: Any) -> None:
    cache = of(config, 2, 100)
    cache.keep([0, 0, 0], 2)
    assert contents(cache) == [[100, 101]] * 3
    fill(cache, 3, 1, 500)
    assert contents(cache) == [[100, 101, 500], [100, 101, 510], [100, 101, 520]]


@both
def test_rewind_undoes_a_step_that_failed_half_way(config: Any) -> None:
    cache = of(config, 7, 100)
    before = [contents(cache, layer) for layer in range(2)]
    mark = cache.mark()
    states = torch.ones(1, 1, 1, 4)
    cache.past.update(states, -states, 0)  # the second layer raised
    cache.rewind(mark)
    assert [contents(cache, layer) for layer in range(2)] == before
    assert cache.width == cache.past.get_seq_length() == 7
    fill(cache, 1, 1, 500)
    assert contents(cache)[0][-2:] == [106, 500]


@both
def test_a_row_of_its_own(config: Any) -> None:
    cache = of(config, 3, 100)
    cache.join([of(config, 1, 200)])
    alone = cache.single(1, 1)
    fill(alone, 1, 1, 300)
    assert contents(alone) == [[200, 300]]
    assert contents(cache) == [[100, 101, 102], [0, 0, 200]]


def test_growing_is_in_place() -> None:
    cache = of(PLAIN, 1, 0)
    places = set()
    for column in range(1, 4 * ROOM):
        fill(cache, 1, 1, column)
        places.add(cache.past.layers[0].keys.data_ptr())
    assert contents(cache) == [list(range(4 * ROOM))]
    assert len(places) <= 4
