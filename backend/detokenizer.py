"""Token ids -> `Delta`s: one per token, added tokens apart, no character ever split.

The texts of the deltas, joined, are what the tokenizer makes of all ids at once (skip_special_tokens off), with
one exception that is meant: where a byte-fallback tokenizer would turn whole characters into U+FFFD because a
broken byte follows them, they stay whole, for they have been sent.

Two ways, by the tokenizer's decoder:
- `ByteLevel` (Qwen, DeepSeek, Llama 3, SmolLM2, ...): decoding is concatenation of bytes, so a token's text does not
  depend on its neighbours; it is looked up.
- any other (SentencePiece's metaspace, WordPiece, ...): the `tokenizers` library's DecodeStream, which keeps the
  context that says whether a blank belongs in front.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from tokenizers import Tokenizer, decoders
from tokenizers.decoders import DecodeStream

from tristream.parsers.events import Delta

from .errors import SettingsError

__all__ = ["Detokenizer", "DeltaSource", "Vocabulary", "load_vocabulary"]

REPLACEMENT: Final = "\ufffd"
METASPACE: Final = "\u2581"

MAX_HELD_TOKENS: Final = 32
"""Most tokens held because their bytes are no whole character. One character is four bytes at most, so only
a model that writes broken bytes without end gets here; without the bound its stream would stall and cost n²."""

Logprobs = Sequence[Mapping[str, Any]]


class DeltaSource(Protocol):
    """What turns the steps of a stream into deltas."""

    def feed(self, token_ids: Sequence[int], logprobs: Logprobs = ()) -> list[Delta]:
        """The deltas that these tokens complete."""
        ...

    def finish(self) -> list[Delta]:
        """What is still held."""
        ...


class Vocabulary:
    """A tokenizer as far as decoding goes; immutable but for a cache, so all streams of a process share it.

    Args:
        tokenizer: the LLM's tokenizer.
    """

    __slots__ = ("_pieces", "added", "added_spellings", "byte_level", "special_spellings", "tokenizer")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        tokens = tokenizer.get_added_tokens_decoder()
        self.added_spellings = frozenset(token.content for token in tokens.values())
        self.special_spellings = frozenset(token.content for token in tokens.values() if token.special)
        self.byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
        self._pieces: dict[int, str] = {}
        self.added: Mapping[int, str] = {
            number: self._added_text(number, token.content) for number, token in tokens.items()
        }
        """Added tokens, flagged special or not: id -> text, which is the spelling but for metaspaces."""

    def _added_text(self, token_id: int, spelling: str) -> str:
        """Gemma has runs of blanks as added tokens, spelled with metaspaces."""
        if self.byte_level or METASPACE not in spelling:
            return spelling
        # The second of two: a decoder may strip a blank at the beginning.
        return self.decode([token_id, token_id])[len(self.decode([token_id])) :]

    def piece(self, token_id: int) -> str:
        """The text of one ordinary token by itself; "" for an id the tokenizer does not know."""
        text = self._pieces.get(token_id)
        if text is None:
            text = self._pieces[token_id] = self.decode([token_id]) if self.knows(token_id) else ""
        return text

    def knows(self, token_id: int) -> bool:
        """Is there such a token? (Models have more output rows than their tokenizers have tokens.)"""
        return 0 <= token_id < 1 << 31 and self.tokenizer.id_to_token(token_id) is not None

    def decode(self, token_ids: Sequence[int]) -> str:
        """The tokenizer's own decoding, special tokens included; ids it does not know have no text."""
        known = [token_id for token_id in token_ids if self.knows(token_id)]
        text: str = self.tokenizer.decode(known, skip_special_tokens=False)
        return text


@functools.cache
def _load(path: Path, _changed: int) -> Vocabulary:
    try:
        return Vocabulary(Tokenizer.from_file(str(path)))
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception for whatever is wrong in the file
        raise SettingsError("tokenizer", f"{path}, which cannot be read ({error})", "a tokenizer.json") from None


