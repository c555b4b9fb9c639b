from __future__ import annotations

from typing import Any

import pytest

from tristream.backend.errors import UnavailableError
from tristream.backend.opening import Opening
from tristream.backend.settings import PostprocessSettings
from tristream.backend.table import MAX_REMEMBERED, StreamTable
from tristream.parsers import RequestError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeStream:
    def __init__(self, size: int = 0) -> None:
        self.opening = Opening("x", size=size)


def table_of(clock: Clock, **settings: Any) -> Any:
    return StreamTable(PostprocessSettings(**settings), clock)


def test_a_stream_lives_while_tokens_come() -> None:
    clock = Clock()
    table = table_of(clock, idle_ttl_s=10.0, first_token_ttl_s=100.0)
    stream = FakeStream()
    table.add("a", stream)
    clock.now = 100.0
    assert table.expire() == []
    assert table.use("a") is stream
    clock.now = 110.0
    assert table.expire() == []
    assert table.use("a") is stream
    clock.now = 120.1
    assert table.expire() == ["a"]
    assert len(table) == 0
    assert table.use("a") is None


def test_before_the_first_token_there_is_more_time() -> None:
    clock = Clock()
    table = table_of(clock, idle_ttl_s=10.0, first_token_ttl_s=100.0)
    for name in "abc":
        table.add(name, FakeStream())
        clock.now += 1
    clock.now = 101.5
    assert table.expire() == ["a", "b"]
    assert len(table) == 1


def test_expiry_goes_by_last_use() -> None:
    clock = Clock()
    table = table_of(clock, idle_ttl_s=10.0)
    for name in "abc":
        table.add(name, FakeStream())
        table.use(name)
    clock.now = 5.0
    table.use("a")
    clock.now = 11.0
    assert table.expire() == ["b", "c"]
    assert table.use("a") is not None


def test_a_full_table_refuses_and_evicts_nobody() -> None:
    table = table_of(Clock(), max_streams=2)
    table.add("a", FakeStream())
    table.add("b", FakeStream())
    table.use("b")
    with pytest.raises(UnavailableError, match="server busy: limit max_streams reached: 2 live streams"):
        table.add("c", FakeStream())
    assert "a" in table
    assert "b" in table
    table.close("a")
    table.add("c", FakeStream())


def test_options_are_bounded_together() -> None:
    table = table_of(Clock(), max_options_bytes=2000)
    table.add("a", FakeStream(1500))
    with pytest.raises(UnavailableError, match="max_options_bytes"):
        table.add("b", FakeStream(600))
    table.close("a")
    table.add("b", FakeStream(600))


def test_an_id_in_use_is_refused() -> None:
    table = table_of(Clock())
    table.add("a", FakeStream())
    for _ in range(2):
        with pytest.raises(RequestError, match="stream_id: found one that is in use"):
            table.add("a", FakeStream())
        table.use("a")


def test_a_lost_stream_is_told_once() -> None:
    clock = Clock()
    table = table_of(clock)
    assert [table.first_lost("a"), table.first_lost("a"), table.first_lost("b")] == [True, False, True]
    table.add("c", FakeStream())
    table.close("c")
    assert not table.first_lost("c")
    table.add("c", FakeStream())  # a fresh stream under an old id is a fresh stream
    clock.now = 4000.0
    table.expire()
    assert [table.first_lost("c"), table.first_lost("c")] == [True, False]


def test_ids_over_are_forgotten_in_time() -> None:
    clock = Clock()
    table = table_of(clock, idle_ttl_s=10.0)
    table.first_lost("a")
    assert table.is_over("a")
    clock.now = 9.0
    assert not table.first_lost("a")
    clock.now = 20.0
    assert not table.is_over("a")
    assert table.first_lost("a")


def test_what_is_remembered_is_bounded() -> None:
    table = table_of(Clock())
    for number in range(MAX_REMEMBERED + 10):
        table.first_lost(f"{number}" + "x" * 1000)
    assert not table.is_over("0" + "x" * 1000)
    assert table.is_over(f"{MAX_REMEMBERED}" + "x" * 1000)
    assert len(table._over) == MAX_REMEMBERED
    assert max(map(len, table._over)) == 256


def test_a_stream_may_be_closed_without_silence() -> None:
    table = table_of(Clock())
    table.add("a", FakeStream())
    table.close("a", silent=False)
    assert not table.is_over("a")
