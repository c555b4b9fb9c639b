"""The id view with real tokenizers: every vector by token ids gives what its text gives (DESIGN 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from support.parsing import case_options, run, tool, vectors
from tristream.backend.detokenizer import Detokenizer, Vocabulary, load_vocabulary
from tristream.backend.realigner import TextRealigner
from tristream.parsers import ChatStream, Delta, Message, fold, load_format

ROOT: Final = Path(__file__).parents[2] / "build"
TOKENIZERS: Final = {
    "qwen3": ROOT / "tokenizers" / "qwen3",
    "deepseek_v3": ROOT / "tokenizers" / "deepseek_v3",
    "deepseek_v4": ROOT / "tokenizers" / "deepseek_v4",
    "smollm2": ROOT / "models" / "smollm2-135m-instruct",
}
FORMATS: Final = frozenset(
    "qwen3 qwen3_coder hermes qwen3+hermes qwen3+qwen3_coder deepseek_r1 deepseek_r1+hermes identity".split()
)
CASES: Final = [case for case in vectors() if case["format"] in FORMATS]


def cases_for(name: str) -> list[dict[str, Any]]:
    """All cases of the tokenizer's own families, some of the others."""
    own = [case for case in CASES if case["format"].partition("_")[0] in name]
    return own + [case for case in CASES if case not in own][::8]


@cache
def vocabulary(name: str) -> Vocabulary:
    if not TOKENIZERS[name].is_dir():
        pytest.fail(f"{TOKENIZERS[name]} is missing; `make setup` makes it", pytrace=False)
    return load_vocabulary(TOKENIZERS[name])


def encode(words: Vocabulary, text: str) -> list[int]:
    return list(words.tokenizer.encode(text, add_special_tokens=False).ids)


def in_groups(words: Vocabulary, ids: Sequence[int], size: int) -> list[Delta]:
    """The Deltas of a backend that sends `size` tokens per response."""
    detokenizer = Detokenizer(words)
    deltas = [delta for at in range(0, len(ids), size) for delta in detokenizer.feed(ids[at : at + size])]
    return [*deltas, *detokenizer.finish()]


def one_step_late(words: Vocabulary, ids: Sequence[int]) -> list[Delta]:
    """The Deltas of a backend whose text lags its ids by one step."""
    decoder, realigner = Detokenizer(words), TextRealigner(words)
    texts = ["".join(delta.text for delta in decoder.feed([token])) for token in ids]
    texts[-1:] = [texts[-1] + "".join(delta.text for delta in decoder.finish())] if texts else []
    deltas: list[Delta] = []
    for text, token in zip(["", *texts], [*([token] for token in ids), []], strict=True):
        deltas += realigner.feed(text, token)
    return [*deltas, *realigner.finish()]


def message(case: dict[str, Any], deltas: Sequence[Delta], words: Vocabulary, *, ids: bool) -> Message:
    added = words.added_spellings if ids else None
    options = case_options(case, return_token_ids=True)
    stream = ChatStream(case["format"], options, case.get("prompt_tail"), words.special_spellings, added)
    sent = [out for delta in deltas for out in stream.feed(delta)]
    return fold((*sent, *stream.finish(case.get("finish") or "stop")))


def without_tokens(message: Message) -> Message:
    return replace(message, usage=None, token_ids=[])


def half_a_marker(case: dict[str, Any], words: Vocabulary) -> bool:
    """Does the output hold the beginning of a marker that is an added token? By ids it is text at once."""
    text = case["output"]
    markers = load_format(case["format"]).markers() & words.added_spellings
    for marker in markers:
        text = text.replace(marker, "")
    return any(marker[:size] in text for marker in markers for size in range(2, len(marker)))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_by_ids_every_case_is_what_its_text_is(name: str) -> None:
    words = vocabulary(name)
    equal = 0
    cases = cases_for(name)
    for case in cases:
        ids = encode(words, case["output"])
        by_token = in_groups(words, ids, 1)
        text = "".join(delta.text for delta in by_token)
        if text != case["output"]:
            continue  # lone surrogates and the like have no tokens
        by_text = message(case, [Delta(text)], words, ids=False)
        by_ids = message(case, by_token, words, ids=True)
        same = without_tokens(by_ids) == without_tokens(by_text)
        assert same or half_a_marker(case, words), case["id"]
        equal += same
        for chunking, deltas in (("five", in_groups(words, ids, 5)), ("late", one_step_late(words, ids))):
            assert message(case, deltas, words, ids=True) == by_ids, f"{case['id']}: {chunking}"
        if case_options(case).include_reasoning:
            assert by_ids.token_ids == ids, case["id"]
        assert (by_ids.usage.completion_tokens if by_ids.usage else 0) == (len(ids) or 0), case["id"]
    assert equal > len(cases) * 0.95


TOOLS: Final = [tool("now")]


@pytest.mark.parametrize(
    ("name", "format", "marker", "text"),
    [
        ("qwen3", "qwen3", "<think>", "<think>A</think>B"),
        ("qwen3", "qwen3+hermes", "<tool_call>", '<tool_call>{"name": "now"}</tool_call>'),
        ("qwen3", "qwen3", "<|im_end|>", "A<|im_end|>B"),
        ("deepseek_v3", "deepseek_r1", "<｜tool▁calls▁begin｜>", "</think>A<｜tool▁calls▁begin｜>B"),
    ],
)
def test_a_marker_spelled_by_ordinary_tokens_is_text(name: str, format: str, marker: str, text: str) -> None:
    words = vocabulary(name)
    assert marker in words.added_spellings
    # A tokenizer never spells it so when it encodes; a model may, token by token.
    ids = [token for char in text for token in encode(words, char)]
    deltas = in_groups(words, ids, 1)
    assert not any(delta.special for delta in deltas)
    view: dict[str, Any] = {"special": words.special_spellings, "added": words.added_spellings}
    got = fold(run(format, deltas, {"tools": TOOLS}, prompt_tail="<think>\n\n</think>", **view))
    assert got.content == (text if name == "qwen3" else text.removeprefix("</think>"))
    assert (got.reasoning, got.tool_calls) == (None, [])
    by_token = in_groups(words, encode(words, text), 1)
    assert fold(run(format, by_token, {"tools": TOOLS}, prompt_tail="<think>\n\n</think>", **view)) != got


def test_a_character_of_several_tokens() -> None:
    words = vocabulary("qwen3")
    ids = encode(words, "<think>𓀀🚀</think>𓀁🚀")
    assert len(ids) > 8
    got = fold(run("qwen3", in_groups(words, ids, 1), added=words.added_spellings))
    assert (got.reasoning, got.content) == ("𓀀🚀", "𓀁🚀")
    assert got.usage is not None
    assert got.usage.completion_tokens == len(ids)
    assert got.usage.reasoning_tokens == len(encode(words, "𓀀🚀"))
