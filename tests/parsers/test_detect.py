"""`format: auto`: chat templates and the formats they write; the self-check; the tokens a format needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from support.family_writers import WRITERS, Writer
from support.templates import TEMPLATES, package_templates, renderer, tokenizer_template, written
from tristream.parsers import Format, load_format
from tristream.parsers.arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from tristream.parsers.detect import detect, prompt_open
from tristream.parsers.detect_markers import marker_literals, missing_tokens, opening_markers
from tristream.parsers.detect_turns import Render
from tristream.parsers.format import ReasoningSyntax, ToolSyntax
from tristream.parsers.header import Lit
from tristream.parsers.self_check import self_check

WRITTEN = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
FAMILIES = [name for name in WRITTEN if not name.startswith("unknown")]

# Of @huggingface/ollama-utils: models whose template writes calls or reasoning, and what they write.
PACKAGED = {
    "cogito:14b": "hermes",
    "cogito:3b": "xlam",  # a bare list of call objects
    "deepcoder:14b": "deepseek_r1",
    "deepseek-r1:latest": "deepseek_r1",
    "deepseek-v2.5:236b": "deepseek_v3",
    "deepseek-v3.1:latest": "deepseek_v31",
    "deepseek-v3:671b": "deepseek_v3",
    "granite3.3:2b": "granite",
    "granite4:latest": "granite4",
    "llama3.1:8b": "llama3_json",
    "llama3.2:3b": "llama3_json",
    "llama4:latest": "llama4_pythonic",
    "nemotron:70b": "llama3_json",
    "qwen2.5:0.5b": "hermes",
    "qwen3-coder:30b": "qwen3_coder",
    "qwen3-next:80b": "qwen3+hermes",
    "qwen3:0.6b": "qwen3+hermes",
    "qwq:32b": "qwen3+hermes",
    # They know neither tools nor reasoning: nothing but content can be asked of them.
    "gemma3:1b": "identity",
    "llama3:8b": "identity",
    "mistral-small:24b": "identity",
    "smollm2:135m": "identity",
    # <toolcall>, and instructions without a marker: no format of ours.
    "nemotron-mini:4b": None,
    "granite3-dense:2b": None,
}

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\nBEFORE{{ m.content or '' }}AFTER<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nPROMPT{% endif %}"
)
HERMES_CALLS = (
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
)


def chatml(after: str = "", prompt: str = "", before: str = "") -> Any:
    """A ChatML template with something before and after the content, and after the generation prompt."""
    return renderer(CHATML.replace("BEFORE", before).replace("AFTER", after).replace("PROMPT", prompt))


def means_the_same(name: str | None, expected: str) -> bool:
    """Twins under two names: `qwen3+hermes` and `hermes`."""

    def data(format: Format) -> tuple[Any, ...]:
        return format.reasoning, format.tools, format.messages, format.swallowed, format.turns

    return name is not None and data(load_format(name)) == data(load_format(expected))


@pytest.mark.parametrize("name", WRITTEN)
def test_written_templates(name: str) -> None:
    found = detect(written(name))
    if name.startswith("unknown"):
        assert found.format is None
        assert str(found).startswith("unknown, because ")
    else:
        assert means_the_same(found.format, name), found
        assert found.evidence


@pytest.mark.parametrize(("model", "expected"), PACKAGED.items())
def test_packaged_templates(model: str, expected: str | None) -> None:
    found = detect(renderer(package_templates()[model]))
    assert found.format is None if expected is None else means_the_same(found.format, expected), found


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [("qwen3", "qwen3+hermes"), ("deepseek_v3", "deepseek_v3"), ("llama3_1", "identity"), ("gemma3", "identity")],
)
def test_templates_of_tokenizers(tokenizer: str, expected: str) -> None:
    found = detect(tokenizer_template(tokenizer))
    assert means_the_same(found.format, expected), found


def test_enough_families() -> None:
    found = {detect(written(name)).format for name in FAMILIES}
    assert len(found) >= 20
    assert sum(name.startswith("unknown") for name in WRITTEN) >= 3


def test_all_packaged_templates_get_an_answer() -> None:
    """Whatever a template does, detection says a format that exists, or why it knows none."""
    for source in set(package_templates().values()):
        found = detect(renderer(source))
        assert found.because
        if found.format is not None:
            load_format(found.format)


def from_wire_form(writer: Writer) -> Render:
    """A template made of a family's documented wire form and its markers of turns."""
    format = load_format(writer.format)
    turn = "<|start|>" if format.messages else (format.turns or ("<<",))[0]
    end = format.swallowed[-1] if format.swallowed and not format.messages else ""
    gap = "" if format.messages else "\n"
    opens = format.reasoning is not None and format.reasoning.opens_by_default

    def answer(message: Mapping[str, Any]) -> str:
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        if writer.single and len(calls) > 1:
            raise ValueError("one call in a turn")
        plan, content = message.get("thinking"), message["content"]
        text = f"{writer.think[0]}{plan}{writer.think[1]}" if plan and writer.think else ""
        text += f"{writer.content[0]}{content}{writer.content[1]}" if content else ""
        return text + (writer.calls(*calls) if calls and writer.call else "")

    def render(messages: Any, *, tools: Any = None, add_generation_prompt: bool = False, **switches: Any) -> str:
        text = f"{turn}system\n{json.dumps(tools)}{end}\n" if tools and writer.call else ""
        for message in messages:
            own = message["role"] == "assistant"
            text += f"{turn}{message['role']}{gap}{answer(message) if own else message['content']}{end}\n"
        if add_generation_prompt:
            text += f"{turn}assistant{gap}"
            text += writer.opened or "" if opens and switches.get("enable_thinking", True) else ""
        return text

    return render


