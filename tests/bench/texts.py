"""The texts that `make bench` measures, and what each may cost (PERFORMANCE.md).

One row for each argument syntax, for each kind of text that costs more than prose, and for many
parameters and many calls.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from tristream.parsers import ChatOptions, ChatStream, Delta

DELTA_CHARS: Final = 4
SIZES: Final = (1_000, 16_000, 64_000)
"""Tokens of one measured text."""
PARAMETERS: Final = (100, 800)
CALLS: Final = (10, 320)

WORDS: Final = (
    "the quick brown fox jumps over a lazy dog while streams of tokens keep flowing,\nand nobody minds.".split(" ")
)
CODE: Final = (
    'if (a < b) { return "x<y"; }\n',
    "x = [1, 2, 3]\n",
    '<div class="a">text</div>\n',
    '    print(f"{x}")\n',
    "for (i = 0; i < n; i++) y[i] <<= 2;\n",
)
BODY: Final[dict[str, Any]] = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "write_file",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string"},
                        "content": {"type": "string"},
                        "data": {"type": "array"},
                        **{f"p{number}": {"type": "string"} for number in range(max(PARAMETERS))},
                    },
                },
            },
        }
    ]
}


def prose(tokens: int) -> str:
    """Words of English, about one per delta."""
    chance = random.Random(1)
    text = " ".join(chance.choice(WORDS) for _ in range(tokens * DELTA_CHARS // 4 + 8))
    return text[: tokens * DELTA_CHARS]


def code(tokens: int) -> str:
    """Lines of programs: quotes, brackets, and a `<` in most of them."""
    chance = random.Random(2)
    lines: list[str] = []
    size = 0
    while size < tokens * DELTA_CHARS:
        lines.append(chance.choice(CODE))
        size += len(lines[-1])
    return "".join(lines)[: tokens * DELTA_CHARS]


def as_json(text: Callable[[int], str]) -> Callable[[int], str]:
    """The same text as a JSON string has it, without its quotes."""

    def escaped(tokens: int) -> str:
        whole = json.dumps(text(tokens), ensure_ascii=False)[1:-1][: tokens * DELTA_CHARS]
        return whole.rstrip("\\")

    return escaped


def dense(tokens: int) -> str:
    """Numbers, words and nesting, without a string worth the name."""
    chance = random.Random(3)
    rows: list[Any] = [[chance.randrange(1000), chance.random(), {"a": [True, None]}] for _ in range(tokens // 8)]
    return json.dumps(rows)[: tokens * DELTA_CHARS]


def numbered(text: str) -> Callable[[int], str]:
    """The text so many times; `{}` in it is the number."""
    return lambda count: "".join(text.replace("{}", str(number)) for number in range(count))


@cache
def _options(members: str) -> ChatOptions:
    """Options of a request with the tools and these members: one for all streams, as a server's memory has it."""
    return ChatOptions.from_openai({**BODY, **json.loads(members)})


@dataclass(frozen=True, slots=True)
class Row:
    """One measured text.

    Args:
        what: in words.
        format: the format that reads it.
        before: output that leads up to it; not measured.
        text: the text itself, of so many tokens (or parameters, or calls).
        target: most µs per delta; None where PERFORMANCE.md names none.
        sizes: how many.
        prompt_tail: end of the prompt.
        added: the tokenizer's added tokens (id view); (): markers are found in the text.
        body: members of the request besides the tools.
    """

    what: str
    format: str
    before: str
    text: Callable[[int], str]
    target: float | None = None
    sizes: tuple[int, ...] = SIZES
    prompt_tail: str | None = None
    added: tuple[str, ...] = ()
    body: dict[str, Any] = field(default_factory=dict)

    def deltas(self, text: str) -> list[Delta]:
        """One token per four characters; each added token a Delta of its own."""
        deltas: list[Delta] = []
        parts = re.split(f"({'|'.join(map(re.escape, self.added))})", text) if self.added else [text]
        for index, part in enumerate(parts):
            if index % 2:
                deltas.append(Delta(part, (len(deltas),), special=True))
                continue
            for at in range(0, len(part), DELTA_CHARS):
                deltas.append(Delta(part[at : at + DELTA_CHARS], (len(deltas),)))
        return deltas

    def started(self) -> ChatStream:
        """A stream that has come to the measured text."""
        options = _options(json.dumps(self.body))
        stream = ChatStream(self.format, options, self.prompt_tail, added_spellings=self.added or None)
        for delta in self.deltas(self.before):
            stream.feed(delta)
        return stream


