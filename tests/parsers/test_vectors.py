"""Every vector in every chunking, and what a case says of notices."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from support.parsing import VECTORS, notices, vectors
from tristream.parsers.replay import fold_chunks, run_case

CASES = vectors()


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_vector(case: dict[str, Any]) -> None:
    result = run_case(case)
    assert result.passed, f"{result.chunking}: got {result.got}, expected {result.expected}"
    if "notices" in case:
        assert notices(fold_chunks(case, [case["output"]])) == case["notices"]


def test_ids_are_unique() -> None:
    twice = [identifier for identifier, count in Counter(case["id"] for case in CASES).items() if count > 1]
    assert not twice


def test_every_file_is_described() -> None:
    described = (VECTORS / "README.md").read_text(encoding="utf-8")
    assert not [path.name for path in VECTORS.glob("*.jsonl") if f"`{path.name}`" not in described]


def test_every_field_is_described() -> None:
    described = (VECTORS / "README.md").read_text(encoding="utf-8")
    assert not {field for case in CASES for field in case if f"`{field}`" not in described}


def test_the_reported_faults_of_the_formats_that_are_there() -> None:
    reported = [case for case in CASES if "link" in case]
    assert Counter(case["format"] for case in reported).keys() >= {
        "qwen3", "qwen3_coder", "hermes", "qwen3+hermes", "deepseek_r1",
    }  # fmt: skip
