"""End tokens, BOS and context, from the files beside a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tristream.backend.tokenizer_facts import added_bos, context_length, end_ids


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


TOKENIZER = SimpleNamespace(eos_token_id=5)


def write(folder: Path, **files: Any) -> None:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def test_the_first_file_that_names_end_tokens_counts(folder: Path) -> None:
    assert end_ids(folder, SimpleNamespace(eos_token_id=None)) == ()
    assert end_ids(folder, TOKENIZER) == (5,)
    write(folder, config={"eos_token_id": 7})
    assert end_ids(folder, TOKENIZER) == (7,)
    write(folder, generation_config={"eos_token_id": [8, 9]})
    assert end_ids(folder, TOKENIZER) == (8, 9)


@pytest.mark.parametrize("broken", ["[", "[]", {"eos_token_id": None}, {"eos_token_id": ["x"]}, {"eos_token_id": []}])
def test_what_says_nothing_is_passed_over(folder: Path, broken: Any) -> None:
    write(folder, generation_config=broken, config={"eos_token_id": 7})
    assert end_ids(folder, TOKENIZER) == (7,)
    write(folder, config="{}")
    assert end_ids(folder, TOKENIZER) == (5,)


def test_the_contexts_length(folder: Path) -> None:
    tokenizer = SimpleNamespace(model_max_length=10**30)
    assert context_length(folder, tokenizer) is None
    assert context_length(folder, SimpleNamespace(model_max_length=512)) == 512
    write(folder, config={"text_config": {"max_position_embeddings": 99}})
    assert context_length(folder, tokenizer) == 99


def test_a_bos_is_one_that_the_tokenizer_writes_itself() -> None:
    class Tokenizer:
        bos_token, bos_token_id = "<s>", 1

        def __init__(self, *ids: int) -> None:
            self.ids = list(ids)

        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": self.ids}

    assert added_bos(Tokenizer(1, 5)) == "<s>"
    assert added_bos(Tokenizer(5)) == ""
    assert added_bos(Tokenizer()) == ""
