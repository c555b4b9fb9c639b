"""Markers whose ends the tokenizer decides."""

from __future__ import annotations

import pytest

from support.templates import renderer
from tristream.parsers import RequestError, load_format
from tristream.parsers.detect import detect
from tristream.parsers.detect_markers import missing_tokens
from tristream.parsers.formats import spelled
from tristream.parsers.self_check import self_check

NAMES = ("think", "tool_calls", "tool_call", "arg_key", "arg_value", "tool_sep")


def tokens(suffix: str, names: tuple[str, ...] = NAMES) -> frozenset[str]:
    tags = {f"<{end}{name}{suffix}>" for name in names for end in ("", "/")}
    return frozenset({*tags, "<|eos|>", "<|startoftext|>", "<thinking>"})


TEMPLATE = (
    "<|startoftext|>{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}<think:9a>{{ m.reasoning_content }}</think:9a>{% endif %}{{ m.content or '' }}"
    "{% if m.tool_calls %}<tool_calls:9a>{% for c in m.tool_calls %}<tool_call:9a>{{ c.function.name }}"
    "{% for k, v in c.function.arguments.items() %}<arg_key:9a>{{ k }}</arg_key:9a>"
    "<arg_value:9a>{{ v if v is string else v | tojson }}</arg_value:9a>{% endfor %}</tool_call:9a>{% endfor %}"
    "</tool_calls:9a>{% endif %}<|eos|>{% endfor %}{% if add_generation_prompt %}<assistant><think:9a>{% endif %}"
)


@pytest.mark.parametrize(
    ("name", "suffix", "found"),
    [
        ("hy_v4", ":6124c78e", "hy_v4{:6124c78e}"),
        ("hy3", ":61", "hy3{:61}"),
        ("hy_v4", "", "hy_v4"),
        ("hy_v4{:7}", ":61", "hy_v4{:7}"),
        ("hermes", ":61", "hermes"),
        ("hy_v4+hermes", ":61", "hy_v4{:61}+hermes"),
        ("qwen3+hy_v3", ":61", "qwen3+hy_v3{:61}"),
        ("hy_v4+hy_v3", ":61", "hy_v4{:61}+hy_v3{:61}"),
    ],
)
def test_the_tokenizer_says_the_suffix(name: str, suffix: str, found: str) -> None:
    assert spelled(name, tokens(suffix)) == found
    assert load_format(found) is load_format(found)


def test_markers_are_spelled_out() -> None:
    assert {"<think:61>", "</tool_call:61>", "<|eos|>"} <= load_format("hy_v4{:61}").markers()
    assert {"<think>", "<tool_calls>"} <= load_format("hy_v4").markers()
    assert load_format("hunyuan{:61}").reasoning == load_format("hy_v3{:61}").reasoning
    assert load_format("hy_v3{:61}").name == "hy_v3{:61}"


def test_few_tokens_that_look_alike_decide_nothing() -> None:
    assert spelled("hy_v4", frozenset({"<thinking>", "<tool_call_end>"})) == "hy_v4"
    assert missing_tokens(load_format("hy_v4"), frozenset({"<thinking>"})) == ("<tool_calls>", "</think>")


@pytest.mark.parametrize("name", ["hermes{:61}", "hy_v4{a b}", "hy_v4{}", "hy_v4{<}", "hy_v4{" + "x" * 40 + "}"])
def test_suffixes_that_cannot_be(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        load_format(name)
    assert caught.value.field == "format"


def test_detection_and_self_check() -> None:
    render = renderer(TEMPLATE)
    found = detect(render, added_spellings=tokens(":9a", NAMES[:-1]))
    assert found.format == "hy_v4{:9a}", found
    assert not self_check(render, found.format).problems
    assert "<tool_calls:9a>" in str(self_check(render, "hy_v4"))
    assert detect(render).format is None
