"""Text that grows on a terminal: wrapped at words as it comes, behind a gutter, never redrawn.

A word that turns out too long for its line is moved to the next one: the only time the cursor goes back.
"""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.style import StyleType
from rich.text import Text

__all__ = ["LiveText", "visible"]

# Model output is hostile to a terminal (escape sequences): C0 and C1 controls show as pictures.
_PICTURES: Final[dict[int, int | str]] = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    0x09: "    ",
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def visible(text: str) -> str:
    """`text` without anything a terminal would obey; line ends stay."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


_PIECES: Final = re.compile(r"\n|[^\S\n]+|\S+")
_LINES: Final = re.compile(r"\n|[^\n]+")


class LiveText:
    """One block of growing text.

    Args:
        console: where it is written; wraps only on a terminal.
        gutter: what stands before every line.
        style: of the text.
        gutter_style: of the gutter.
        words: move whole words to the next line; False breaks anywhere, for JSON.
    """

    def __init__(
        self,
        console: Console,
        *,
        gutter: str = "",
        style: StyleType = "",
        gutter_style: StyleType = "dim",
        words: bool = True,
    ) -> None:
        self._console = console
        self._gutter = gutter
        self._style = style
        self._gutter_style = gutter_style
        self._words = words
        self._wraps = console.is_terminal and not console.is_dumb_terminal
        self._column: int | None = None
        self._word = ""
        self._line = Text(end="")

    def write(self, text: str) -> None:
        """Append text."""
        for piece in _PIECES.findall(visible(text)) if self._words else _LINES.findall(visible(text)):
            if piece == "\n":
                self._end_line(self._gutter.rstrip() if self._column is None else "")
            elif self._wraps:
                self._append(piece)
            else:
                self._put(piece)
        self._flush()

    def close(self, mark: str = "", style: StyleType = "") -> None:
        """End the last line, with a mark behind its text."""
        if mark:
            if self._column is None:
                self._put("")
            self._line.append(mark, style)
        if self._column is not None:
            self._end_line()
        self._flush()

    def _append(self, piece: str) -> None:
        """Put a word, a run of blanks, or (not by words) anything, where it fits."""
        # One column stays free, so that the terminal never wraps by itself.
        room = max(8, self._console.width - 1 - len(self._gutter))
        column = self._column or 0
        if column + cell_len(piece) <= room:
            self._put(piece)
        elif self._words and piece.isspace():
            self._end_line()
        elif self._words and column > cell_len(self._word) and cell_len(self._word + piece) <= room:
            self._move_word()
            self._put(piece)
        else:
            self._break(piece, room)

    def _break(self, piece: str, room: int) -> None:
        """Put a piece that is longer than what is left of the line, or than a line, by characters."""
        for character in piece:
            if (self._column or 0) + cell_len(character) > room:
                self._end_line()
            self._put(character)

    def _move_word(self) -> None:
        """Take the word that has begun at the line's end to the next line."""
        word = self._word
        if word:
            self._flush()
            back = cell_len(word)
            self._console.control(Control((ControlType.CURSOR_BACKWARD, back), (ControlType.ERASE_IN_LINE, 0)))
        self._end_line()
        if word:
            self._put(word)

    def _put(self, piece: str) -> None:
        if self._column is None:
            self._line.append(self._gutter, self._gutter_style)
            self._column = 0
        self._line.append(piece, self._style)
        self._column += cell_len(piece)
        self._word = "" if piece.isspace() else self._word + piece

    def _end_line(self, gutter: str = "") -> None:
        self._line.append(gutter, self._gutter_style)
        self._line.append("\n")
        self._column, self._word = None, ""

    def _flush(self) -> None:
        if self._line:
            self._console.print(self._line, end="", soft_wrap=True, highlight=False)
            self._line = Text(end="")
