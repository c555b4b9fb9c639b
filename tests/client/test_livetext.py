"""Growing text on a terminal: what stands on the screen does not depend on how the text came."""

from __future__ import annotations

import io
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tristream.client.livetext import LiveText, visible


def terminal(width: int) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=width, color_system=None, legacy_windows=False), out


def screen(written: str) -> list[str]:
    """What a terminal shows of it: it obeys line ends, `cursor back` and `erase to the end of the line`."""
    lines = [""]
    column = 0
    for piece in re.findall(r"\x1b\[\d*[A-Za-z]|\n|[^\x1b\n]+", written):
        if piece == "\n":
            lines.append("")
            column = 0
        elif piece.startswith("\x1b"):
            if piece.endswith("D"):
                column -= int(piece[2:-1])
            else:
                assert piece == "\x1b[0K"
                lines[-1] = lines[-1][:column]
        else:
            assert column == len(lines[-1])
            lines[-1] += piece
            column += len(piece)
    return lines


def show(text: str, cuts: list[int], width: int, *, words: bool = True, gutter: str = "| ") -> list[str]:
    console, out = terminal(width)
    block = LiveText(console, gutter=gutter, words=words)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        block.write(text[start:end])
    block.close()
    return screen(out.getvalue())


ascii_text = st.text(st.sampled_from("ab \n"), max_size=80)


@given(ascii_text, st.lists(st.integers(0, 80), max_size=8), st.integers(12, 40), st.booleans())
def test_no_line_is_too_long_and_nothing_is_lost(text: str, cuts: list[int], width: int, words: bool) -> None:
    lines = show(text, cuts, width, words=words)
    assert all(len(line) < width for line in lines)
    assert re.sub(r"[|\s]", "", "".join(lines)) == re.sub(r"\s", "", text)


@given(st.lists(st.text(st.sampled_from("abc"), min_size=1, max_size=8), max_size=20), st.integers(1, 9))
def test_words_stay_whole_in_every_chunking(words: list[str], size: int) -> None:
    text = " ".join(words)
    lines = show(text, list(range(0, len(text), size)), 14)
    assert " ".join(line.removeprefix("| ").strip() for line in lines if line).split() == words
    assert lines == show(text, [], 14)


def test_a_word_moves_to_the_next_line() -> None:
    assert show("hello wonderful", [8], 15, gutter="") == ["hello ", "wonderful", ""]


def test_json_breaks_anywhere() -> None:
    assert show('{"a": "bcdefgh"}', [], 12, words=False, gutter="  ") == ['  {"a": "bc', '  defgh"}', ""]


def test_wide_characters_take_two_columns() -> None:
    assert show("日本語日本語", [1, 2, 3, 4, 5], 11, gutter="") == ["日本語日本", "語", ""]


def test_blank_lines_keep_the_gutter() -> None:
    assert show("a\n\nb\n", [], 20) == ["| a", "|", "| b", ""]


@pytest.mark.parametrize("cut", range(1, 9))
def test_model_output_cannot_command_the_terminal(cut: int) -> None:
    console, out = terminal(40)
    block = LiveText(console)
    text = "\x1b[31mred\x07\x9b2J\x7f"
    block.write(text[:cut])
    block.write(text[cut:])
    block.close()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out.getvalue())
    assert "␛[31mred␇" in out.getvalue()


def test_visible_keeps_lines() -> None:
    assert visible("a\r\nb\tc\rd") == "a\nb    c␍d"


def test_elsewhere_than_on_a_terminal_nothing_wraps() -> None:
    out = io.StringIO()
    block = LiveText(Console(file=out, width=10), gutter="| ")
    block.write("one two three four")
    block.close("  ok")
    assert out.getvalue() == "| one two three four  ok\n"
