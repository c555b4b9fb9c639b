"""OpenAI bodies in, prompts out: what is refused, and in which words; what is rendered."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tristream.backend.errors import SettingsError
from tristream.backend.json_text import parse_json
from tristream.backend.prompt import PromptBuilder, PromptSettings
from tristream.backend.rendering import ChatTemplate
from tristream.backend.request_body import ChatMessage
from tristream.parsers import RequestError

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"$ref": "#/$defs/unit"}},
    "required": ["city"],
    "$defs": {"unit": {"enum": ["celsius", "fahrenheit"]}},
}


def tool(parameters: Any = WEATHER, name: str = "get_weather") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def body(**members: Any) -> str:
    return json.dumps({"messages": HELLO, **members})


def schema(value: Any) -> str:
    return body(tools=[tool(value)])


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"properties": {"a": value}}
    return value


@pytest.fixture(scope="session")
def template_file(project: Path) -> Path:
    return project / "model_repository" / "preprocess" / "chat_template.jinja"


@pytest.fixture(scope="session")
def builder(demo_model: Path, template_file: Path) -> PromptBuilder:
    return PromptBuilder(
        PromptSettings(tokenizer=demo_model, chat_template=template_file, max_request_bytes=200_000, max_messages=100)
    )


REFUSED: dict[str, tuple[str, str, str, str]] = {
    # what is wrong -> the request; the field, part of what was found, part of what is allowed
    "empty": ("", "request", "nothing", "a JSON object"),
    "blank": (" \n", "request", "nothing", "a JSON object"),
    "no JSON": ("{'messages': 1}", "request", "no JSON", "a JSON object"),
    "cut short": ('{"messages": [', "request", "no JSON", "a JSON object"),
    "a list": ("[1]", "request", "array", "a JSON object"),
    "null": ("null", "request", "null", "a JSON object"),
    "NaN": ('{"messages": NaN}', "request", "NaN", "JSON numbers"),
    "a member twice": ('{"messages": [], "messages": []}', "request", '"messages" twice', "each member once"),
    "too deep for the parser": ("[" * 100_000, "request", "nesting", "160 levels"),
    "too deep": (body(x=0).replace("0", "[" * 170 + "]" * 170), "request", "161 levels", "at most 160"),
    "a huge number": (body(x=0).replace(" 0", " " + "9" * 5000), "request", "cannot be read", "ordinary JSON"),
    "too large": (body(x="y" * 200_000), "request", "bytes", "200000 (max_request_bytes)"),
    "no messages": ("{}", "messages", "nothing", "at least one message"),
    "messages null": (body(messages=None), "messages", "null", "a list"),
    "messages empty": (body(messages=[]), "messages", "an empty list", "at least one"),
    "messages text": (body(messages="Hello"), "messages", '"Hello"', "a list"),
    "too many messages": (body(messages=HELLO * 101), "messages", "101 messages", "at most 100 (max_messages)"),
    "a message is a number": (body(messages=[1]), "messages[0]", "1", "an object"),
    "no role": (body(messages=[{"content": "x"}]), "messages[0].role", "nothing", "required"),
    "unknown role": (body(messages=[{"role": "bot", "content": "x"}]), "messages[0].role", '"bot"', "'assistant'"),
    "no content": (body(messages=[{"role": "user"}]), "messages[0].content", "nothing", "a string"),
    "content a number": (body(messages=[{"role": "user", "content": 5}]), "messages[0].content", "5", "a string"),
    "a part a number": (body(messages=[{"role": "user", "content": [5]}]), "messages[0].content[0]", "5", "an object"),
    "an image": (
        body(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]),
        "messages[0].content[1].type",
        '"image_url"',
        "'text'",
    ),
    "a text part without text": (
        body(messages=[{"role": "user", "content": [{"type": "text", "text": None}]}]),
        "messages[0].content[0].text",
        "null",
        "a string",
    ),
    "calls of a user": (
        body(messages=[{"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}]),
        "messages[0].tool_calls",
        "user",
        "an assistant message",
    ),
    "arguments a number": (
        body(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 7}}]}]),
        "messages[0].tool_calls[0].function.arguments",
        "7",
        "a string with JSON",
    ),
    "a call without a name": (
        body(messages=[{"role": "assistant", "tool_calls": [{"function": {}}]}]),
        "messages[0].tool_calls[0].function.name",
        "nothing",
        "required",
    ),
    "temperature text": (body(temperature="1"), "temperature", '"1"', "a number"),
    "temperature a flag": (body(temperature=True), "temperature", "true", "a number"),
    "temperature low": (body(temperature=-0.1), "temperature", "-0.1", "greater than or equal to 0"),
    "temperature high": (body(temperature=2.1), "temperature", "2.1", "less than or equal to 2"),
    "top_p": (body(top_p=0), "top_p", "0", "greater than 0"),
    "top_k": (body(top_k=-2), "top_k", "-2", "greater than or equal to -1"),
    "min_p": (body(min_p=1.5), "min_p", "1.5", "less than or equal to 1"),
    "seed": (body(seed=2**63), "seed", str(2**63), "less than or equal to"),
    "penalty": (body(presence_penalty=3), "presence_penalty", "3", "less than or equal to 2"),
    "max_tokens none": (body(max_tokens=0), "max_tokens", "0", "greater than or equal to 1"),
    "max_tokens a fraction": (body(max_tokens=1.5), "max_tokens", "1.5", "a whole number"),
    "max_tokens over the context": (body(max_tokens=8192), "max_tokens", "8192", "the model's context is 8192"),
    "max_completion_tokens over it": (body(max_completion_tokens=9999), "max_completion_tokens", "9999", "8192"),
    "n none": (body(n=0), "n", "0", "greater than or equal to 1"),
    "n high": (body(n=17), "n", "17", "1 to 16 (max_choices)"),
    "stop a number": (body(stop=5), "stop", "5", "a list"),
    "stop empty": (body(stop=[""]), "stop[0]", '""', "not empty"),
    "stop long": (body(stop=["x" * 1025]), "stop[0]", "xxx", "at most 1024"),
    "many stops": (body(stop=["a"] * 65), "stop", "65 items", "at most 64"),
    "top_logprobs alone": (body(top_logprobs=3), "top_logprobs", "3", "`logprobs` true"),
    "top_logprobs high": (body(logprobs=True, top_logprobs=21), "top_logprobs", "21", "less than or equal to 20"),
    "logit_bias": (body(logit_bias={"5": 1}), "logit_bias", '{"5": 1}', "not support"),
    "functions": (body(functions=[{"name": "f"}]), "functions", "name", "not support"),
    "audio": (body(modalities=["text", "audio"]), "modalities", "audio", "not support"),
    "unknown format": (body(format="nope"), "format", "'nope'", "hermes"),
    "format a number": (body(format=3), "format", "3", "a string"),
    "stream": (body(stream="yes"), "stream", '"yes"', "true or false"),
    "include_reasoning": (body(include_reasoning="no"), "include_reasoning", '"no"', "true or false"),
    "unknown_tool": (body(unknown_tool="explode"), "unknown_tool", "'explode'", "'drop'"),
    "held": (body(max_held_chars=2**30), "max_held_chars", str(2**30), "less than or equal to"),
    "tools an object": (body(tools={}), "tools", "{}", "a list"),
    "too many tools": (body(tools=[{}] * 1025), "tools", "1025 tools", "at most 1024 (max_tools)"),
    "a tool without a function": (body(tools=[{"type": "function"}]), "tools[0].function", "null", "an object"),
    "two of a name": (body(tools=[tool(), tool()]), "tools", "two functions named 'get_weather'", "once"),
    "a name with blanks": (body(tools=[tool(name="a b")]), "tools[0].function.name", '"a b"', "A-Z"),
    "required without tools": (
        body(tool_choice="required"),
        "tool_choice",
        "'required' without tools",
        "declare tools",
    ),
    "named without tools": (body(tool_choice=named("f")), "tool_choice", "'f' without tools", "declare tools"),
    "undeclared": (body(tools=[tool()], tool_choice=named("f")), "tool_choice.function.name", "'f'", "get_weather"),
    "no tool_choice": (body(tools=[tool()], tool_choice="maybe"), "tool_choice", '"maybe"', "'required'"),
    "schema text": (schema("x"), "tools[0].function.parameters", '"x"', "a JSON schema object"),
    "schema of a string": (schema({"type": "string"}), "tools[0].function.parameters.type", '"string"', "'object'"),
    "schema of no type": (
        schema({"properties": {"a": {"type": "objekt"}}}),
        "tools[0].function.parameters.properties.a.type",
        '"objekt"',
        "string, number",
    ),
    "schema type a number": (
        schema({"properties": {"a": {"type": 5}}}),
        "tools[0].function.parameters.properties.a.type",
        "5",
        "string, number",
    ),
    "properties a list": (
        schema({"properties": ["a"]}),
        "tools[0].function.parameters.properties",
        '["a"]',
        "an object of schemas",
    ),
    "a property a number": (
        schema({"properties": {"a": 5}}),
        "tools[0].function.parameters.properties.a",
        "5",
        "an object, true or false",
    ),
    "required text": (schema({"required": "a"}), "tools[0].function.parameters.required", '"a"', "property names"),
    "enum text": (
        schema({"properties": {"a": {"enum": "x"}}}),
        "tools[0].function.parameters.properties.a.enum",
        '"x"',
        "a list",
    ),
    "enum long": (
        schema({"properties": {"a": {"enum": list(range(4000))}, "b": {"enum": list(range(97))}}}),
        ".enum",
        "over 4096 values",
        "at most 4096",
    ),
    "minLength": (
        schema({"properties": {"a": {"minLength": -1}}}),
        "tools[0].function.parameters.properties.a.minLength",
        "-1",
        "whole number",
    ),
    "maximum": (
        schema({"properties": {"a": {"maximum": "x"}}}),
        "tools[0].function.parameters.properties.a.maximum",
        '"x"',
        "a number",
    ),
    "pattern": (
        schema({"properties": {"a": {"pattern": 5}}}),
        "tools[0].function.parameters.properties.a.pattern",
        "5",
        "a string",
    ),
    "anyOf empty": (schema({"anyOf": []}), "tools[0].function.parameters.anyOf", "[]", "at least one schema"),
    "items": (
        schema({"properties": {"a": {"items": [5]}}}),
        "tools[0].function.parameters.properties.a.items[0]",
        "5",
        "an object",
    ),
    "ref to nothing": (schema({"$ref": "#/$defs/x"}), "tools[0].function.parameters.$ref", "leads nowhere", "#/$defs"),
    "ref elsewhere": (
        schema({"$ref": "https://example.com/x"}),
        "tools[0].function.parameters.$ref",
        "https",
        "within the schema",
    ),
    "ref to itself": (schema({"$ref": "#"}), "tools[0].function.parameters.$ref", "leads back", "a reference"),
    "ref to text": (
        schema({"title": "t", "$ref": "#/title"}),
        "tools[0].function.parameters.$ref",
        "no schema",
        "a reference",
    ),
    "schema deep": (schema(nested(65)), "tools[0].function.parameters", "over 64 deep", "at most 64"),
    "schemas large": (
        body(tools=[tool({"description": "x" * 60_000}, name=f"f{i}") for i in range(3)]),
        "tools",
        "bytes of JSON schemas",
        "at most 100000 (max_schema_bytes)",
    ),
    "response_format": (body(response_format={"type": "xml"}), "response_format.type", '"xml"', "'json_schema'"),
    "no json_schema": (
        body(response_format={"type": "json_schema"}),
        "response_format.json_schema",
        "nothing",
        "a JSON schema",
    ),
    "no schema in it": (
        body(response_format={"type": "json_schema", "json_schema": {"name": "x"}}),
        "response_format.json_schema.schema",
        "nothing",
        "a JSON schema",
    ),
    "its schema is none": (
        body(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}),
        "response_format.json_schema.schema.type",
        '"x"',
        "string",
    ),
    "chat_template": (
        body(chat_template_kwargs={"chat_template": "{{ 7 * 7 }}"}),
        "chat_template_kwargs.chat_template",
        "7 * 7",
        "enable_thinking",
    ),
    "renderer's own": (body(chat_template_kwargs={"tokenize": 1}), "chat_template_kwargs.tokenize", "1", "enable"),
    "messages by the back door": (
        body(chat_template_kwargs={"messages": []}),
        "chat_template_kwargs.messages",
        "[]",
        "enable_thinking",
    ),
    "a global of jinja": (
        body(chat_template_kwargs={"range": 1}),
        "chat_template_kwargs.range",
        "1",
        "enable_thinking",
    ),
    "not read": (body(chat_template_kwargs={"foo": 1}), "chat_template_kwargs.foo", "1", "the names enable_thinking"),
    "kwargs a list": (body(chat_template_kwargs=[]), "chat_template_kwargs", "[]", "an object"),
    "long": (body(messages=[{"role": "user", "content": "hi " * 9000}]), "messages", "9035 tokens", "at most 8191"),
    "nothing to continue": (body(continue_final_message=True), "continue_final_message", "no last assistant", "one"),
    "both ends": (
        body(
            messages=[*HELLO, {"role": "assistant", "content": "I"}],
            continue_final_message=True,
            add_generation_prompt=True,
        ),
        "continue_final_message",
        "add_generation_prompt",
        "one of the two",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_are_refused_by_name(
    name: str, demo_model: Path, template_file: Path, builder: PromptBuilder
) -> None:
    request, field, found, allowed = REFUSED[name]
    if name == "schemas large":
        builder = PromptBuilder(
            PromptSettings(tokenizer=demo_model, chat_template=template_file, max_schema_bytes=100_000)
        )
    with pytest.raises(RequestError) as caught:
        builder.build(request)
    error = caught.value
    assert error.field.endswith(field) if field.startswith(".") else error.field == field
    assert found in error.found
    assert allowed in error.allowed
    assert len(str(error)) < 2000


ACCEPTED: dict[str, str] = {
    "OpenAI's nulls": body(
        **dict.fromkeys(("tools", "tool_choice", "stop", "seed", "response_format", "logit_bias", "n", "max_tokens"))
    ),
    "unknown members": body(store=True, metadata={"a": 1}, service_tier="auto"),
    "whole numbers where fractions may be": body(temperature=1, top_p=1),
    "one stop text": body(stop="END"),
    "parts": body(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}]),
    "half a character": '{"messages": [{"role": "user", "content": "\\ud83d and \\ud83d\\ude00"}]}',
    "a 64 levels deep schema": schema(nested(64)),
    "a schema that contains itself": schema({"properties": {"child": {"$ref": "#"}}}),
    "draft 7": schema({"properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": {"x": {"type": "string"}}}),
    "a reference with escapes": schema(
        {"properties": {"a": {"$ref": "#/$defs/x~1y%20z"}}, "$defs": {"x/y z": {"anyOf": [True, {"items": [{}]}]}}}
    ),
    "no parameters": body(tools=[{"type": "function", "function": {"name": "ping"}}]),
    "an empty answer in the history": body(messages=[*HELLO, {"role": "assistant"}, *HELLO]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_good_requests_are_taken(name: str, builder: PromptBuilder) -> None:
    prompt = builder.build(ACCEPTED[name])
    assert prompt.input_ids
    assert prompt.sampling["n"] == 1


def test_what_the_llm_and_the_parser_are_told(builder: PromptBuilder) -> None:
    history = [*HELLO, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}] * 2}]
    prompt = builder.build(
        body(
            messages=[*history, *[{"role": "tool", "content": "1", "tool_call_id": "x"}] * 2],
            tools=[tool()],
            temperature=0.5,
            top_k=-1,
            stop="END",
            seed=7,
            max_completion_tokens=9,
            max_tokens=100,
            include_reasoning=False,
            user="someone",
        )
    )
    sampling = prompt.sampling
    assert sampling == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": 7,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": False,
        "stop": ["END"],
        "n": 1,
        "logprobs": False,
        "top_logprobs": 0,
    }
    assert prompt.constraint is None
    assert prompt.opening["format"] == "qwen3+hermes"
    assert prompt.opening["prompt_tokens"] == len(prompt.input_ids)
    assert prompt.opening["prompt_tail"].endswith("<|im_start|>assistant\n<think>\n")
    assert prompt.opening["request"] == {
        "tools": [tool()],
        "include_reasoning": False,
        "messages": [{"tool_calls": [{}, {}]}],
    }


def test_constraints_follow_request_prompt_and_settings(demo_model: Path, template_file: Path) -> None:
    settings = PromptSettings(
        tokenizer=demo_model,
        chat_template=template_file,
        auto_tools="call",
        reasoning_chars="20-160",
        sampling_defaults='{"temperature": 0, "max_tokens": 100000}',
        chat_template_kwargs='{"enable_thinking": false}',
    )
    builder = PromptBuilder(settings)
    thinking = {"enable_thinking": True}
    held = json.dumps(builder.build(body(tools=[tool()], chat_template_kwargs=thinking)).constraint)
    assert "max_chars" in held
    assert "tags_with_separator" in held
    result = [
        *HELLO,
        {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": "1"},
    ]
    answer = json.dumps(builder.build(body(messages=result, tools=[tool()], chat_template_kwargs=thinking)).constraint)
    assert "tags_with_separator" not in answer
    assert "max_chars" in answer
    plain = builder.build(body())
    assert plain.constraint is None
    sampling = plain.sampling
    assert sampling["temperature"] == 0
    assert sampling["max_tokens"] == 8192 - len(plain.input_ids)
    free = PromptBuilder(PromptSettings(tokenizer=demo_model, chat_template=template_file, constraints=False))
    assert free.build(body(tools=[tool()], tool_choice="required")).constraint is None


def test_tools_are_left_out_of_the_prompt_where_none_may_be_called(builder: PromptBuilder) -> None:
    without = builder.build(body())
    forbidden = builder.build(body(tools=[tool()], tool_choice="none"))
    assert forbidden.input_ids == without.input_ids
    assert forbidden.opening["request"]["tool_choice"] == "none"


def test_the_final_message_can_be_continued(builder: PromptBuilder) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "The answer"}]
    prompt = builder.build(body(messages=messages, continue_final_message=True))
    assert prompt.opening["prompt_tail"].endswith("<|im_start|>assistant\nThe answer")


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"tokenizer": None}, "tokenizer"),
        ({"tokenizer": Path("nowhere")}, "tokenizer"),
        ({"chat_template": Path("nowhere.jinja")}, "chat_template"),
        ({"format": "nope"}, "format"),
        ({"reasoning_chars": "many"}, "reasoning_chars"),
        ({"reasoning_chars": "30-20"}, "reasoning_chars"),
        ({"sampling_defaults": "[]"}, "sampling_defaults"),
        ({"sampling_defaults": '{"temperature": 9}'}, "temperature"),
        ({"chat_template_kwargs": "{"}, "chat_template_kwargs"),
        ({"chat_template_kwargs": '{"foo": 1}'}, "chat_template_kwargs.foo"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    changes: dict[str, Any], parameter: str, demo_model: Path, template_file: Path
) -> None:
    settings = PromptSettings(**{"tokenizer": demo_model, "chat_template": template_file, **changes})
    with pytest.raises(SettingsError) as caught:
        PromptBuilder(settings)
    assert caught.value.parameter == parameter


def write(folder: Path, template: str) -> Path:
    path = folder / "template.jinja"
    path.write_text(template, encoding="utf-8")
    return path


def test_a_template_says_what_it_refuses(demo_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "{{ raise_exception('Only one message, please') if messages | length > 1 else 'x' }}")
    builder = PromptBuilder(PromptSettings(tokenizer=demo_model, chat_template=path))
    assert builder.build(body()).input_ids
    with pytest.raises(RequestError, match=r"messages: found .* refuses: Only one message, please"):
        builder.build(body(messages=HELLO * 2))
    with pytest.raises(RequestError, match="tools: found tools; allowed: none: this model's chat template"):
        builder.build(body(tools=[tool()]))


def test_a_template_that_breaks_is_the_requests_fault_and_shows_no_traceback(demo_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "{{ 'x' + 1 }}")
    builder = PromptBuilder(PromptSettings(tokenizer=demo_model, chat_template=path))
    with pytest.raises(RequestError, match="cannot render") as caught:
        builder.build(body())
    assert "Traceback" not in str(caught.value)
    empty = PromptBuilder(PromptSettings(tokenizer=demo_model, chat_template=write(tmp_path, "{# nothing #}")))
    with pytest.raises(RequestError, match="an empty prompt"):
        empty.build(body())


def test_a_template_that_does_not_compile_is_the_operators_fault(demo_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not compile"):
        ChatTemplate(demo_model, write(tmp_path, "{% if %}"))


def test_the_variables_a_template_reads_are_found(demo_model: Path, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "{% if style is not defined %}{% set style = 'plain' %}{% endif %}"
        "{% macro f(a) %}{{ a ~ effort }}{% endmacro %}"
        "{% for m in messages %}{% generation %}{{ f(m.content) }}{{ bos_token ~ style }}{% endgeneration %}"
        "{% if strftime_now is defined %}{% break %}{% endif %}{% endfor %}{{ reasoning_effort }}",
    )
    template = ChatTemplate(demo_model, path)
    assert template.variables == {"style", "effort"}
    assert template.reads_effort
    assert not template.reads_tools


def history(arguments: str | dict[str, Any]) -> list[ChatMessage]:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [ChatMessage.model_validate(message) for message in (*HELLO, {"role": "assistant", "tool_calls": [call]})]


LOOP = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
END = "{% endfor %}{% endfor %}"


@pytest.mark.parametrize("arguments", ['{"city": "Köln"}', {"city": "Köln"}])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (LOOP + "{{ c.function.arguments | tojson }}" + END, '{"city": "Köln"}'),
        (LOOP + "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}" + END, "city=Köln"),
        (LOOP + "{{ 'json ' + c['function']['arguments'] }}" + END, 'json {"city": "Köln"}'),
    ],
)
def test_arguments_of_the_history_come_in_the_form_the_template_wants(
    template: str, expected: str, arguments: str | dict[str, Any], demo_model: Path, tmp_path: Path
) -> None:
    loaded = ChatTemplate(demo_model, write(tmp_path, template))
    assert loaded.render(history(arguments), None, {}) == expected


def test_broken_arguments_of_the_history_stay_as_they_are(builder: PromptBuilder) -> None:
    text = builder.template.render(history('{"city": "Kö'), None, {})
    assert '"arguments": {"city": "Kö}' in text
    assert '"arguments": {}}' in builder.template.render(history(""), None, {})


def test_the_demonstrations_template(builder: PromptBuilder) -> None:
    request = json.loads(ACCEPTED["parts"])
    template = builder.template
    messages = [ChatMessage.model_validate(message) for message in request["messages"]]
    open_ended = template.render(messages, [tool()], {})
    assert open_ended.endswith("<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n<think>\n")
    assert json.dumps(tool()) in open_ended
    assert template.render(messages, None, {"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")
    developer = ChatMessage.model_validate({"role": "developer", "content": "Be brief."})
    assert template.render([developer, *messages], None, {}).startswith("<|im_start|>system\nBe brief.<|im_end|>\n")


@pytest.mark.parametrize("fixture", ["qwen3_tokenizer", "deepseek_tokenizer"])
def test_other_tokenizers_with_our_template(fixture: str, template_file: Path, request: pytest.FixtureRequest) -> None:
    """Folders without config.json or a template of their own; no BOS is added to what the template wrote."""
    template = ChatTemplate(request.getfixturevalue(fixture), template_file)
    ids = template.encode("Hello")
    assert len(ids) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
members = st.sampled_from(
    "messages tools tool_choice temperature stop n response_format chat_template_kwargs format stream_options".split()
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(members, json_values, max_size=5), st.booleans())
def test_any_json_is_served_or_refused(builder: PromptBuilder, value: dict[str, Any], with_messages: bool) -> None:
    if with_messages:
        value["messages"] = HELLO
    with contextlib.suppress(RequestError):  # nothing else may be raised
        assert builder.build(json.dumps(value)).input_ids


@given(json_values)
def test_any_schema_is_taken_or_refused(builder: PromptBuilder, value: Any) -> None:
    with contextlib.suppress(RequestError):
        builder.build(schema({"properties": {"a": value}, "$defs": value}))


@given(st.text())
def test_any_text_is_json_or_refused(text: str) -> None:
    with contextlib.suppress(RequestError):
        parse_json(text, "request")


def test_a_budget_of_reasoning(demo_model: Path, template_file: Path) -> None:
    settings: dict[str, Any] = {"tokenizer": demo_model, "chat_template": template_file}

    def held(asked: int | None, **more: Any) -> str:
        built = PromptBuilder(PromptSettings(**settings, **more)).build(body(thinking_token_budget=asked))
        return json.dumps(built.constraint)

    assert held(None) == "null"
    assert '"max_tokens": 9' in held(9)
    assert '"max_tokens": 5' in held(None, max_reasoning_tokens=5)
    assert '"max_tokens": 5' in held(9, max_reasoning_tokens=5)
    assert '"max_tokens": 3' in held(3, max_reasoning_tokens=5)
    assert '"max_tokens": 3, "max_chars": 160' in held(3, reasoning_chars="20-160")
    refused: tuple[dict[str, Any], ...] = ({"constraints": False}, {"format": "gpt_oss", "match": "text"})
    for more in refused:
        with pytest.raises(RequestError, match="thinking_token_budget: found 9"):
            held(9, **more)
