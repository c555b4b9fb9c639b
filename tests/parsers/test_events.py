"""What goes in."""

from __future__ import annotations

from tristream.parsers import Delta


def test_a_delta_shows_what_it_is() -> None:
    assert repr(Delta("<think>", (7,), True)) == "Delta('<think>', (7,), special=True)"
    assert repr(Delta("a")) == "Delta('a', (), special=False)"