@pytest.mark.parametrize("writer", WRITERS, ids=[writer.format for writer in WRITERS])
def test_every_wire_form(writer: Writer) -> None:
    """Each format reads its own template, and so does the format that detection names (kin write alike)."""
    render = from_wire_form(writer)
    added = marker_literals(load_format(writer.format))
    result = self_check(render, writer.format)
    assert not result.problems
    assert ("calls" in result.checked) is (writer.call is not None)
    assert ("reasoning" in result.checked) is (writer.think is not None)
    found = detect(render, added_spellings=added)
    assert found.format is not None, found
    assert not self_check(render, found.format).problems


def test_composition() -> None:
    """Calls of one family and reasoning of another."""
    before = "{% if m.reasoning_content %}[THINK]{{ m.reasoning_content }}[/THINK]{% endif %}"
    found = detect(chatml(HERMES_CALLS, before=before))
    assert found.format is not None
    format = load_format(found.format)
    assert "+" in found.format
    assert format.reasoning is not None
    assert format.reasoning.starts[0] == "[THINK]"
    assert "<tool_call>" in opening_markers(format)


def test_two_that_cannot_be_composed() -> None:
    """One marker opens the reasoning of the one and the calls of the other."""
    thinks = Format(name="thinks", source="made up", reasoning=ReasoningSyntax(("<x>",), ("</x>",)))
    calls = ToolSyntax(JsonCall(), wrappers=("<x>",), inner=((CALL_OBJECT_AHEAD,),), closers=((Lit("</x>"),),))
    source = HERMES_CALLS.replace("tool_call>", "x>")
    template = chatml(source, before="{% if m.thinking %}<x>{{ m.thinking }}</x>{% endif %}")
    found = detect(template, [thinks, Format(name="calls", source="made up", tools=calls)])
    assert found.format is None
    assert "calls read back its calls, but no format reads back the reasoning" in found.because


