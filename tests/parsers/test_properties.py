"""Any text, any cuts, any options, both views: no exception, nothing lost, one result (PROTOCOL 1)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fragments import FUNCTION, SPECIAL, added_spellings, outputs
from support.json_prefix import is_prefix
from support.parsing import pieces, run, tool
from tristream.parsers import Delta, Message, MessageDelta, fold, format_names, load_format
from tristream.parsers.header import BLANK_CHARS

FORMATS: Final = tuple(
    "qwen3 qwen3_coder hermes qwen3+hermes deepseek_r1 identity qwen3+qwen3_coder deepseek_r1+hermes".split()
)
OTHERS: Final = tuple(sorted(set(format_names()) - set(FORMATS)))
TOOLS: Final = [
    tool(
        FUNCTION,
        {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "tags": {"type": "array"},
        },
    ),
    tool("f", {"a": {"type": "boolean"}, "b": {}}),
]
NAMED: Final = {"type": "function", "function": {"name": FUNCTION}}
SOME: Final = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}
NO_EXTRAS: Final = dict.fromkeys(("return_token_ids", "logprobs", "reasoning_logprobs"), False)

bodies = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.just(TOOLS),
        "parallel_tool_calls": st.booleans(),
        "include_reasoning": st.booleans(),
        "unknown_tool": st.sampled_from(["pass", "drop", "content"]),
        "return_token_ids": st.booleans(),
        "logprobs": st.booleans(),
        "reasoning_logprobs": st.booleans(),
        "force_nonempty_content": st.booleans(),
        "max_held_chars": st.just(1024),
    },
)
choices = st.sampled_from(["auto", "auto", "none", "required", NAMED, SOME])
finishes = st.sampled_from(["stop", "length"])
tails = st.sampled_from([None, "", "<think>\n", "<think>\n\n</think>\n\n", "<|im_start|>assistant\n"])
specials = st.sampled_from([(), SPECIAL])
cuts = st.one_of(
    st.lists(st.integers(1, 400), max_size=6), st.integers(1, 5).map(lambda size: list(range(size, 20_000, size)))
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
json_values = st.recursive(scalars, lambda values: st.lists(values) | st.dictionaries(st.text(), values), max_leaves=8)
examples = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
fewer = settings(examples, max_examples=25)


def request(data: st.DataObject, **members: Any) -> dict[str, Any]:
    """The body of some request."""
    body = {**data.draw(bodies), **members}
    return {**body, "tool_choice": data.draw(choices)} if "tools" in body else body


def sound(sent: Sequence[MessageDelta], finish: str) -> Message:
    """The folded answer, after what holds for every answer."""
    message = fold(sent)
    whole: dict[int, str] = {}
    for delta in sent:
        for call in delta.tool_calls:
            text = whole[call.index] = whole.get(call.index, "") + call.arguments
            assert not text or is_prefix(text), "arguments that are not JSON"
    for index, tool_call in enumerate(message.tool_calls):
        assert tool_call.id
        assert tool_call.name
        assert tool_call.status is not None
        assert tool_call.arguments == whole[index]
        if tool_call.status == "complete":
            assert isinstance(json.loads(tool_call.arguments), dict)
    complete = any(call.status == "complete" for call in message.tool_calls)
    assert message.finish_reason in ({finish, "tool_calls"} if complete and finish == "stop" else {finish})
    return message


def decodable(fragments: Sequence[str]) -> str:
    """Their text as a tokenizer may have decoded it: without lone surrogates."""
    return re.sub("[\ud800-\udfff]", "?", "".join(fragments))


def split(text: str, added: frozenset[str], cutter: Callable[[str], Iterable[str]]) -> list[Delta]:
    """The text as a tokenizer with these added tokens gives it: each its own Delta, the text between them cut."""
    markers = "|".join(map(re.escape, sorted(added))) or "(?!)"
    deltas: list[Delta] = []
    for piece in re.split(f"({markers})", text):
        if piece in added:
            deltas.append(Delta(piece, special=True))
        else:
            deltas += map(Delta, cutter(piece))
    return deltas


def numbered(deltas: Sequence[Delta]) -> list[Delta]:
    return [
        Delta(delta.text, (number,), delta.special, ({"token": delta.text},)) for number, delta in enumerate(deltas)
    ]


def check_text_view(name: str, data: st.DataObject) -> None:
    text = "".join(data.draw(outputs(name)))
    body, finish = request(data), data.draw(finishes)
    view: dict[str, Any] = {"prompt_tail": data.draw(tails), "special": data.draw(specials), "finish": finish}
    whole = sound(run(name, text, body, **view), finish)
    cut = [Delta(piece) for piece in pieces(text, data.draw(cuts))]
    assert sound(run(name, cut, body, **view), finish) == whole


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@examples
def test_no_chunking_shows_in_the_text_view(name: str, data: st.DataObject) -> None:
    check_text_view(name, data)


@pytest.mark.parametrize("name", OTHERS)
@given(data=st.data())
@fewer
def test_no_chunking_shows_in_any_format(name: str, data: st.DataObject) -> None:
    check_text_view(name, data)


@pytest.mark.parametrize("name", [*FORMATS, *OTHERS])
@given(data=st.data())
@fewer
def test_no_chunking_shows_in_the_id_view(name: str, data: st.DataObject) -> None:
    text = decodable(data.draw(outputs(name)))
    known = sorted(added_spellings(name))
    added = frozenset(data.draw(st.lists(st.sampled_from(known)))) if known else frozenset[str]()
    special = frozenset(data.draw(st.lists(st.sampled_from(sorted(added))))) if added else added
    body, finish, places = request(data), data.draw(finishes), data.draw(cuts)
    view: dict[str, Any] = {"prompt_tail": data.draw(tails), "special": special, "added": added, "finish": finish}
    whole = sound(run(name, split(text, added, lambda piece: [piece]), body, **view), finish)
    cut = split(text, added, lambda piece: pieces(piece, places))
    assert sound(run(name, cut, body, **view), finish) == whole


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@fewer
def test_tokens_are_counted_the_same_on_every_path(name: str, data: st.DataObject) -> None:
    """Asking for ids takes the slow path; the message is the same, and each id is sent once, in order."""
    added = added_spellings(name)
    text = decodable(data.draw(outputs(name)))
    deltas = numbered(split(text, added, lambda piece: pieces(piece, range(1, 99, 3))))
    body = request(data, include_reasoning=True, **NO_EXTRAS)
    view: dict[str, Any] = {"prompt_tail": data.draw(tails), "added": added, "finish": data.draw(finishes)}
    fast = fold(run(name, deltas, body, **view))
    slow = fold(run(name, deltas, {**body, **dict.fromkeys(NO_EXTRAS, True)}, **view))
    assert slow.token_ids == list(range(len(deltas)))
    assert replace(slow, token_ids=[], logprobs=[], reasoning_logprobs=[]) == fast
    if deltas:
        assert fast.usage is not None
        assert fast.usage.completion_tokens == len(deltas)
        assert fast.usage.reasoning_tokens == len(slow.reasoning_logprobs)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@fewer
def test_nothing_is_lost_where_no_tools_are_declared(name: str, data: st.DataObject) -> None:
    """The order of the deltas is the order of the text; only markers and blanks are missing."""
    text = "".join(data.draw(outputs(name)))
    sent = run(name, [Delta(piece) for piece in pieces(text, data.draw(cuts))])
    got = "".join((delta.reasoning or "") + (delta.content or "") for delta in sent)
    format = load_format(name)
    removed = [*format.swallowed]
    if format.reasoning is not None:
        removed += [*format.reasoning.starts, *format.reasoning.ends]
    if not removed:
        assert got == text
        return
    blanks = str.maketrans("", "", BLANK_CHARS)
    left = re.sub("|".join(map(re.escape, removed)), "", text)
    assert got.translate(blanks) == left.translate(blanks)


@given(json_values, st.booleans(), st.integers(0, 200))
@examples
def test_any_json_arguments_arrive_as_they_were_written(value: Any, ascii_only: bool, cut: int) -> None:
    written = json.dumps({"v": value}, ensure_ascii=ascii_only)
    fence = "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    for name, before, after in (
        ("hermes", '<tool_call>\n{"name": "f", "arguments": ', "}\n</tool_call>"),
        ("hermes", '<tool_call>\n{"arguments": ', ', "name": "f"}\n</tool_call>'),
        ("deepseek_r1", fence, "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    ):
        text = before + written + after
        (call,) = fold(run(name, map(Delta, pieces(text, [cut, cut + 1, cut + 7])), {"tools": TOOLS})).tool_calls
        assert (call.arguments, call.status) == (written, "complete")


@given(json_values, st.integers(0, 200))
@examples
def test_any_encoded_arguments_arrive_decoded(value: Any, cut: int) -> None:
    written = json.dumps({"v": value})
    text = f'<tool_call>{{"name": "f", "arguments": {json.dumps(written)}}}</tool_call>'
    (call,) = fold(run("hermes", map(Delta, pieces(text, [cut, cut + 1, cut + 7])), {"tools": TOOLS})).tool_calls
    assert (call.arguments, call.status) == (written, "complete")


@given(st.text(max_size=60), st.lists(st.integers(0, 150), max_size=3))
@examples
def test_any_string_value_arrives_between_tags(value: str, places: list[int]) -> None:
    text = f"<tool_call>\n<function=f>\n<parameter=b>\n{value}\n</parameter>\n</function>\n</tool_call>"
    (call,) = fold(run("qwen3", map(Delta, pieces(text, places)), {"tools": TOOLS})).tool_calls
    assert json.loads(call.arguments) == {"b": value}


@given(json_values, st.text(alphabet='{}[]":,\\nul0.5-eE+ \n', max_size=14))
@examples
def test_the_check_of_prefixes_agrees_with_json(value: Any, text: str) -> None:
    written = json.dumps(value)
    assert all(is_prefix(written[:size]) for size in range(len(written) + 1))
    try:
        json.loads(text)
    except ValueError:
        return
    assert is_prefix(text)


@pytest.mark.parametrize(
    "text", ["}", "[1,]", '{"a" 1}', "01", "tru3", '"\\x"', "[1 2]", '{"a":1,}', "{1", "1.e", "- 1"]
)
def test_the_check_of_prefixes_refuses(text: str) -> None:
    assert not is_prefix(text)
