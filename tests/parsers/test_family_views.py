"""Every family by token ids: what a tokenizer with the family's spellings brings is what the text is (DESIGN 3)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import mistral_common
import pytest
from transformers.integrations.mistral.tokenizer import MistralConverter

from support.id_views import (
    encode,
    in_groups,
    message,
    small_vocabulary,
    vocabulary,
    without_tokens,
)
from support.parsing import VECTORS, case_options
from tristream.backend.detokenizer import Vocabulary

REAL: Final = {
    "tokenizers/qwen3": ("qwen3", "qwen3_coder", "hermes", "qwen3+hermes"),
    "tokenizers/deepseek_v3": ("deepseek_v3",),
    "tokenizers/deepseek_v4": ("deepseek_r1", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41"),
    "tokenizers/gptoss": ("gpt_oss",),
    "tokenizers/llama3_1": ("llama3_json", "pythonic", "functionary_v31", "functionary_v32", "firefunction"),
    "tokenizers/gemma3": ("functiongemma",),
}
"""Formats whose models have such a tokenizer, by the folder in `build/`."""


@cache
def cases() -> dict[str, list[dict[str, Any]]]:
    """The vectors of the families and the reported faults, by format."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in (*sorted((VECTORS / "families").glob("*.jsonl")), VECTORS / "reported.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            found.setdefault(case["format"], []).append(case)
    return found


def check(format: str, words: Vocabulary) -> None:
    """Every case of the format, one and five tokens per step."""
    for case in cases()[format]:
        ids = encode(words, case["output"])
        by_token = in_groups(words, ids, 1)
        text = "".join(delta.text for delta in by_token)
        assert text == case["output"], case["id"]
        by_ids = message(case, by_token, words, ids=True)
        assert message(case, in_groups(words, ids, 5), words, ids=True) == by_ids, case["id"]
        by_text = message(case, by_token, words, ids=False)
        assert without_tokens(by_ids) == without_tokens(by_text), case["id"]
        if case_options(case).include_reasoning:
            assert by_ids.token_ids == ids, case["id"]
        assert (by_ids.usage.completion_tokens if by_ids.usage else 0) == (len(ids) or 0), case["id"]


@pytest.mark.parametrize(("path", "format"), [(path, format) for path, formats in REAL.items() for format in formats])
def test_by_a_real_tokenizer(path: str, format: str) -> None:
    check(format, vocabulary(path))


def test_by_the_real_tekken() -> None:
    """Mistral's ranks as merges: of its markers this version has `[TOOL_CALLS]`, the others are ordinary text."""
    file = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
    words = Vocabulary(MistralConverter(str(file)).converted())
    assert "[TOOL_CALLS]" in words.added_spellings
    check("mistral", words)


@pytest.mark.parametrize("format", cases())
def test_by_a_tokenizer_with_the_spellings(format: str) -> None:
    check(format, small_vocabulary(format))