def test_reasoning_that_is_only_taken_out_of_the_history() -> None:
    strips = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
    found = detect(renderer(strips + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"))
    assert found.format is not None
    reasoning = load_format(found.format).reasoning
    assert reasoning is not None
    assert reasoning.ends == ("</think>",)
    assert "history" in " ".join(found.evidence)


@pytest.mark.parametrize(
    ("source", "because"),
    [
        ("{{ nothing.at.all }}", "does not render"),
        ("{{ tools | tojson }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "writes no call"),
        (
            "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{{ m.tool_calls or '' }}\n{% endfor %}",
            "no format",
        ),
        ("{% for m in messages %}{{ m.thinking or '' }}~{{ m.content }}{% endfor %}", "reasoning it writes"),
    ],
)
def test_unknown(source: str, because: str) -> None:
    found = detect(renderer(source))
    assert found.format is None
    assert because in found.because


def test_calls_known_and_reasoning_not() -> None:
    found = detect(chatml(HERMES_CALLS, before="{% if m.thinking %}(({{ m.thinking }})){% endif %}"))
    assert found.format is None
    assert "read back its calls, but no format reads back the reasoning" in found.because


def test_given_candidates_only() -> None:
    found = detect(written("hermes"), [load_format("qwen3_coder")])
    assert found.format is None


@pytest.mark.parametrize(
    ("prompt", "switches", "opened"),
    [
        ("", {}, None),
        ("<think>\n", {}, True),
        ("<think>\n\n</think>\n\n", {}, False),
        ("{% if enable_thinking %}<think>{% endif %}", {"enable_thinking": True}, True),
        ("{% if enable_thinking %}<think>{% endif %}", {"enable_thinking": False}, None),
        ("{{ raise_exception('no') }}", {}, None),
    ],
)
def test_prompt_open(prompt: str, switches: dict[str, Any], opened: bool | None) -> None:
    assert prompt_open(chatml(prompt=prompt), "qwen3+hermes", **switches) is opened
    assert prompt_open(chatml(prompt=prompt), load_format("seed_oss"), **switches) is None


@pytest.mark.parametrize("name", FAMILIES)
def test_self_check_of_the_right_format(name: str) -> None:
    result = self_check(written(name), name)
    assert not result.problems
    assert "calls" in result.checked
    assert str(result) == f"format {name} reads back {' and '.join(result.checked)}"


@pytest.mark.parametrize("name", [name for name in FAMILIES if not means_the_same(name, "hermes")])
def test_self_check_of_a_wrong_format(name: str) -> None:
    result = self_check(written(name), "hermes")
    assert result.problems
    assert means_the_same(result.fits, name)
    assert f"format {result.fits} fits this template" in str(result)


def test_self_check_says_which_marker_differs() -> None:
    result = self_check(written("kimi_k2"), "hermes")
    assert "'<|tool_calls_section_begin|><|tool_call_begin|>functions.'" in result.problems[0]
    assert "begins with '<tool_call>'" in result.problems[0]
    result = self_check(written("glm45"), "hermes")
    assert "the format knows no '<arg_key>'" in result.problems[0]
    result = self_check(written("apriel"), "jamba")
    assert result.problems == ("reasoning ends with '</thinking>', the format has none",)
    result = self_check(written("mistral"), "hermes")
    assert "reasoning ends with '[/THINK]', the format's ends with '</think>'" in result.problems


def test_self_check_where_reasoning_begins_otherwise() -> None:
    before = "{% if m.thinking %}<thought>{{ m.thinking }}</think>{% endif %}"
    result = self_check(chatml(HERMES_CALLS, before=before), "hermes")
    assert "reasoning begins with" in result.problems[0]
    assert "no known format fits this template" in str(result)


def test_self_check_of_calls_that_reasoning_disturbs() -> None:
    """Calls alone and reasoning alone come back; together they do not."""
    before = "{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}"
    calls = "{% if m.thinking and m.tool_calls %}<think>{% endif %}" + HERMES_CALLS
    result = self_check(chatml(calls, before=before), "lfm2+hermes")
    assert result.checked == ("calls", "reasoning")
    assert not result.problems
    calls = HERMES_CALLS.replace("{{ c.function.arguments", "{{ ({} if m.thinking else c.function.arguments)")
    result = self_check(chatml(calls, before=before), "hermes")
    assert len(result.problems) == 1
    assert "are written" in result.problems[0]
    assert "after the reasoning 'Weigh the options first.'" in result.problems[0]


def test_templates_that_pass_over_a_second_call() -> None:
    calls = HERMES_CALLS.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
    assert detect(chatml(calls)).format == "hermes"
    assert not self_check(chatml(calls), "hermes").problems


def test_arguments_that_are_no_json() -> None:
    calls = HERMES_CALLS.replace("{{ c.function.arguments | tojson }}", '{"city": "Oslo", "days": }')
    assert detect(chatml(calls)).format is None


def test_self_check_of_calls_in_reasoning_without_end() -> None:
    before = "{% if m.thinking %}<think>{{ m.thinking }}{% if not m.tool_calls %}</think>{% endif %}{% endif %}"
    source = HERMES_CALLS.replace("{% for c", "{% if m.thinking %} and {% endif %}{% for c")
    result = self_check(chatml(source, before=before), "granite4")
    assert result.problems


def test_self_check_without_anything_to_check() -> None:
    result = self_check(chatml(), "qwen3+hermes")
    assert (result.problems, result.checked, result.fits) == ((), (), None)
    assert str(result) == "format qwen3+hermes reads back all that the template writes"


ADDED = {
    "qwen3": ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_start|>", "the", "\n\n"],
    "deepseek_v3": ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜User｜>"],
    "deepseek_v4": ["<think>", "</think>", "｜DSML｜"],
}


@pytest.mark.parametrize(
    ("format", "tokens", "missing"),
    [
        ("qwen3_coder", "qwen3", ()),
        ("deepseek_v3", "deepseek_v3", ()),
        ("deepseek_r1", "deepseek_v3", ("</think>",)),  # it starts inside reasoning, whose end must be seen
        ("deepseek_v4", "deepseek_v4", ()),  # the bars within the tag are the token
        ("kimi_k2", "qwen3", ("<|tool_calls_section_begin|>",)),
        ("gpt_oss", "qwen3", ("<|start|>",)),
        ("hermes", "deepseek_v3", ()),  # ordinary text by nature
        ("pythonic", "deepseek_v3", ()),
        ("llama3_json", "deepseek_v3", ()),  # its marker is optional
        ("identity", "deepseek_v3", ()),
    ],
)
def test_tokens_that_a_format_needs(format: str, tokens: str, missing: tuple[str, ...]) -> None:
    assert missing_tokens(load_format(format), ADDED[tokens]) == missing


def test_markers_of_a_format() -> None:
    markers = marker_literals(load_format("qwen3_coder"))
    assert {"<tool_call>", "<function=", "<parameter=", "</parameter>", "</think>", "<|im_end|>"} <= markers
    assert not any(len(marker) < 3 or marker.isalnum() for marker in markers)


def test_calls_as_json_text() -> None:
    """A template that concatenates arguments as text is probed with text."""
    source = HERMES_CALLS.replace("c.function.arguments | tojson", "'' + c.function.arguments")
    assert detect(chatml(source)).format == "hermes"
