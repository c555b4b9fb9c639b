"""The KV cache of a batch whose rows come and go.

Rows of different length share one tensor by padding on the left: row r of a batch of width T holds its tokens
in columns T - length(r) .. T - 1, and the attention mask hides the rest. A row that joins is padded to the width
(or widens the batch); when the longest leaves, the columns that pad every row go too.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

__all__ = ["RowCache"]

ROOM: Final = 64
"""Fewest columns to grow by, in tokens; else a quarter of the width: copies stay rare, waste bounded."""


class _GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
    """Full attention, written in place: `DynamicLayer` copies the whole cache for each token.

    `keys` and `values` are views of the columns in use, as the base class's methods expect.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rooms: tuple[torch.Tensor, torch.Tensor] | None = None
        self._width = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns; returns all keys and all values, each [rows, heads, width, size]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self._width, self._width + key_states.shape[-2]
        if self._rooms is None or end > self._rooms[0].shape[-2]:
            room = end + max(ROOM, end // 4)
            self._rooms = self._roomy(self.keys, key_states, room), self._roomy(self.values, value_states, room)
        for storage, states in zip(self._rooms, (key_states, value_states), strict=True):
            storage[..., start:end, :] = states
        self._show(end)
        return self.keys, self.values

    def _roomy(self, used: torch.Tensor, states: torch.Tensor, room: int) -> torch.Tensor:
        rows, heads, _, size = states.shape
        storage = states.new_empty((rows, heads, room, size))
        if self._width:
            storage[..., : self._width, :] = used
        return storage

    def _show(self, width: int) -> None:
        assert self._rooms is not None
        self._width = width
        self.keys, self.values = (storage[..., :width, :] for storage in self._rooms)

    def set(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Replace the contents."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values
        self._rooms, self._width = (keys, values), keys.shape[-2]

    def mark(self) -> Any:
        """What `rewind` needs."""
        return self._rooms, self._width

    def rewind(self, mark: Any) -> None:
        """Undo updates: columns after the mark's width were written behind what it shows."""
        self._rooms, self._width = mark
        if self._rooms is not None:
            self._show(self._width)


_Contents: TypeAlias = list[tuple[Any, torch.Tensor, torch.Tensor]]


class RowCache:
    """The cache of `rows` sequences, of one model.

    Args:
        config: the model's configuration; decides the kind of each layer.
    """

    def __init__(self, config: Any) -> None:
        cache = DynamicCache(config=config)
        layers = [_GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
        self.past: Cache = Cache(layers=layers) if layers else cache
        self.width = 0

    @property
    def joinable(self) -> bool:
        """Can rows share a cache? Not where a layer keeps more than keys and values (Mamba, linear attention)."""
        layers = self.past.layers
        return bool(layers) and all(type(layer) in (_GrowingLayer, DynamicSlidingWindowLayer) for layer in layers)

    def advanced(self, columns: int) -> None:
        """The model has appended columns."""
        self.width += columns

    def mark(self) -> Any:
        """A point to `rewind` to; costs nothing. Only of a joinable cache."""
        marks = [
            layer.mark() if isinstance(layer, _GrowingLayer) else (layer.keys, layer.values, layer.cumulative_length)
            for layer in self.past.layers
        ]
        return self.width, marks

    def rewind(self, mark: Any) -> None:
        """Back to the mark, also from the middle of a forward pass that failed."""
        self.width, marks = mark
        for layer, layer_mark in zip(self.past.layers, marks, strict=True):
            if isinstance(layer, _GrowingLayer):
                layer.rewind(layer_mark)
            else:
                layer.keys, layer.values, layer.cumulative_length = layer_mark

    def join(self, others: Sequence[RowCache]) -> None:
        """Append the rows of other caches; they are used up. Where memory runs out, this one stays as it was."""
        parts = (self, *others)
        made: _Contents = []
        for layers in zip(*(part.past.layers for part in parts), strict=True):
            columns = max(_columns(layer) for layer in layers)
            if columns:
                keys = torch.cat([_padded(layer.keys, columns) for layer in layers])
                made.append((layers[0], keys, torch.cat([_padded(layer.values, columns) for layer in layers])))
        self._set(made, max(part.width for part in parts))

    def keep(self, rows: Sequence[int], longest: int) -> None:
        """Drop all other rows, and the columns that pad every row that stays.

        Args:
            rows: which to keep, in their new order; may repeat.
            longest: length of the longest of them, in tokens.
        """
        made: _Contents = []
        for layer in self.past.layers:
            # a layer that shares another's keys (Gemma 3n) is never filled
            if _columns(layer):
                index = torch.tensor(rows, device=layer.keys.device)
                # a sliding window has its last columns only: those to cut may be gone already
                cut = max(0, _columns(layer) - longest)
                keys = layer.keys[:, :, cut:].index_select(0, index)
                made.append((layer, keys, layer.values[:, :, cut:].index_select(0, index)))
        self._set(made, longest)

    def _set(self, contents: _Contents, width: int) -> None:
        for layer, keys, values in contents:
            if isinstance(layer, _GrowingLayer):
                layer.set(keys, values)
            else:
                layer.keys, layer.values, layer.cumulative_length = keys, values, width
        self.width = width

    def copies(self, count: int) -> list[RowCache]:
        """As many caches with the same contents, this one among them."""
        return [self, *(copy.deepcopy(self) for _ in range(count - 1))]

    def single(self, row: int, length: int) -> RowCache:
        """A cache of one row's own."""
        alone = RowCache.__new__(RowCache)
        alone.past, alone.width = copy.copy(self.past), self.width
        alone.past.layers = [copy.copy(layer) for layer in self.past.layers]
        alone.keep([row], length)
        return alone


def _columns(layer: Any) -> int:
    return 0 if layer.keys is None or not layer.keys.numel() else int(layer.keys.shape[-2])


def _padded(states: torch.Tensor, columns: int) -> torch.Tensor:
    missing = columns - states.shape[-2]
    return torch.nn.functional.pad(states, (0, 0, missing, 0)) if missing else states
