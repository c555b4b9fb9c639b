"""The search for candidates, and tables compiled for a view."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tristream.parsers import FormatDefinitionError, load_format
from tristream.parsers.candidates import candidate_regex
from tristream.parsers.format import Format, ReasoningSyntax
from tristream.parsers.scanner import compile_format
from tristream.parsers.states import State

literals = st.lists(st.text(alphabet="<>ab/", min_size=1, max_size=4), min_size=1, max_size=5)


@given(literals, st.text(alphabet="<>ab/ \n", max_size=12), st.booleans())
def test_candidates_are_where_a_literal_stands_or_may_begin(found: list[str], text: str, framed: bool) -> None:
    def stands(at: int) -> bool:
        rest = text[at:]
        return any(rest.startswith(literal) or literal.startswith(rest) for literal in found)

    def expected(at: int) -> bool:
        behind = framed and text[at] == "\n" and (at + 1 == len(text) or stands(at + 1))
        return stands(at) or behind

    match = candidate_regex(found, framed=framed)(text)
    first = next((at for at in range(len(text)) if expected(at)), None)
    assert (match and match.start()) == first


def test_no_literals_no_candidates() -> None:
    assert candidate_regex(())("anything") is None


def test_equal_compilations_are_shared() -> None:
    format = load_format("qwen3")
    first = compile_format(format, True, None, frozenset())
    assert compile_format(format, True, None, frozenset()) is first
    assert compile_format(format, False, None, frozenset()) is not first


def test_the_id_view_reads_tokens_and_not_their_spelling() -> None:
    added = frozenset({"<think>", "</think>", "<|im_end|>", "<|zap|>"})
    compiled = compile_format(load_format("qwen3"), True, added, frozenset({"<|im_end|>", "<|zap|>"}))
    assert compiled.incoming("<think>", special=False) == "<think>"
    symbols = [compiled.incoming(spelling, special=True) for spelling in sorted(added)]
    assert all(re.fullmatch("[\ud800-\udfff]", symbol) for symbol in symbols)
    assert len(set(symbols)) == 4
    assert compiled.incoming("<|box|>", special=True) == "<|box|>"
    assert compiled.incoming("a\ud800b", special=False) == "a\ufffdb"
    text = "".join(["a", *symbols, "b"])
    assert compiled.as_text(text) == "a</think><think><|im_end|>b"
    assert compiled.as_json(text) == "a</think><think>b"
    assert compiled.width("ab") == 2
    assert compiled.width("a" + compiled.incoming("<think>", special=True)) == 8
    scanner = compiled.scanners[State.REASONING]
    assert scanner.search("</think>") is None
    assert scanner.search(compiled.incoming("</think>", special=True)) is not None


def test_the_text_view_takes_text_as_it_is() -> None:
    compiled = compile_format(load_format("qwen3"), True, None, frozenset())
    assert compiled.incoming("a\ud800", special=True) == "a\ud800"
    assert compiled.width("a\ud800") == 2


def test_more_markers_than_symbols_is_an_error_of_the_format() -> None:
    ends = tuple(f"<{number:04}>" for number in range(2100))
    format = Format(name="x", source="y", reasoning=ReasoningSyntax(starts=(), ends=ends))
    with pytest.raises(FormatDefinitionError, match="2100 added tokens"):
        compile_format(format, True, frozenset(ends), frozenset())


def test_kinds_of_rows() -> None:
    between = compile_format(load_format("hermes"), True, None, frozenset()).scanners[State.TOOL_BETWEEN]
    for some in (between.closers, between.limits):
        assert some.rows
        assert len(some.rows) < len(between.rows)
    assert between.closers is between.closers
    assert [row for row, _ in between.attempts("x", 0)] == [row for row in between.rows if not row.literals]
