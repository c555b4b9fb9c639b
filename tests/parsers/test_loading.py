"""Formats from outside: files, entry points, a checkpoint's `response_template`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tristream.parsers import Format, FormatDefinitionError, Message, RequestError, format_names, load_format, parse
from tristream.parsers.formats import loading, registry
from tristream.parsers.formats.loading import load_checkpoint, load_entry_point, load_file

ACME = {
    "name": "acme",
    "source": "chat template of acme/one (2026-11)",
    "turns": ["<|user|>", "<|assistant|>"],
    "swallowed": ["<|end|>"],
    "reasoning": {"starts": ["<think>"], "ends": ["</think>"]},
    "tools": {
        "arguments": {"syntax": "json_object"},
        "entries": [["<call:", {"item": "name"}, ">", {"item": "blanks"}, {"item": "ahead", "options": [["{"]]}]],
        "closers": [["</call>"]],
        "ends_reasoning": True,
    },
}

# The same in TOML, beside a second format with every kind of item and an argument syntax of its own for one opener.
TOML = """
[[formats]]
name = "acme"
source = "chat template of acme/one (2026-11)"
swallowed = ["<|end|>"]
reasoning = { starts = ["<think>"], ends = ["</think>"], opens_by_default = true, switches = ["thinking"] }
[formats.tools]
arguments = { syntax = "json_object" }
entries = [["<call:", { item = "name" }, ">", { item = "blanks" }, { item = "ahead", options = [["{"]] }]]
closers = [["</call>"]]

[[formats]]
name = "acme.tags"
source = "made up"
text_markers = true
prepend = ""
[formats.tools]
ids = "mistral"
empty = [["<calls>", "</calls>"]]
wrappers = ["<calls>"]
closers = [["</calls>"], ["</call>"]]
frames = [[{ item = "here", literal = ";" }]]
inner = [
    ["<call ", { item = "maybe", items = ["fn="] }, { item = "until", stop = ">", capture = "name" }],
    { pattern = [{ item = "either", options = [["<json>"], ["<js>"]] }, { item = "call_object" }], \
arguments = { syntax = "json_call" }, wrapper = false },
    { pattern = [{ item = "keyed_object" }], arguments = { syntax = "keyed_call" } },
]
[formats.tools.arguments]
syntax = "tagged"
parameter = ["<", { item = "until", stop = ">", capture = "key", limit = 64, forbidden = "\\n</" }]
value_closers = ["</>"]
call_closers = ["</call>"]
wrapper_closers = ["</calls>"]
skipped = [["--"]]
framed = true
"""

TOOLS = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                },
            },
        }
    ]
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test loads is unknown to the next one."""
    monkeypatch.setattr(registry, "_OUTSIDE", {})
    load_format.cache_clear()
    yield
    load_format.cache_clear()


def calls(message: Message) -> list[tuple[str, Any, str | None]]:
    return [(call.name, json.loads(call.arguments), call.status) for call in message.tool_calls]


