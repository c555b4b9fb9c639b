"""Every vector cut by length at every token: the stream folds to what one parse gives, and no call is closed for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tokenizers import Tokenizer

from support.parsing import case_options, vectors
from tristream.parsers import ChatOptions, ChatStream, Delta, Message, MessageDelta, fold, parse
from tristream.parsers.formats import load_format

PARTS: Final = 24
"""Tests that the vectors are dealt out to, for the two workers."""
CASES = vectors()


@pytest.fixture(scope="module")
def tokenizer(qwen3_tokenizer: Path) -> Tokenizer:
    return Tokenizer.from_file(str(qwen3_tokenizer / "tokenizer.json"))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    """The text token by token; tokens that share a character are one piece."""
    ends = sorted({end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets} | {len(text)})
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def deltas_of(
    case: dict[str, Any], options: ChatOptions, texts: list[str]
) -> tuple[list[MessageDelta], list[MessageDelta]]:
    """What came while the texts did, and what `finish` added."""
    stream = ChatStream(load_format(case["format"]), options, case.get("prompt_tail"))
    sent = [delta for text in texts for delta in stream.feed(Delta(text))]
    return sent, list(stream.finish("length"))


def arguments(deltas: list[MessageDelta]) -> dict[int, str]:
    """The argument text of each call."""
    texts: dict[int, str] = {}
    for delta in deltas:
        for call in delta.tool_calls:
            texts[call.index] = texts.get(call.index, "") + call.arguments
    return texts


def check(case: dict[str, Any], options: ChatOptions, texts: list[str], uncut: Message) -> None:
    where = f"{case['id']} cut after {''.join(texts)!r}"
    sent, last = deltas_of(case, options, texts)
    message = fold([*sent, *last])
    assert message == parse(
        "".join(texts), case["format"], options, prompt_tail=case.get("prompt_tail"), finish="length"
    ), where
    assert message.finish_reason == "length", where
    for index, call in enumerate(message.tool_calls):
        if call.status == "incomplete":
            # What was sent before the cut is a beginning of the uncut call, and the end adds no closer to it.
            before = arguments(sent).get(index, "")
            if len(uncut.tool_calls) > index and uncut.tool_calls[index].name == call.name:
                assert uncut.tool_calls[index].arguments.startswith(before), where
            # Nothing is closed artificially: it is whole JSON only where the model itself has just written it whole
            # (`null` stands for `{}`; arguments may be a string with JSON, whose quote may be there already).
            text = "".join(texts).rstrip()
            own = call.arguments in text or text.removesuffix('"').endswith(("}", "null"))
            assert not is_json(call.arguments) or own, f"{where}: {call.arguments!r}"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("part", range(PARTS))
def test_cut_at_every_token(part: int, tokenizer: Tokenizer) -> None:
    places = 0
    for case in CASES[part::PARTS]:
        options = case_options(case)
        texts = pieces(tokenizer, case["output"])
        sent, last = deltas_of(case, options, texts)
        uncut = fold([*sent, *last])
        for count in range(len(texts)):
            check(case, options, texts[:count], uncut)
            places += 1
    assert places > 10 * len(CASES[part::PARTS])
