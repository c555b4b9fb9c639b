"""Stop strings over tokens."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tristream.backend.engines.stopping import StopMatcher


def play(stops: list[str], tokens: list[bytes]) -> tuple[list[int], bool, list[list[int]]]:
    """Feed tokens 0, 1, ...; returns what was sent, whether it stopped, and what each push sent."""
    matcher: StopMatcher[int] = StopMatcher(stops)
    sent: list[int] = []
    pushes = []
    for number, text in enumerate(tokens):
        items, stopped = matcher.push(number, text)
        pushes.append(items)
        sent += items
        if stopped:
            return sent, True, pushes
    return sent + matcher.flush(), False, pushes


def test_without_stops_every_token_passes_at_once() -> None:
    assert play([], [b"a", b"b"]) == ([0, 1], False, [[0], [1]])


def test_tokens_from_the_match_on_are_not_sent() -> None:
    assert play(["END"], [b"go ", b"E", b"ND", b"x"]) == ([0], True, [[0], [], []])


def test_a_token_that_begins_before_the_match_is_sent_whole() -> None:
    assert play(["END"], [b"goE", b"ND"]) == ([0], True, [[0], []])


def test_held_tokens_are_released_when_the_stop_does_not_come() -> None:
    assert play(["END"], [b"E", b"N", b"O"]) == ([0, 1, 2], False, [[], [], [0, 1, 2]])


def test_held_tokens_are_released_at_the_end() -> None:
    assert play(["END"], [b"a", b"EN"]) == ([0, 1], False, [[0], []])


def test_a_shorter_stop_inside_a_longer_one() -> None:
    assert play(["abcd", "bc"], [b"a", b"b", b"c"])[:2] == ([0], True)


def test_a_character_may_be_split_over_tokens() -> None:
    assert play(["é"], [b"x", b"\xc3", b"\xa9"]) == ([0], True, [[0], [], []])


@given(
    text=st.text("ab", max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_any_cut(text: str, cuts: list[int], stops: list[str]) -> None:
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b].encode() for a, b in pairwise(edges)]
    sent, stopped, pushes = play(stops, pieces)
    # the reference: read on until some stop is in what has come
    read, expected, match = "", list(range(len(pieces))), False
    for number, piece in enumerate(pieces):
        read += piece.decode()
        found = [read.find(stop) for stop in stops if stop in read]
        if found:
            starts = [sum(map(len, pieces[:each])) for each in range(number + 1)]
            expected, match = [each for each in range(number + 1) if starts[each] < min(found)], True
            break
    assert (sent, stopped) == (expected, match)
    if not stopped:
        held = len(pieces) - sum(map(len, pushes))
        assert not held or sum(map(len, pieces[-held:])) < max(map(len, stops))
