"""What `docs/formats.md` says: samples that read back, claims that hold, names that carry over."""

from __future__ import annotations

import json
import re

import pytest

from tristream.client.format_diagrams import diagram, shape_of, shapes
from tristream.client.format_facts import count_wire_forms, facts_of
from tristream.client.format_sample import SAMPLE_ARGUMENTS, SAMPLE_NAME, call_samples
from tristream.client.formats_page import code, formats_page
from tristream.client.peer_names import PEERS, Peer, carried_over
from tristream.parsers import ChatOptions, ChatStream, Delta, format_names, load_format

CALLING = tuple(name for name in format_names() if load_format(name).tools is not None)
TOOL = {
    "type": "function",
    "function": {
        "name": SAMPLE_NAME,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}


def fed_by_character(name: str, sample: str) -> tuple[str, list[str], str]:
    """Id, pieces of arguments and content of a sample that comes a character at a time."""
    format = load_format(name)
    tail = format.reasoning.ends[0] if format.reasoning is not None else None
    stream = ChatStream(format, ChatOptions.from_openai({"tools": [TOOL]}), tail)
    deltas = [delta for char in sample for delta in stream.feed(Delta(char))]
    deltas += stream.finish("stop")
    calls = [call for delta in deltas for call in delta.tool_calls]
    assert {call.name for call in calls if call.name} == {SAMPLE_NAME}
    content = "".join(delta.content or "" for delta in deltas)
    return next(call.id for call in calls if call.id), [call.arguments for call in calls if call.arguments], content


@pytest.mark.parametrize("name", CALLING)
def test_every_format_has_samples_that_read_back(name: str) -> None:
    samples = call_samples(load_format(name))
    assert samples, f"{name}: no sample could be written from its table; see format_sample.py"
    for sample in samples:
        _, pieces, content = fed_by_character(name, sample)
        assert json.loads("".join(pieces)) == SAMPLE_ARGUMENTS
        assert not content


@pytest.mark.parametrize("name", CALLING)
def test_strings_stream_as_they_come(name: str) -> None:
    for sample in facts_of(name)["tools"]["samples"]:
        _, pieces, _ = fed_by_character(name, sample)
        assert sum(bool(set(piece) & set("Oslo")) for piece in pieces) >= 3, "the string's characters came apart"


@pytest.mark.parametrize("name", CALLING)
def test_whose_ids_are_kept(name: str) -> None:
    said = facts_of(name)["tools"]["ids"]
    for sample in facts_of(name)["tools"]["samples"]:
        identifier, _, _ = fed_by_character(name, sample)
        own = identifier in sample
        assert not own or said.startswith("the model's")
        if '{"name"' in sample:
            identifier, _, _ = fed_by_character(name, sample.replace('{"name"', '{"id": "mine", "name"'))
            assert (identifier == "mine") == said.startswith("the model's")


def test_formats_that_differ_in_what_they_read() -> None:
    assert count_wire_forms() >= 50


def test_one_diagram_for_each_shape() -> None:
    drawn = shapes()
    assert sorted(name for _, names in drawn for name in names) == list(format_names())
    assert len({diagram(shape) for shape, _ in drawn}) == len(drawn)
    for name in ("identity", "hermes", "gpt_oss"):
        text = diagram(shape_of(load_format(name)))
        assert re.fullmatch(r"stateDiagram-v2(\n    [\w\[\]*<> -]+( : [\w, /]+)?)+", text), text


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.engine)
def test_names_of_other_engines_carry_over(peer: Peer) -> None:
    for role, name, ours in carried_over(peer):
        if not ours:
            continue
        format = load_format(f"{ours}+identity" if role == "reasoning" else f"identity+{ours}")
        part = format.tools if role == "tools" else format.reasoning or format.messages or format.prepend
        assert part or ours == "minimax_m2_append_think", f"{peer.engine}: {name} as {role}"


def test_inline_code() -> None:
    assert code("a\nb") == "`a⏎b`"
    assert code("```json") == "`` ```json ``"


def test_the_page_names_every_format() -> None:
    page = formats_page()
    assert all(f"\n### {name}\n" in page for name in format_names())
    assert "FORMATS" not in page, "users do not have the project's notes"
