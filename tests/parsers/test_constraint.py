"""Every structural tag compiles, takes what a model should write, and refuses what it should not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xgrammar
from transformers import AutoTokenizer

from tristream.parsers import ChatOptions, FormatDefinitionError, RequestError, format_names, load_format, parse
from tristream.parsers.constraint import (
    CALL_SHAPES,
    FORCED_JSON,
    AutoChoice,
    CallShape,
    ReasoningShape,
    StrictLevel,
    build_constraint,
)

HERMES, XML, DEEPSEEK = CALL_SHAPES["hermes"], CALL_SHAPES["qwen_xml"], CALL_SHAPES["deepseek_v3"]

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer"},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TIME = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}


def tool(name: str, schema: Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    function = {"name": name, **more}
    if schema is not None:
        function["parameters"] = schema
    return {"type": "function", "function": function}


TOOLS = [tool("get_weather", WEATHER), tool("get_time", TIME)]
STRICT_TIME = [tool("get_weather", WEATHER), tool("get_time", TIME, strict=True)]

PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}\n</tool_call>'
KELVIN = PARIS.replace("celsius", "kelvin")
UTC = '<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC"}}\n</tool_call>'
WRONG_TIME = UTC.replace("zone", "zonk")
XML_PARIS = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=unit>\ncelsius\n</parameter>\n</function>\n</tool_call>"
)
XML_KELVIN = XML_PARIS.replace("celsius", "kelvin")
FENCE = "```"
DS_CALL = (
    f'<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n{FENCE}json\n{{"zone": "UTC"}}\n{FENCE}<｜tool▁call▁end｜>'
)
DS_UTC = f"<｜tool▁calls▁begin｜>{DS_CALL}<｜tool▁calls▁end｜>"

OPEN = ReasoningShape("<think>", "</think>", "open")
BOUNDED = ReasoningShape("<think>", "</think>", "open", (20, 160))
CLOSED = ReasoningShape("<think>", "</think>", "closed", (20, 160))
UNKNOWN = ReasoningShape("<think>", "</think>", "unknown")

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}

SENTENCE = "The user wants to know the weather."


def options(**body: Any) -> ChatOptions:
    return ChatOptions.from_openai(body)


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


REQUIRED = options(tools=TOOLS, tool_choice="required")
NAMED = options(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_time"}})
AUTO = options(tools=TOOLS)

CASES: dict[str, tuple[dict[str, Any] | None, list[str], list[str]]] = {
    "required": (
        build_constraint(REQUIRED, calls=HERMES),
        [PARIS, UTC, f"{PARIS}\n{UTC}"],
        ["", "hello", KELVIN, f"hello {PARIS}", PARIS.replace("get_weather", "get_whatever"), f"{PARIS} bye"],
    ),
    "required, one": (
        build_constraint(options(tools=TOOLS, tool_choice="required", parallel_tool_calls=False), calls=HERMES),
        [PARIS],
        [f"{PARIS}\n{UTC}"],
    ),
    "required, prompt opened the reasoning": (
        build_constraint(REQUIRED, calls=HERMES, reasoning=OPEN),
        [f"plan</think>\n\n{PARIS}", f"</think>{PARIS}", f"a <b> c</think>\n{PARIS}"],
        [PARIS, f"plan {PARIS}", f"p <tool_call></think>{PARIS}", "plan</think>hello"],
    ),
    "required, reasoning bounded": (
        build_constraint(REQUIRED, calls=HERMES, reasoning=BOUNDED),
        [f"{SENTENCE}</think>\n\n{PARIS}"],
        [f"short.</think>\n\n{PARIS}", f"{'long ' * 40}.</think>\n\n{PARIS}", f"{SENTENCE}\n</think>{PARIS}"],
    ),
    "required, prompt closed the reasoning": (
        build_constraint(REQUIRED, calls=HERMES, reasoning=CLOSED),
        [PARIS],
        [f"plan</think>{PARIS}"],
    ),
    "required, no marker in the prompt": (
        build_constraint(REQUIRED, calls=HERMES, reasoning=UNKNOWN),
        [PARIS, f"<think>plan</think>\n\n{PARIS}"],
        [f"plan</think>{PARIS}", f"<think>plan {PARIS}"],
    ),
    "named": (build_constraint(NAMED, calls=HERMES), [UTC], [PARIS, f"{UTC}\n{UTC}", WRONG_TIME]),
    "required, XML": (
        build_constraint(REQUIRED, calls=XML),
        [XML_PARIS, f"{XML_PARIS}\n{XML_PARIS}"],
        [XML_KELVIN, PARIS, "hello"],
    ),
    "required, DeepSeek": (
        build_constraint(REQUIRED, calls=DEEPSEEK, reasoning=OPEN),
        [f"plan</think>\n\n{DS_UTC}", f"</think>{DS_UTC.replace(DS_CALL, DS_CALL + chr(10) + DS_CALL)}"],
        [DS_UTC, f"</think>{DS_UTC.replace('zone', 'zonk')}", f"</think>{DS_CALL}"],
    ),
    "required, a format without calls": (
        build_constraint(REQUIRED),
        [
            '[{"name": "get_time", "parameters": {"zone": "UTC"}}]',
            '[{"name": "get_time", "parameters": {"zone": "A"}}, {"name": "get_time", "parameters": {"zone": "B"}}]',
        ],
        ["[]", "{}", '[{"name": "get_time", "parameters": {}}]', "hello"],
    ),
    "required among the allowed": (
        build_constraint(options(tools=TOOLS, tool_choice=allowed("required", "get_time")), calls=HERMES),
        [UTC],
        [PARIS],
    ),
    "auto, one tool strict": (
        build_constraint(options(tools=STRICT_TIME), calls=HERMES),
        ["prose", UTC, KELVIN, f"a {UTC} b {PARIS} c", "<tool_call>{'any': thing}</tool_call>"],
        [WRONG_TIME, '<tool_call>{"name":"get_time","arguments":{"zonk":1}}</tool_call>', f"a {WRONG_TIME}"],
    ),
    "auto, function level": (
        build_constraint(AUTO, calls=HERMES, level="function"),
        ["prose", KELVIN, WRONG_TIME],
        [UTC.replace("get_time", "get_other"), UTC.replace("\n", "")],
    ),
    "auto, parameter level": (
        build_constraint(AUTO, calls=HERMES, level="parameter", reasoning=OPEN),
        ["plan</think>\n\nprose", f"plan</think>hello {PARIS}"],
        [f"plan</think>{KELVIN}"],
    ),
    "auto, XML, one tool strict": (
        build_constraint(options(tools=STRICT_TIME), calls=XML),
        ["prose", XML_PARIS, XML_KELVIN],
        ["<tool_call>\n<function=get_time>\n<parameter=zonk>\nx\n</parameter>\n</function>\n</tool_call>"],
    ),
    "auto, DeepSeek, one tool strict": (
        build_constraint(options(tools=STRICT_TIME), calls=DEEPSEEK),
        ["prose", DS_UTC, f"prose {DS_UTC.replace('get_time', 'get_weather').replace('zone', 'zonk')}"],
        [DS_UTC.replace("zone", "zonk")],
    ),
    "auto, no second call": (
        build_constraint(options(tools=TOOLS, parallel_tool_calls=False), calls=HERMES),
        ["prose", PARIS, KELVIN, f"prose {UTC}"],
        [f"{PARIS}\n{UTC}"],
    ),
    "auto, DeepSeek, no second call": (
        build_constraint(options(tools=TOOLS, parallel_tool_calls=False), calls=DEEPSEEK),
        ["prose", DS_UTC],
        [f"{DS_UTC}{DS_UTC}"],
    ),
    "auto among the allowed": (
        build_constraint(options(tools=TOOLS, tool_choice=allowed("auto", "get_time")), calls=HERMES),
        ["prose <b>", UTC, WRONG_TIME],
        [PARIS],
    ),
    "auto, nothing allowed": (
        build_constraint(options(tools=TOOLS, tool_choice=allowed("auto")), calls=HERMES),
        ["prose <b>"],
        [PARIS],
    ),
    "auto or a JSON answer": (
        build_constraint(AUTO, calls=HERMES, response_schema=SCHEMA),
        ['{"a": 1}', PARIS, f"{PARIS}\n{UTC}", KELVIN],
        ["prose", '{"b": 1}', f"prose {PARIS}"],
    ),
    "auto or a JSON answer, parameter level": (
        build_constraint(AUTO, calls=HERMES, response_schema=SCHEMA, level="parameter"),
        ['{"a": 1}', PARIS],
        [KELVIN],
    ),
    "auto that means a call": (
        build_constraint(AUTO, calls=HERMES, reasoning=BOUNDED, auto="call"),
        [f"{SENTENCE}</think>\n\n{PARIS}"],
        [f"{SENTENCE}</think>\n\nprose", f"{SENTENCE}</think>\n\n{PARIS}\n{UTC}"],
    ),
    "required of a model that cannot choose": (
        build_constraint(REQUIRED, calls=HERMES, auto="text"),
        [PARIS],
        ["prose", f"{PARIS}\n{UTC}"],
    ),
    "auto that means text": (build_constraint(AUTO, calls=HERMES, auto="text"), ["prose <b>"], [PARIS]),
    "a JSON answer after reasoning": (
        build_constraint(options(), calls=HERMES, response_schema=SCHEMA, reasoning=OPEN),
        ['plan</think>\n{"a": 1}'],
        ["plan</think>prose", '{"a": 1}'],
    ),
    "a JSON answer, tools forbidden": (
        build_constraint(options(tools=TOOLS, tool_choice="none"), calls=HERMES, response_schema=SCHEMA),
        ['{"a": 1}'],
        [PARIS],
    ),
    "a JSON answer, any JSON": (build_constraint(options(), response_schema=True), ['{"a": [1]}', "3"], ["prose"]),
    "nothing but bounded reasoning": (
        build_constraint(options(), reasoning=BOUNDED),
        [f"{SENTENCE}</think>\n\nanything <b>\n{PARIS}"],
        [f"{SENTENCE}</think>", f"{SENTENCE}</think>\n\n", "short.</think>\n\nanything"],
    ),
    "fewest bound": (
        build_constraint(options(), reasoning=ReasoningShape("<think>", "</think>", "open", (0, 10))),
        ["plan.</think>\n\nanything", "p.</think>\n\nanything", "a < b.</think>\n\nanything"],
        ["long long plan.</think>\n\nanything"],
    ),
    "a tool without parameters": (
        build_constraint(options(tools=[tool("ping", None)], tool_choice="required"), calls=HERMES),
        ['<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'],
        ['<tool_call>\n{"name": "ping", "arguments": []}\n</tool_call>'],
    ),
}

Accepts = Callable[[Mapping[str, Any] | None, str], bool]


@pytest.fixture(scope="module")
def compiler(demo_model: Path) -> xgrammar.GrammarCompiler:
    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    return xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer))


@pytest.fixture(scope="module")
def accepts(compiler: xgrammar.GrammarCompiler) -> Accepts:
    def whole(tag: Mapping[str, Any] | None, text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiler.compile_structural_tag(json.dumps(tag)))
        return bool(matcher.accept_string(text) and matcher.is_completed())

    return whole


@pytest.mark.parametrize("name", CASES)
def test_tags_take_the_good_and_refuse_the_bad(name: str, accepts: Accepts) -> None:
    tag, good, bad = CASES[name]
    assert [text for text in good if not accepts(tag, text)] == []
    assert [text for text in bad if accepts(tag, text)] == []


@pytest.mark.parametrize(
    "held",
    [
        build_constraint(AUTO, calls=HERMES),
        build_constraint(AUTO, level="parameter"),
        build_constraint(AUTO, auto="call"),
        build_constraint(AUTO, calls=FORCED_JSON, level="parameter"),
        build_constraint(options(), calls=HERMES, reasoning=OPEN),
        build_constraint(options(), reasoning=CLOSED),
        build_constraint(options(tools=TOOLS, tool_choice="none"), calls=HERMES),
        build_constraint(options(tools=TOOLS, tool_choice="none"), calls=HERMES, auto="call"),
    ],
)
def test_nothing_is_held_where_nothing_was_asked(held: object) -> None:
    assert held is None


def test_required_with_no_tool_allowed_is_refused() -> None:
    with pytest.raises(RequestError, match=r"allowed_tools\.tools: found \[\]"):
        build_constraint(options(tools=TOOLS, tool_choice=allowed("required")), calls=HERMES)


def test_shapes_that_cannot_be_are_refused() -> None:
    with pytest.raises(FormatDefinitionError, match="begin"):
        CallShape(opener="<call>", begin="{name}", end="")
    with pytest.raises(FormatDefinitionError, match="name"):
        CallShape(opener="", begin="x", end="")
    with pytest.raises(FormatDefinitionError, match="markers"):
        ReasoningShape("", "</think>", "open")
    with pytest.raises(FormatDefinitionError, match="bounds"):
        ReasoningShape("<think>", "</think>", "open", (3, 2))


def test_every_shape_belongs_to_a_format() -> None:
    assert set(CALL_SHAPES) <= {load_format(name).constraint for name in format_names()}


@pytest.mark.parametrize(
    ("name", "level"),
    [("qwen3+hermes", "parameter"), ("hermes", "function"), ("qwen3_coder", "parameter"), ("deepseek_r1", "parameter")],
)
@pytest.mark.parametrize("choice", ["required", "auto"])
def test_what_the_grammar_admits_the_parser_reads(
    name: str, level: StrictLevel, choice: str, compiler: xgrammar.GrammarCompiler
) -> None:
    """Random walks through the grammar: whatever comes out is calls to declared tools with valid arguments."""
    spec = load_format(name)
    asked = options(tools=TOOLS, tool_choice=choice)
    auto: AutoChoice = "call" if choice == "auto" else "model"
    tag = build_constraint(asked, calls=CALL_SHAPES[spec.constraint], level=level, auto=auto)
    grammar = compiler.compile_structural_tag(json.dumps(tag))
    for seed in range(40):
        text = walk(xgrammar.GrammarMatcher(grammar), random.Random(seed))
        message = parse(text, spec, asked, prompt_tail="<think>\n\n</think>\n\n")
        assert message.content is None, text
        assert message.notices == [], text
        assert message.tool_calls, text
        for call in message.tool_calls:
            assert call.status == "complete", text
            schema: dict[str, Any] = WEATHER if call.name == "get_weather" else TIME
            jsonschema.validate(json.loads(call.arguments), schema)


def walk(matcher: xgrammar.GrammarMatcher, chance: random.Random) -> str:
    """A random text that the grammar admits; closing characters come often, so that it ends."""
    text = ""
    while len(text) < 4000:
        if matcher.is_completed() and chance.random() < 0.7:
            return text
        forced = matcher.find_jump_forward_string()
        if forced:
            assert matcher.accept_string(forced)
            text += forced
            continue
        closing = ["\n</parameter>\n", '"', "}", "]", "\n", ","]
        other = list('aé1 -.e{[:\\"n😀<tool_call></parameter>truefalsnlcd')
        for group in (closing, other) if chance.random() < 0.4 else (other, closing):
            chance.shuffle(group)
            step = next((character for character in group if matcher.accept_string(character)), None)
            if step is not None:
                text += step
                break
        else:
            assert matcher.is_completed(), f"no way on after {text!r}"
            return text
    raise AssertionError(f"no end after {text[-200:]!r}")


def test_a_budget_of_reasoning_leaves_nothing_but_its_end(compiler: xgrammar.GrammarCompiler, demo_model: Path) -> None:
    """Tokens are counted where logits are masked, so this is asked of the mask."""
    tag = build_constraint(options(), reasoning=ReasoningShape("<think>", "</think>", "open", budget=3))
    matcher = xgrammar.GrammarMatcher(compiler.compile_structural_tag(json.dumps(tag)))
    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    mask = xgrammar.allocate_token_bitmask(1, len(tokenizer))
    (word,) = tokenizer.encode(" the")
    for _ in range(3):
        assert matcher.accept_token(word)
    matcher.fill_next_token_bitmask(mask)
    allowed = [token for token in range(len(tokenizer)) if mask[0][token // 32].item() >> (token % 32) & 1]
    assert allowed
    assert all("</think>".startswith(tokenizer.decode([token])) for token in allowed)


def test_under_a_budget_free_text_begins_no_reasoning(accepts: Accepts) -> None:
    shape = ReasoningShape("<think>", "</think>", "unknown", budget=3)
    for tag in (
        build_constraint(options(), reasoning=shape),
        build_constraint(options(tools=TOOLS), calls=HERMES, reasoning=shape, level="parameter"),
    ):
        assert accepts(tag, "<think>a</think>Hello")
        assert accepts(tag, "Hello")
        assert not accepts(tag, "Hello <think>a")