def saved(folder: Path, data: Any, name: str = "acme.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


# --- files --------------------------------------------------------------------------------------


def test_one_format_in_json(tmp_path: Path) -> None:
    before = format_names()
    (loaded,) = load_file(saved(tmp_path, ACME))
    assert load_format("acme") is loaded
    assert format_names() == tuple(sorted((*before, "acme")))
    message = parse('<think>x</think>Hi <call:f>\n{"a": 1}</call><|end|>', "acme", TOOLS)
    assert (message.reasoning, message.content) == ("x", "Hi")
    assert calls(message) == [("f", {"a": 1}, "complete")]


def test_several_formats_in_toml(tmp_path: Path) -> None:
    first, second = load_file(saved(tmp_path, TOML, "acme.toml"))
    assert first.reasoning is not None
    assert first.reasoning.opens_by_default
    assert second.text_markers
    assert second.tools is not None
    assert second.tools.ids == "mistral"
    text = '<calls><call fn=f><a>\n1\n</><b>\nx\n</></call><js>{"name": "f", "arguments": {"a": 2}}</calls>'
    assert calls(parse(text, "acme.tags", TOOLS)) == [
        ("f", {"a": 1, "b": "x"}, "complete"),
        ("f", {"a": 2}, "complete"),
    ]


def test_other_argument_syntaxes(tmp_path: Path) -> None:
    literals = {
        "name": "acme",
        "source": "made up",
        "tools": {
            "arguments": {
                "syntax": "literals",
                "closers": ")",
                "separator": "=",
                "quotes": [{"mark": '"', "escapes": True}],
                "bare_strings": False,
            },
            "entries": [["@", {"item": "name"}, "("]],
        },
    }
    load_file(saved(tmp_path, literals))
    assert calls(parse('@f(a=1, b="x")', "acme", TOOLS)) == [("f", {"a": 1, "b": "x"}, "complete")]
    nested = {**ACME, "tools": {**ACME["tools"], "arguments": {"syntax": "nested", "prefix": "~", "call": "call"}}}  # type: ignore[dict-item]
    load_file(saved(tmp_path, nested))  # a name that was loaded before is replaced
    tools = load_format("acme").tools
    assert tools is not None
    assert type(tools.arguments).__name__ == "NestedElements"


def test_composed_with_a_format_from_a_file(tmp_path: Path) -> None:
    load_file(saved(tmp_path, ACME))
    assert load_format("acme+hermes").reasoning is load_format("acme").reasoning
    assert load_format("qwen3+acme").tools is load_format("acme").tools


def test_a_format_without_reasoning_and_tools(tmp_path: Path) -> None:
    load_file(saved(tmp_path, {"name": "plain", "source": "made up"}))
    assert parse("text", "plain").content == "text"


def tools_with(**members: Any) -> dict[str, Any]:
    return {**ACME, "tools": {**ACME["tools"], **members}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "found no json"),
        ([], "found a list; allowed: a table with name"),
        ({"formats": []}, "allowed: formats, 1 to 64"),
        ({"formats": [ACME], "more": 1}, "allowed: formats, 1 to 64"),
        ({}, "name: found nothing; allowed: a string"),
        ({**ACME, "name": "a b"}, "name: found 'a b'"),
        ({**ACME, "name": "hermes"}, "the name is taken"),
        ({**ACME, "name": "qwen25"}, "the name is taken"),
        ({**ACME, "source": 3}, "acme: source: found a int"),
        ({**ACME, "colour": "red"}, "found key 'colour'; allowed: name, source"),
        ({**ACME, "turns": "x"}, "turns: found a str; allowed: a list"),
        ({**ACME, "turns": ["x"] * 65}, "found a list of 65; allowed: a list of at most 64"),
        ({**ACME, "turns": ["x" * 201]}, "turns[0]: found a string of 201 characters"),
        ({**ACME, "text_markers": "yes"}, "text_markers: found a str; allowed: true or false"),
        ({**ACME, "reasoning": {"starts": ["<a>"]}}, "reasoning.ends: found nothing"),
        ({**ACME, "reasoning": {"starts": [], "ends": []}}, "reasoning without an end marker never ends"),
        (tools_with(arguments={"syntax": "regex"}), "arguments.syntax: found 'regex'; allowed: json_object"),
        (tools_with(arguments="json"), "arguments.syntax: found a str"),
        (tools_with(arguments={"syntax": "json_object", "a": 1}), "found key 'a'; allowed: syntax"),
        (tools_with(ids="x"), "tools.ids: found 'x'; allowed: call or mistral or kimi"),
        (tools_with(empty=[["a"]]), "empty[0]: found 1 strings; allowed: an opener and its closer"),
        (tools_with(entries=[[]]), "entries[0]: found an empty pattern"),
        (tools_with(entries=[[3]]), "entries[0][0]: found item a int"),
        (tools_with(entries=[[{"item": "regex"}]]), "entries[0][0]: found item 'regex'; allowed: a string, or a table"),
        (tools_with(entries=[["x", {"item": "until", "stop": ">", "limit": 9999}]]), "limit: found 9999"),
        (tools_with(entries=[["x", {"item": "until", "stop": ">", "capture": "q"}]]), "capture: found 'q'"),
        (tools_with(entries=[["x", {"item": "until", "stop": ">", "forbidden": 1}]]), "forbidden: found a int"),
        (tools_with(entries=[[{"item": "blanks"}]]), "matches nothing at all"),
        (tools_with(entries=[{"pattern": ["x"]}]), "entries[0].arguments.syntax: found nothing"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, data: Any, words: str) -> None:
    path = saved(tmp_path, data)
    with pytest.raises(FormatDefinitionError) as caught:
        load_file(path)
    message = str(caught.value)
    assert words in message
    if "taken" not in words:
        assert message.startswith(str(path))
        assert "allowed: " in message or "format 'acme'" in message


def test_items_nest_only_so_deep(tmp_path: Path) -> None:
    items: list[Any] = ["x"]
    for _ in range(8):
        items = [{"item": "maybe", "items": items}]
    with pytest.raises(FormatDefinitionError, match="at most 6 levels"):
        load_file(saved(tmp_path, tools_with(entries=[["<", *items]])))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatDefinitionError, match=r"absent\.toml: found .*No such file"):
        load_file(tmp_path / "absent.toml")
    big = saved(tmp_path, " " * (1024 * 1024 + 1))
    with pytest.raises(FormatDefinitionError, match="at most 1048576"):
        load_file(big)
    (tmp_path / "latin.json").write_bytes(b"\xff")
    with pytest.raises(FormatDefinitionError, match="UTF-8"):
        load_file(tmp_path / "latin.json")


