"""Names to formats."""

from __future__ import annotations

import pytest

from tristream.parsers import RequestError, format_names, load_format
from tristream.parsers.formats.registry import reasoning_aliases, tool_aliases


def test_every_name_loads_a_format_of_that_name() -> None:
    assert [load_format(name).name for name in format_names()] == list(format_names())


def test_one_format_is_one_object() -> None:
    assert load_format("qwen3") is load_format("qwen3")
    assert load_format("qwen3+hermes") is load_format("qwen3+hermes")


def test_a_composition_takes_reasoning_from_the_left_and_calls_from_the_right() -> None:
    composed = load_format("deepseek_r1+hermes")
    assert composed.reasoning is load_format("deepseek_r1").reasoning
    assert composed.tools is load_format("hermes").tools


@pytest.mark.parametrize(
    "name", ["nope", "", "qwen3+", "+hermes", "qwen3+hermes+qwen3", "registry", "forced", "x" * 5000]
)
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        load_format(name)
    assert caught.value.field == "format"
    assert len(caught.value.found) < 100


def test_formats_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(RequestError, match="agree on their markers"):
        load_format("solar+gpt_oss")


def test_every_alias_leads_to_a_name() -> None:
    outside = {"hf"}  # described by a checkpoint
    assert {*reasoning_aliases().values(), *tool_aliases().values()} <= {*format_names(), *outside}