JSON_CALL: Final = '<tool_call>\n{"name": "write_file", "arguments": {'
TAGGED_CALL: Final = "<tool_call>\n<function=write_file>\n"
R1_CALL: Final = "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file\n```json\n{"
GLM_CALL: Final = "<tool_call>write_file\n"
DSML_CALLS: Final = "<｜DSML｜function_calls>\n"
DSML_CALL: Final = '<｜DSML｜invoke name="write_file">\n'
KIMI_CALLS: Final = "<|tool_calls_section_begin|>"
KIMI_CALL: Final = "<|tool_call_begin|>functions.write_file:{}<|tool_call_argument_begin|>"
M3: Final = "]<]minimax[>["
MARKS: Final = ("<think>", "</think>", "<tool_call>", "</tool_call>")
REQUIRED: Final = {"tool_choice": "required"}
NAMED: Final = {"tool_choice": {"type": "function", "function": {"name": "write_file"}}}

TEXTS: Final = (
    Row("content", "qwen3+hermes", "Hello there. ", prose, 0.5),
    Row("reasoning", "qwen3", "<think>Hello there. ", prose, 0.5),
    Row("content, ids", "qwen3+hermes", "Hello there. ", prose, 0.5, added=MARKS),
    Row("content, `<`-heavy", "qwen3", "Hello there. ", code),
    Row("JSON string argument", "hermes", JSON_CALL + '"content": "', as_json(prose), 0.5),
    Row("JSON string argument, ids", "hermes", JSON_CALL + '"content": "', as_json(prose), 0.5, added=MARKS),
    Row("JSON string argument, code", "hermes", JSON_CALL + '"content": "', as_json(code), 1.0),
    Row("dense JSON, checked", "hermes", JSON_CALL + '"data": ', dense, 1.2),
    Row("dense JSON, checked, ids", "hermes", JSON_CALL + '"data": ', dense, 1.2, added=MARKS),
    Row("tagged string argument", "qwen3", TAGGED_CALL + "<parameter=content>\nfoo bar ", prose, 0.8),
    Row("tagged string argument, `<`-heavy", "qwen3", TAGGED_CALL + "<parameter=content>\nfoo bar ", code, 1.5),
)


def json_string(what: str, format: str, before: str, **more: Any) -> Row:
    """A string in a JSON syntax."""
    return Row(f"JSON string, {what}", format, before + '"content": "', as_json(prose), 0.5, **more)


def tagged_string(what: str, format: str, before: str, **more: Any) -> Row:
    """A string between tags, or between other marks that are no quotes of JSON."""
    return Row(f"string, {what}", format, before, prose, 0.8, **more)


