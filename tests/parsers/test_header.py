"""Header patterns: YES, NO or MORE, and the same answer however the text comes."""

from __future__ import annotations

import pytest

from tristream.parsers.header import (
    BLANK_LIMIT,
    HEADER_LIMIT,
    MORE,
    NO,
    Ahead,
    Attempt,
    Blanks,
    Either,
    Lit,
    Maybe,
    Name,
    Pattern,
    Until,
    first_literals,
    here,
    translate,
)

CALL: Pattern = (Lit("<f="), Blanks(), Name(), Blanks(), Lit(">"))


def answer(pattern: Pattern, text: str, *, final: bool = False) -> int:
    return Attempt(pattern).step(text, 0, final)


@pytest.mark.parametrize(
    ("pattern", "text", "growing", "at_the_end"),
    [
        (CALL, "<f=ab>", 6, 6),
        (CALL, "<f= ab >", 8, 8),
        (CALL, "<f=ab", MORE, NO),
        (CALL, "<", MORE, NO),
        (CALL, "<g", NO, NO),
        (CALL, "<f=>", NO, NO),
        ((Name(),), "ab", MORE, 2),
        ((Name(),), "", MORE, NO),
        ((Blanks(), Lit("x")), " " * BLANK_LIMIT + "x", BLANK_LIMIT + 1, BLANK_LIMIT + 1),
        ((Blanks(), Lit("x")), " " * (BLANK_LIMIT + 1), NO, NO),
        ((Until(">", "key"),), " a b >", 6, 6),
        ((Until(">", "key"),), "a", MORE, NO),
        ((Until(">", "key"),), "a\n>", NO, NO),
        ((Until(">", "key"),), "a" * 300, NO, NO),
        ((Maybe((Lit("ab"),)), Lit("c")), "abc", 3, 3),
        ((Maybe((Lit("ab"),)), Lit("c")), "c", 1, 1),
        ((Maybe((Lit("ab"),)), Lit("c")), "a", MORE, NO),
        ((Either(((Lit("ab"),), (Lit("ac"),))),), "ac", 2, 2),
        ((Either(((Lit("ab"),), (Lit("ac"),))),), "a", MORE, NO),
        ((Either(((Lit("ab"),), (Lit("ac"),))),), "b", NO, NO),
        ((Lit("a"), Ahead(((Lit("b"),),))), "ab", 1, 1),
        ((Lit("a"), Ahead(((Lit("bc"),),))), "ab", MORE, NO),
        ((Lit("a"), Ahead(((Lit("b"),),))), "a", MORE, NO),
        ((Lit("a"), Ahead(((Lit("b"),),), end=True)), "a", MORE, 1),
        ((Lit("a"), Ahead(((Lit("b"),),), end=True)), "ac", NO, NO),
        (here("b", Lit("c")), "bc", 2, 2),
    ],
)
def test_answers(pattern: Pattern, text: str, growing: int, at_the_end: int) -> None:
    assert answer(pattern, text) == growing
    assert answer(pattern, text, final=True) == at_the_end


def test_an_attempt_goes_on_where_it_stopped() -> None:
    text = "<f= name >"
    attempt = Attempt(CALL)
    assert [attempt.step(text[:size], 0, False) for size in range(1, len(text))] == [MORE] * (len(text) - 1)
    assert attempt.step(text, 0, False) == len(text)
    assert attempt.captures == {"name": "name"}


def test_a_header_has_a_limit() -> None:
    pattern: Pattern = (Lit("<"), *(Until(";", str(number)) for number in range(4)), Lit(">"))
    fits = "<" + ("a" * 126 + ";") * 4 + ">"
    assert answer(pattern, fits) == len(fits) <= HEADER_LIMIT
    assert answer(pattern, "<" + ("a" * 127 + ";") * 4 + ">") == NO


def test_first_literals() -> None:
    assert first_literals(CALL) == ("<f=",)
    assert first_literals((Either(((Lit("a"),), (Lit("b"),))),)) == ("a", "b")
    assert first_literals((Either(((Lit("a"),), (Name(),))),)) == ()
    assert first_literals((Blanks(), Lit("a"))) == ()
    assert first_literals(here("a")) == ()
    assert first_literals(()) == ()


def test_translate_respells_every_literal() -> None:
    pattern: Pattern = (
        Lit("a"), Blanks(), Name(), Until("a", "x"), Maybe((Lit("a"),)), Either(((Lit("a"),),)), Ahead(((Lit("a"),),)),
    )  # fmt: skip
    assert translate(pattern, str.upper) == (
        Lit("A"), Blanks(), Name(), Until("A", "x"), Maybe((Lit("A"),)), Either(((Lit("A"),),)), Ahead(((Lit("A"),),)),
    )  # fmt: skip
