"""Foreign text and token ids that do not arrive together -> `Delta`s.

Some backends send a step's ids with the text of the step before it, leave special tokens out of the text,
or cut a stop string off it. Their text decides what is said; the ids say which pieces of it are added tokens.
So the ids are decoded as well, and each piece waits for its text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from tristream.parsers.events import Delta

from .detokenizer import Detokenizer, Logprobs, Vocabulary

__all__ = ["TextRealigner"]

SLACK: Final = 8
"""Characters by which a text that differs may be longer than the ids' own, before an added token whose spelling
has not come counts as left out."""


class TextRealigner:
    """Realigns the text and the ids of one choice.

    Where the text is not what the ids say (another decoder's blanks or U+FFFD), pieces up to the next added
    token are taken loosely: as many characters as their own decoding has, or up to that token's spelling.

    Args:
        vocabulary: the LLM's tokenizer.
    """

    __slots__ = ("_at", "_detokenizer", "_expected", "_loose", "_text")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._detokenizer = Detokenizer(vocabulary)
        self._expected: deque[Delta] = deque()  # what the ids say, its text still to come
        self._text = ""  # text that has come; from `_at` on it is matched with no id yet
        self._at = 0
        self._loose = 0  # characters still to be taken without comparing, SLACK included

    def feed(self, text: str, token_ids: Sequence[int], logprobs: Logprobs = ()) -> list[Delta]:
        """The deltas whose text has come.

        Args:
            text: new text, without splitting characters; may belong to earlier ids.
            token_ids: new ids; their text may come later.
            logprobs: one entry for each id, or empty.
        """
        self._expected.extend(self._detokenizer.feed(token_ids, logprobs))
        self._text = self._text[self._at :] + text
        self._at = 0
        return self._match()

    def finish(self) -> list[Delta]:
        """What is left: text without ids, and ids without text (a stop token the backend does not show)."""
        self._expected.extend(self._detokenizer.finish())
        if self._loose and self._loose <= SLACK:
            self._end_loose()
        deltas = self._match()
        while self._expected:
            ordinary = self._take_ordinary()
            if ordinary is not None:
                text = self._take(len(self._text) - self._at)
                deltas.append(Delta(text, ordinary.token_ids, False, ordinary.logprobs))
            else:
                deltas.append(self._expected.popleft())
        if self._at < len(self._text):
            deltas.append(Delta(self._take(len(self._text) - self._at)))
        return deltas

    def _take(self, length: int) -> str:
        start, self._at = self._at, self._at + length
        return self._text[start : self._at]

    def _match(self) -> list[Delta]:
        deltas: list[Delta] = []
        while self._at < len(self._text):
            if self._loose:
                if not self._take_loosely(deltas):
                    break
                continue
            if not self._expected:
                deltas.append(Delta(self._take(len(self._text) - self._at)))
                break
            head = self._expected[0]
            if self._text.startswith(head.text, self._at):
                self._at += len(head.text)
                deltas.append(self._expected.popleft())
            elif len(self._text) - self._at < len(head.text) and head.text.startswith(self._text[self._at :]):
                break  # the rest of this piece is still to come
            elif head.special:
                deltas.append(self._expected.popleft())  # the backend left its spelling out
            else:
                ordinary = self._take_ordinary()
                assert ordinary is not None
                self._loose = len(ordinary.text) + SLACK
                self._expected.appendleft(ordinary)
        return deltas

    def _take_loosely(self, deltas: list[Delta]) -> bool:
        """Take text for the first expected piece by length alone; False where more text must come first."""
        special = next((delta for delta in self._expected if delta.special), None)
        rest = len(self._text) - self._at
        stop = self._text.find(special.text, self._at) - self._at if special is not None else -1
        length = min(self._loose - SLACK, rest)
        if 0 <= stop <= self._loose:
            length = stop
        elif special is not None:
            if self._loose == SLACK:
                if rest < SLACK + len(special.text):
                    return False
                self._end_loose()
                return True
            length = min(length, rest - _holdback(self._text, special.text))
            if length <= 0:
                return False
        self._loose -= length
        head = self._expected.popleft()
        deltas.append(Delta(self._take(length), head.token_ids, False, head.logprobs))
        self._expected.appendleft(Delta(""))  # the ids went with their first character
        if stop == length or (special is None and self._loose == SLACK):
            self._end_loose()
        return True

    def _end_loose(self) -> None:
        """Compare again, from the piece behind the loose one."""
        self._loose = 0
        if not self._expected[0].token_ids:
            self._expected.popleft()

    def _take_ordinary(self) -> Delta | None:
        """Remove the ordinary pieces up to the next added token and join them; None where there are none."""
        pieces: list[Delta] = []
        while self._expected and not self._expected[0].special:
            pieces.append(self._expected.popleft())
        if not pieces:
            return None
        return Delta(
            "".join(piece.text for piece in pieces),
            tuple(token_id for piece in pieces for token_id in piece.token_ids),
            False,
            [entry for piece in pieces for entry in piece.logprobs],
        )


def _holdback(text: str, spelling: str) -> int:
    """Length of the longest end of `text` that may begin `spelling`."""
    for length in range(min(len(text), len(spelling) - 1), 0, -1):
        if text.endswith(spelling[:length]):
            return length
    return 0