def load_vocabulary(path: Path) -> Vocabulary:
    """Read a tokenizer, once per process and version of the file.

    Args:
        path: a tokenizer.json, or a folder that holds one.

    Raises:
        SettingsError: there is none, or it cannot be read.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise SettingsError("tokenizer", f"no file {file}", "a tokenizer.json, or a folder that holds one")
    return _load(file.resolve(), file.stat().st_mtime_ns)


class Detokenizer:
    """Decodes the tokens of one choice.

    Args:
        vocabulary: the LLM's tokenizer.
    """

    __slots__ = ("_context", "_held", "_held_logprobs", "_stream", "_vocabulary", "unknown_ids")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._held: list[int] = []  # tokens whose text is not whole yet
        self._held_logprobs: list[Mapping[str, Any]] = []
        self._stream = None if vocabulary.byte_level else DecodeStream(skip_special_tokens=False)
        self._context: list[int] = []  # the tokens that decide how the next one reads; DecodeStream only
        self.unknown_ids = 0
        """Ids the tokenizer does not know, so far. They have no text."""

    def feed(self, token_ids: Sequence[int], logprobs: Logprobs = ()) -> list[Delta]:
        """The deltas that these tokens complete.

        Args:
            token_ids: new tokens, any number.
            logprobs: one entry for each of them, or empty; a different number is as good as none.
        """
        if len(logprobs) != len(token_ids):
            logprobs = ()
        vocabulary, deltas = self._vocabulary, []
        for place, token_id in enumerate(token_ids):
            entry = logprobs[place : place + 1]
            spelling = vocabulary.added.get(token_id)
            if spelling is not None:
                deltas.extend(self._added(token_id, spelling, entry))
            elif self._stream is not None:
                deltas.extend(self._step(token_id, entry))
            elif not self._held and (text := vocabulary.piece(token_id)) and text[-1] != REPLACEMENT:
                deltas.append(Delta(text, (token_id,), False, entry))
            else:
                deltas.extend(self._hold(token_id, entry))
        return deltas

    def finish(self) -> list[Delta]:
        """What is still held: bytes that never became a character read as U+FFFD, as the tokenizer has it."""
        if not self._held:
            return []
        whole = self._vocabulary.decode(self._context + self._held)
        text = whole[len(self._vocabulary.decode(self._context)) :] if self._context else whole
        return [self._release(text)]

    def _hold(self, token_id: int, entry: Logprobs) -> list[Delta]:
        """ByteLevel, and `token_id` does not stand alone: it is part of a character, broken, or without text."""
        self._keep(token_id, entry)
        text = self._vocabulary.decode(self._held)
        if text and (text[-1] != REPLACEMENT or len(self._held) >= MAX_HELD_TOKENS):
            return [self._release(text)]
        return []

    def _step(self, token_id: int, entry: Logprobs) -> list[Delta]:
        """A token whose text depends on those before it."""
        assert self._stream is not None
        self._keep(token_id, entry)
        if not self._vocabulary.knows(token_id):
            return []
        try:
            text = self._stream.step(self._vocabulary.tokenizer, token_id)
        except Exception:  # noqa: BLE001 - "invalid prefix": a broken byte changed how the text before it reads
            return self._restart()
        if text:
            return [self._release(text)]
        return self._restart() if len(self._held) >= MAX_HELD_TOKENS else []

    def _added(self, token_id: int, spelling: str, entry: Logprobs) -> list[Delta]:
        """An added token: what is held cannot be completed any more and goes first."""
        deltas = self.finish()
        if self._stream is not None:
            # the stream has to see it: no blank is stripped from what follows, the beginning is over
            self._stream = DecodeStream([token_id], skip_special_tokens=False)
            self._context = [token_id]
        deltas.append(Delta(spelling, (token_id,), True, entry))
        return deltas

    def _keep(self, token_id: int, entry: Logprobs) -> None:
        self._held.append(token_id)
        self._held_logprobs.extend(entry)
        if not self._vocabulary.knows(token_id):
            self.unknown_ids += 1

    def _release(self, text: str) -> Delta:
        delta = Delta(text, tuple(self._held), False, tuple(self._held_logprobs))
        if self._stream is not None:
            self._context = [token_id for token_id in self._held if self._vocabulary.knows(token_id)] or self._context
        self._held.clear()
        self._held_logprobs.clear()
        return delta

    def _restart(self) -> list[Delta]:
        """Give out what is held as it reads now and go on behind it."""
        deltas = self.finish()
        self._stream = DecodeStream(self._context, skip_special_tokens=False)
        return deltas
