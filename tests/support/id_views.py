"""Recorded outputs as a backend's token ids bring them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from tristream.backend.detokenizer import Detokenizer, Vocabulary, load_vocabulary
from tristream.parsers import ChatStream, Delta, Message, fold, load_format

from .fragments import literals
from .parsing import case_options

__all__ = ["encode", "half_a_marker", "in_groups", "message", "small_vocabulary", "vocabulary", "without_tokens"]

BUILD: Final = Path(__file__).parents[2] / "build"

_SPELLINGS: Final = re.compile(r"\]<\]minimax\[>\[|<[^<>\s=]{2,}>|\[/?[A-Z_]{3,}\]|◁/?think▷|\[e~\[|[｜]DSML[｜]")


@cache
def vocabulary(path: str) -> Vocabulary:
    """A real tokenizer of the build folder."""
    if not (BUILD / path).is_dir():
        pytest.fail(f"{BUILD / path} is missing; `make setup` makes it", pytrace=False)
    return load_vocabulary(BUILD / path)


def encode(words: Vocabulary, text: str) -> list[int]:
    """The text's token ids, none added around it."""
    return list(words.tokenizer.encode(text, add_special_tokens=False).ids)


def in_groups(words: Vocabulary, ids: Sequence[int], size: int) -> list[Delta]:
    """The Deltas of a backend that sends `size` tokens per response."""
    detokenizer = Detokenizer(words)
    deltas = [delta for at in range(0, len(ids), size) for delta in detokenizer.feed(ids[at : at + size])]
    return [*deltas, *detokenizer.finish()]


def message(case: dict[str, Any], deltas: Iterable[Delta], words: Vocabulary, *, ids: bool) -> Message:
    """The message that a case's deltas fold into, with its ids."""
    added = words.added_spellings if ids else None
    options = case_options(case, return_token_ids=True)
    stream = ChatStream(case["format"], options, case.get("prompt_tail"), words.special_spellings, added)
    sent = [out for delta in deltas for out in stream.feed(delta)]
    return fold((*sent, *stream.finish(case.get("finish") or "stop")))


def without_tokens(message: Message) -> Message:
    """The message without what depends on the tokens."""
    return replace(message, usage=None, token_ids=[])


def half_a_marker(case: dict[str, Any], words: Vocabulary) -> bool:
    """Does the output hold the beginning of a marker that is an added token? By ids it is text at once."""
    text = case["output"]
    markers = load_format(case["format"]).markers() & words.added_spellings
    for marker in markers:
        text = text.replace(marker, "")
    return any(marker[:size] in text for marker in markers for size in range(2, len(marker)))


@cache
def small_vocabulary(format: str) -> Vocabulary:
    """A byte-level tokenizer that has the format's spellings as added tokens, bars and ends of turn as special ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([_TRAINING] * 4, trainer)
    swallowed = load_format(format).swallowed
    found = {spelling for literal in literals(format) for spelling in _SPELLINGS.findall(literal)}
    for spelling in sorted(found):
        special = spelling in swallowed or "|" in spelling
        tokenizer.add_tokens([AddedToken(spelling, normalized=False, special=special)])
    return Vocabulary(tokenizer)


_TRAINING: Final = """Look at the weather, please: {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}
<parameter name="city" string="true"> name=" \n</parameter>\n</function> </invoke> get_weather(city='Paris', days=3)
"""