# --- entry points -------------------------------------------------------------------------------

BROUGHT = Format(name="brought", source="a test")
MISNAMED = Format(name="other", source="a test")
DESCRIBED = {"name": "described", "source": "a test"}


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    points = {
        name: EntryPoint(name, f"{here}:{value}", loading.GROUP)
        for name, value in {
            "brought": "BROUGHT",
            "described": "DESCRIBED",
            "misnamed": "MISNAMED",
            "absent": "ABSENT",
        }.items()
    }
    monkeypatch.setattr(loading, "_entry_points", lambda: points)


@pytest.mark.usefixtures("_installed")
def test_entry_points() -> None:
    assert load_format("brought") is BROUGHT
    assert load_format("described").source == "a test"
    assert load_format("brought+hermes").tools is load_format("hermes").tools
    assert load_entry_point("nobody") is None
    with pytest.raises(RequestError):
        load_format("nobody")
    with pytest.raises(FormatDefinitionError, match="found a format named 'other'"):
        load_format("misnamed")
    with pytest.raises(FormatDefinitionError, match=r"entry point 'absent' of tristream\.formats .* AttributeError"):
        load_format("absent")


def test_installed_entry_points_are_asked_for() -> None:
    assert loading._entry_points() == {}


# --- a checkpoint's response_template -----------------------------------------------------------

NAME_AND_CONTENT = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
OF_CONTENT = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}


def checkpoint(folder: Path, template: Any) -> Format | None:
    saved(folder, {"chat_template": "", "response_template": template}, "tokenizer_config.json")
    return load_checkpoint(folder)


def template(calls: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    fields = {"content": {"close": "<|im_end|>"}, **fields}
    return {
        "version": 1,
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": fields if calls is None else {**fields, "tool_calls": calls},
    }


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (
            {"open": "<c>", "close": "</c>", "content": "json", "repeats": True, "transform": OF_CONTENT},
            '<c>{"name": "f", "arguments": {"a": 1}}</c>\n<c>\n{"name": "f", "arguments": {"b": "x"}}\n</c>',
        ),
        (
            {"open": ["<c>", "<C>"], "close": "</c>", "content": "json", "transform_each": True, "transform": {}},
            '<C>[{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"b": "x"}}]</c>',
        ),
        (
            {"open": "[CALLS]", "content": "json"},
            '[CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"b": "x"}}]',
        ),
        (
            {"open_pattern": r"<c>(?P<name>\w+)\s*", "close": "</c>", "content": "json", "transform": NAME_AND_CONTENT},
            '<c>f {"a": 1}</c><c>f{"b": "x"}</c>',
        ),
        (
            {
                "open_pattern": r"<\|c>call:(?P<name>\w+)",
                "close": "<c|>",
                "content": "json",
                "content_args": {"unquoted_keys": True, "string_delims": [["~~", "~~"]]},
                "transform": NAME_AND_CONTENT,
            },
            "<|c>call:f{a:1}<c|><|c>call:f{b:~~x~~}<c|>",
        ),
        (
            {
                "open_pattern": r"<c>\s*<function=(?P<name>[^>]+)>",
                "close_pattern": r"</function>\s*</c>",
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<p=(?P<key>[^>]+)>\n?(?P<value>.*?)\n?</p>"},
                "transform": NAME_AND_CONTENT,
            },
            "<c>\n<function=f>\n<p=a>\n1\n</p>\n</function>\n</c><c><function=f><p=b>\nx\n</p></function></c>",
        ),
        (
            {
                "open_pattern": r"<c>(?P<name>\w+)",
                "close": "</c>",
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<k>(?P<key>.*?)</k>\s*<v>(?P<value>.*?)</v>"},
            },
            "<c>f<k>a</k> <v>1</v></c><c>f<k>b</k><v>x</v></c>",
        ),
        (
            {"open": "<c>", "close": "</c>", "content": "python-call-list", "transform": "{content}"},
            '<c>[f(a=1), f(b="x")]</c>',
        ),
        ({"open": "<c>", "content": "python-call-list"}, '<c>[f(a=1), f(b="x")]'),
    ],
)
def test_calls_of_a_checkpoint(tmp_path: Path, field: dict[str, Any], text: str) -> None:
    thinking = {"open": "<think>", "close": "</think>"}
    assert checkpoint(tmp_path, template(field, thinking=thinking)) is load_format("hf")
    message = parse(f"<think>x</think>Hi {text}<|im_end|>", "hf", TOOLS)
    assert (message.reasoning, message.content) == ("x", "Hi")
    assert calls(message) == [("f", {"a": 1}, "complete"), ("f", {"b": "x"}, "complete")]


