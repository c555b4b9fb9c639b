"""The id view with real tokenizers: every vector by token ids gives what its text gives (DESIGN 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from support.id_views import encode, half_a_marker, in_groups, message, vocabulary, without_tokens
from support.parsing import case_options, run, tool, vectors
from tristream.backend.detokenizer import Detokenizer, Vocabulary
from tristream.backend.realigner import TextRealigner
from tristream.parsers import Delta, fold

TOKENIZERS: Final = {
    "qwen3": "tokenizers/qwen3",
    "deepseek_v3": "tokenizers/deepseek_v3",
    "deepseek_v4": "tokenizers/deepseek_v4",
    "smollm2": "models/smollm2-135m-instruct",
}
FORMATS: Final = frozenset(
    "qwen3 qwen3_coder hermes qwen3+hermes qwen3+qwen3_coder deepseek_r1 deepseek_r1+hermes identity".split()
)
CASES: Final = [case for case in vectors() if case["format"] in FORMATS]


def cases_for(name: str) -> list[dict[str, Any]]:
    """All cases of the tokenizer's own families, some of the others."""
    own = [case for case in CASES if case["format"].partition("_")[0] in name]
    return own + [case for case in CASES if case not in own][::8]


def one_step_late(words: Vocabulary, ids: Sequence[int]) -> list[Delta]:
    """The Deltas of a backend whose text lags its ids by one step."""
    decoder, realigner = Detokenizer(words), TextRealigner(words)
    texts = ["".join(delta.text for delta in decoder.feed([token])) for token in ids]
    texts[-1:] = [texts[-1] + "".join(delta.text for delta in decoder.finish())] if texts else []
    deltas: list[Delta] = []
    for text, token in zip(["", *texts], [*([token] for token in ids), []], strict=True):
        deltas += realigner.feed(text, token)
    return [*deltas, *realigner.finish()]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_by_ids_every_case_is_what_its_text_is(name: str) -> None:
    words = vocabulary(TOKENIZERS[name])
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
    words = vocabulary(TOKENIZERS[name])
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
    words = vocabulary(TOKENIZERS["qwen3"])
    ids = encode(words, "<think>𓀀🚀</think>𓀁🚀")
    assert len(ids) > 8
    got = fold(run("qwen3", in_groups(words, ids, 1), added=words.added_spellings))
    assert (got.reasoning, got.content) == ("𓀀🚀", "𓀁🚀")
    assert got.usage is not None
    assert got.usage.completion_tokens == len(ids)
    assert got.usage.reasoning_tokens == len(encode(words, "𓀀🚀"))