SYNTAXES: Final = (
    json_string("name in the header", "deepseek_r1", R1_CALL),
    json_string("list of calls", "granite", '<|tool_call|>[{"name": "write_file", "arguments": {'),
    json_string(
        "id first",
        "cohere_command3",
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "write_file", "parameters": {',
    ),
    json_string("keyed by name", "apertus", '<|tools_prefix|>[{"write_file": {'),
    json_string("Kimi's section", "kimi_k2", KIMI_CALLS + KIMI_CALL.replace("{}", "0") + "{"),
    json_string("Mistral", "mistral", "[TOOL_CALLS]write_file[ARGS]{"),
    json_string(
        "Harmony's message",
        "gpt_oss",
        "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>{",
        prompt_tail="<|start|>assistant",
    ),
    json_string(
        "typed block",
        "inkling",
        '<|message_model|><|content_invoke_tool_json|>{"name":"write_file","args":{',
        prompt_tail="<|message_model|>",
    ),
    json_string("forced, required", "qwen3", '[{"name": "write_file", "parameters": {', body=REQUIRED),
    json_string("forced, named", "qwen3", "{", body=NAMED),
    tagged_string("pairs of tags", "glm45", GLM_CALL + "<arg_key>content</arg_key>\n<arg_value>foo bar "),
    tagged_string(
        "DSML", "deepseek_v32", DSML_CALLS + DSML_CALL + '<｜DSML｜parameter name="content" string="true">foo bar '
    ),
    tagged_string(
        "invokes",
        "minimax_m2",
        '</think><minimax:tool_call>\n<invoke name="write_file">\n<parameter name="content">foo ',
    ),
    tagged_string(
        "Kimi K3's attributes",
        "kimi_k3",
        '<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool="write_file" index="1"<|sep|>'
        '<|open|>argument key="content" type="string"<|sep|>foo bar ',
    ),
    tagged_string(
        "Muse's message",
        "muse",
        ' to=write_file<|message|><atem:function_calls>\n<atem:invoke name="write_file">\n'
        '<atem:parameter name="content">foo bar ',
        prompt_tail="<|start|>assistant",
    ),
    tagged_string(
        "nested elements", "minimax_m3", f'{M3}<tool_call>{M3}<invoke name="write_file">{M3}<content>foo bar '
    ),
    Row("string, Python call", "pythonic", '[write_file(content="foo bar ', as_json(prose), 0.8),
    tagged_string("Gemma 4's quotes", "gemma4", '<|tool_call>call:write_file{content:<|"|>foo bar '),
    tagged_string("FunctionGemma", "functiongemma", "<start_function_call>call:write_file{content:<escape>foo bar "),
)
"""One for each argument syntax: a string of 64k tokens."""


def many(what: str, format: str, before: str, text: str, sizes: tuple[int, ...], **more: Any) -> Row:
    """Many parameters, or many calls."""
    return Row(what, format, before, numbered(text), 4.0, sizes, **more)


HERMES_CALL: Final = (
    '<tool_call>\n{"name": "write_file", "arguments": {"path": "a{}", "content": "x y z"}}\n</tool_call>\n'
)

MANY: Final = (
    many("parameters of one call", "qwen3", TAGGED_CALL, "<parameter=p{}>\nvalue {} here\n</parameter>\n", PARAMETERS),
    many(
        "parameters, pairs of tags",
        "glm45",
        GLM_CALL,
        "<arg_key>p{}</arg_key>\n<arg_value>value {} here</arg_value>\n",
        PARAMETERS,
    ),
    many("parallel calls, JSON", "hermes", "", HERMES_CALL, CALLS),
    many("parallel calls, JSON, ids", "hermes", "", HERMES_CALL, CALLS, added=MARKS),
    many(
        "parallel calls, tagged",
        "qwen3",
        "",
        TAGGED_CALL + "<parameter=path>\na{}\n</parameter>\n</function>\n</tool_call>\n",
        CALLS,
    ),
    many(
        "parallel calls, Kimi's section",
        "kimi_k2",
        KIMI_CALLS,
        KIMI_CALL + '{"path": "a{}", "content": "x y z"}<|tool_call_end|>',
        CALLS,
    ),
    many(
        "parallel calls, DSML",
        "deepseek_v32",
        DSML_CALLS,
        DSML_CALL + '<｜DSML｜parameter name="path" string="true">a{}</｜DSML｜parameter>\n</｜DSML｜invoke>\n',
        CALLS,
    ),
)

ROWS: Final = (*TEXTS, *SYNTAXES, *MANY)