def test_names_of_a_checkpoints_format(tmp_path: Path) -> None:
    """Other engines take `hf` or `response_template`, in both roles."""
    with pytest.raises(RequestError, match="was read from none"):
        load_format("hf")
    thinking = {"open": "<think>", "close": "</think>"}
    format = checkpoint(tmp_path, template({"open": "<c>", "close": "</c>", "content": "json"}, thinking=thinking))
    assert format is not None
    assert load_format("response_template") is load_format("hf") is format
    assert load_format("hf+response_template").tools is format.tools


def test_reasoning_of_a_checkpoint(tmp_path: Path) -> None:
    format = checkpoint(tmp_path, template(reasoning={"close_pattern": r"\s*</think>\s*"}))
    assert format is not None
    assert format.reasoning is not None
    assert format.reasoning.opens_by_default
    assert format.turns == ("<|im_start|>assistant\n",)
    assert parse("plan</think>Hi<|im_end|>", format).reasoning == "plan"


def test_checkpoints_without_a_template(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    saved(tmp_path, {"response_schema": {"type": "object"}}, "tokenizer_config.json")
    assert load_checkpoint(tmp_path) is None
    saved(tmp_path, "{", "tokenizer_config.json")
    with pytest.raises(FormatDefinitionError, match="found no JSON"):
        load_checkpoint(tmp_path)


TAGS = {"open_pattern": r"<c>(?P<name>\w+)", "close": "</c>", "content": "xml-inline"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "found a int; allowed: a table"),
        ({"fields": {}}, "fields: found nothing"),
        ({**template(), "version": 2}, "version: found 2; allowed: 1"),
        ({**template(), "more": 1}, "found key 'more'"),
        (template(citations={}), "fields.citations: found a field that"),
        (template(thinking={"open": "<t>"}), "thinking.close: found nothing"),
        (template(thinking={"open": "<t>", "close": "</t>", "content": "json"}), "thinking.content: found 'json'"),
        (template(thinking={"open_pattern": "<t>|<u>", "close": "x"}), "open_pattern: found '|<u>'"),
        (template(thinking={"open_pattern": r"<t>\s*<u>", "close": "x"}), "allowed: one literal"),
        (template(thinking={"open": 3, "close": "x"}), "thinking.open: found int"),
        (template(thinking={"open": [""], "close": "x"}), "thinking.open: found ''"),
        (template({"close": "x", "content": "json"}), "tool_calls.open: found nothing"),
        (template({"open": "x", "content": "kv-lines"}), "content: found 'kv-lines'"),
        (template({"open": "x", "content": "json", "content_args": 1}), "content_args: found int"),
        (template({"open_pattern": "(a+)+b", "content": "json"}), "open_pattern: found '(a+)+b'"),
        (template({"open_pattern": "a{9}", "content": "json"}), "open_pattern: found 'a{9}'"),
        (template({"open_pattern": "a" * 401, "content": "json"}), "1 to 400 characters"),
        (template({"open": "x", "content": "json", "transform": "{content.fn}"}), "transform: found {fn}"),
        (template({"open": "x", "close": "y", "content": "xml-inline"}), "tag_pattern: found None"),
        (template({**TAGS, "content_args": {"tag_pattern": "(?P<key>a)"}}), "tag_pattern: found a shape other"),
        (
            template({**TAGS, "content_args": {"tag_pattern": "<(?P<key>a)>(?P<value>[^x]*)y"}}),
            "allowed: (?P<value>.*?)",
        ),
        (
            template(
                {
                    **TAGS,
                    "open_pattern": "<c>",
                    "content_args": {"tag_pattern": "<(?P<key>a)>(?P<value>.*?)</>"},
                }
            ),
            "no group (?P<name>...)",
        ),
        (
            template(
                {
                    "open_pattern": "<c>(?P<name>a)",
                    "content": "json",
                    "content_args": {"string_delims": [["<", ">"]]},
                }
            ),
            "string_delims",
        ),
    ],
)
def test_what_no_format_can_say(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(FormatDefinitionError) as caught:
        checkpoint(tmp_path, data)
    assert words in str(caught.value)
    assert "tokenizer_config.json: response_template" in str(caught.value)
