"""Content or reasoning on its way: what was sent, and the run of blanks that is not decided yet (PROTOCOL 3)."""

from __future__ import annotations

from typing import Final

from .accounting import Token
from .header import BLANK_CHARS

__all__ = ["RECENT_BLANKS", "Channel"]

RECENT_BLANKS: Final = 4096
"""Most blanks that are joined as they come, in characters: a longer run is a list of such pieces, so that
adding to it does not copy it. Also the most that the fast path holds: the slow path watches the bound."""


class Channel:
    """Content or reasoning: what was sent, and the run of blanks that waits for what follows it."""

    __slots__ = (
        "blanks", "blanks_end", "counted", "earlier", "fast_count", "flowing", "sent", "size", "tokens", "touched",
        "unsent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.blanks = ""  # the run, or the latest part of a long one
        self.earlier: list[str] = []  # the parts before it
        self.size = 0  # of those parts
        self.blanks_end = 0  # offset in the model's text
        self.tokens: list[Token] = []  # those of the waiting run
        self.sent = False
        self.touched = False  # the waiting run touches a removed marker
        self.flowing = False  # the run is too long to hold: it is sent as it comes
        self.counted = 0
        self.fast_count = 0  # tokens sent on the fast path, those of the run before them included
        self.unsent = 0  # tokens that came on the fast path, less those it sent: `_counted` adds both up

    def hold(self, blanks: str, end: int) -> None:
        """More of the run."""
        if len(self.blanks) >= RECENT_BLANKS:
            self.earlier.append(self.blanks)
            self.size += len(self.blanks)
            self.blanks = blanks
        else:
            self.blanks += blanks
        self.blanks_end = end

    def take(self) -> str:
        """The run, which waits no longer."""
        run = "".join((*self.earlier, self.blanks))
        self.earlier.clear()
        self.size = 0
        self.blanks = ""
        return run

    def fast(self, text: str, ids: tuple[int, ...], end: int) -> str:
        """On the fast path: what to send where blanks wait or `text` ends with some."""
        body = len(text.rstrip(BLANK_CHARS))
        if body == 0:
            self.blanks += text
            self.blanks_end = end
            if ids:
                self.tokens.append(Token(end - len(text), end, ids, ()))
                self.unsent += len(ids)
            return ""
        self.fast_count += len(ids)
        if self.tokens:
            waited = sum(len(token.ids) for token in self.tokens)
            self.fast_count += waited
            self.unsent -= waited
            self.tokens.clear()
        text, self.blanks = self.blanks + text[:body], text[body:]
        self.blanks_end = end
        return text
