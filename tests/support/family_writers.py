"""How each family writes a message, for the vectors in `tests/vectors/families/`.

    python tests/support/family_writers.py        writes the vectors anew

Written from the documented wire formats, without the parsers' tables: what one side gets wrong the
other shows. The expectations follow from the message that was written, and from PROTOCOL's rules for
whitespace, never from a parser's result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Arguments = dict[str, Any]
VECTORS = Path(__file__).parents[1] / "vectors" / "families"


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def text_or_json(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def tagged(opener: str, key_end: str, closer: str, frame: str = "", after: str = "\n") -> Callable[[Arguments], str]:
    """Parameters between tags, the key in the opener."""

    def write(arguments: Arguments) -> str:
        return "".join(
            f"{opener}{key}{key_end}{frame}{text_or_json(value)}{frame}{closer}{after}"
            for key, value in arguments.items()
        )

    return write


def pairs(key: tuple[str, str], value: tuple[str, str], between: str = "") -> Callable[[Arguments], str]:
    """Keys and values in tags of their own."""

    def write(arguments: Arguments) -> str:
        return "".join(
            f"{key[0]}{name}{key[1]}{between}{value[0]}{text_or_json(content)}{value[1]}{between}"
            for name, content in arguments.items()
        )

    return write


def python(value: Any) -> str:
    return repr(value)


def gemma(quote: str) -> Callable[[Any], str]:
    def write(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{name}:{write(member)}" for name, member in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(write(member) for member in value) + "]"
        return dumps(value)

    return write


def nested(prefix: str) -> Callable[[Arguments], str]:
    def element(name: str, value: Any) -> str:
        if isinstance(value, dict):
            inner = "".join(element(key, member) for key, member in value.items())
        elif isinstance(value, list):
            inner = "".join(element("item", member) for member in value)
        else:
            inner = text_or_json(value)
        return f"{prefix}<{name}>{inner}{prefix}</{name}>"

    return lambda arguments: "".join(element(name, value) for name, value in arguments.items())


def dsml(mark: str, space: str = "") -> Callable[[Arguments], str]:
    def write(arguments: Arguments) -> str:
        return "".join(
            f'<{mark}{space}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">'
            f"{text_or_json(value)}</{mark}{space}parameter>\n".replace(f"</{mark}", f"</{mark}")
            for key, value in arguments.items()
        )

    return write


@dataclass(frozen=True)
class Writer:
    """One family.

    Args:
        format: its name.
        call: writes one call: name, arguments, index.
        opener, closer: around all calls.
        between: between two calls.
        think: marks around the reasoning, or None.
        opened: prompt tail with which the output starts inside reasoning.
        closed: prompt tail that has ended it.
        opener_mention: a spelling of the opener for prose, "" where the format counts it alone.
        value_mention: a spelling of the format that a string value may hold.
        after_text: calls may follow text (False for calls without a marker).
        content: what stands around content (formats with frames).
        single: it writes one call at most.
        text_before_only: after a call only another message may follow, never bare text.
        prepended: what content begins with, where there is any.
        more: further cases of its own: suffix, output, and what `case` takes.
    """

    format: str
    call: Callable[[str, Arguments, int], str] | None = None
    opener: str = ""
    closer: str = ""
    between: str = ""
    think: tuple[str, str] | None = None
    opened: str | None = "<think>\n"
    closed: str | None = "<think>\n\n</think>\n\n"
    opener_mention: str = ""
    value_mention: str = ""
    after_text: bool = True
    content: tuple[str, str] = ("", "")
    single: bool = False
    text_before_only: bool = False
    prepended: str = ""
    more: tuple[tuple[str, str, dict[str, Any]], ...] = ()

    def calls(self, *calls: tuple[str, Arguments]) -> str:
        assert self.call is not None
        written = self.between.join(self.call(name, arguments, index) for index, (name, arguments) in enumerate(calls))
        return f"{self.opener}{written}{self.closer}"


def obj(name: str, arguments: Arguments, _index: int) -> str:
    return f'{{"name": "{name}", "arguments": {dumps(arguments)}}}'


def parameters_obj(name: str, arguments: Arguments, _index: int) -> str:
    return f'{{"name": "{name}", "parameters": {dumps(arguments)}}}'


def around(
    opener: str, closer: str, inner: Callable[[str, Arguments, int], str] = obj
) -> Callable[[str, Arguments, int], str]:
    return lambda name, arguments, index: f"{opener}{inner(name, arguments, index)}{closer}"


def named(
    opener: str, name_end: str, body: Callable[[Arguments], str], closer: str
) -> Callable[[str, Arguments, int], str]:
    return lambda name, arguments, _index: f"{opener}{name}{name_end}{body(arguments)}{closer}"


def python_call(name: str, arguments: Arguments, _index: int) -> str:
    return f"{name}({', '.join(f'{key}={python(value)}' for key, value in arguments.items())})"


def qwen(wrapper: str = "tool_call", frame: str = "\n") -> Callable[[str, Arguments, int], str]:
    return named(
        f"<{wrapper}>\n<function=",
        ">\n",
        tagged("<parameter=", ">", "</parameter>", frame),
        f"</function>\n</{wrapper}>",
    )


def invokes(prefix: str = "") -> Callable[[str, Arguments, int], str]:
    return named(
        f'<{prefix}invoke name="',
        '">\n',
        tagged(f'<{prefix}parameter name="', '">', f"</{prefix}parameter>"),
        f"</{prefix}invoke>\n",
    )


THINK = ("<think>", "</think>")
V3 = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
GLM = pairs(("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>"), "\n")
GLM_TIGHT = pairs(("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>"))
IFM = pairs(("<ifm|arg_key>", "</ifm|arg_key>"), ("<ifm|arg_value>", "</ifm|arg_value>"))
PARAM = pairs(("<param_key>", "</param_key>"), ("<param_value>", "</param_value>"))
HERMES = around("<tool_call>\n", "\n</tool_call>")


def hunyuan(format: str, separator: str = "", between: str = "", suffix: str = "") -> Writer:
    """Its tokenizer decides what all its markers end with."""

    def tag(name: str) -> tuple[str, str]:
        return f"<{name}{suffix}>", f"</{name}{suffix}>"

    (call, call_end), (calls, calls_end) = tag("tool_call"), tag("tool_calls")
    return Writer(
        f"{format}{{{suffix}}}" if suffix else format,
        named(call, separator, pairs(tag("arg_key"), tag("arg_value"), between), call_end + between),
        calls + between,
        calls_end,
        think=tag("think"),
        opened=tag("think")[0],
        closed="".join(tag("think")),
        opener_mention=calls,
        value_mention=call_end,
    )


def fenced(name: str, arguments: Arguments, _index: int) -> str:
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dumps(arguments)}\n```<｜tool▁call▁end｜>"


def plamo(name: str, arguments: Arguments, _index: int) -> str:
    def mark(word: str) -> str:
        return f"<|plamo:{word}:plamo|>"

    return (
        f"{mark('begin_tool_request')}{mark('begin_tool_name')}{name}{mark('end_tool_name')}{mark('begin_tool_arguments')}"
        f"<|plamo:constrain|>json<|plamo:msg|>{dumps(arguments)}{mark('end_tool_arguments')}{mark('end_tool_request')}"
    )


def kimi_k3(name: str, arguments: Arguments, index: int) -> str:
    inner = "".join(
        f'<|open|>argument key="{key}" type="{"string" if isinstance(value, str) else "json"}"<|sep|>'
        f"{text_or_json(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    return f'<|open|>call tool="{name}" index="{index + 1}"<|sep|>{inner}<|close|>call<|sep|>'


def step3(name: str, arguments: Arguments, index: int) -> str:
    invoke = invokes("steptml:")(name, arguments, index).rstrip()
    return f"<｜tool_call_begin｜>function<｜tool_sep｜>{invoke}<｜tool_call_end｜>\n"


def minicpm5(name: str, arguments: Arguments, _index: int) -> str:
    inner = "".join(
        f'<param name="{key}"><![CDATA[{value}]]></param>'
        if isinstance(value, str)
        else f'<param name="{key}">{dumps(value)}</param>'
        for key, value in arguments.items()
    )
    return f'<function name="{name}">{inner}</function>'


def gemma_call(opener: str, quote: str, closer: str) -> Callable[[str, Arguments, int], str]:
    return lambda name, arguments, _index: f"{opener}call:{name}{gemma(quote)(arguments)}{closer}"


def harmony(name: str, arguments: Arguments, _index: int) -> str:
    header = f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json"
    return f"{header}<|message|>{dumps(arguments)}<|call|>"


def beam(name: str, arguments: Arguments, _index: int) -> str:
    body = tagged('<rfl:parameter name="', '">', "</rfl:parameter>", "\n", "")(arguments)
    return f"<|start|>assistant to={name}<|channel|>analysis <|constrain|>xml<|message|>{body}<|call|>"


def muse(name: str, arguments: Arguments, index: int) -> str:
    invoke = invokes("atem:")(name, arguments, index)
    body = f"<atem:function_calls>\n{invoke}</atem:function_calls>"
    return f"<|start|>assistant to={name}<|message|>{body}<|eom|>"


def harmony_messages() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What a header may say, in every order; the prompt ends with `<|start|>assistant`."""
    start = "<|start|>assistant"
    thought = f"<|channel|>analysis<|message|>plan<|end|>{start}"
    paris = ("get_weather", {"city": "Paris", "days": 3})
    body = f"<|message|>{dumps(paris[1])}<|call|>"
    for name, header in (
        ("role-slot", " to=functions.get_weather<|channel|>commentary <|constrain|>json"),
        ("channel-slot", "<|channel|>commentary to=functions.get_weather <|constrain|>json"),
        ("on-analysis", "<|channel|>analysis to=functions.get_weather <|constrain|>json"),
        ("role-on-analysis", " to=functions.get_weather<|channel|>analysis"),
        ("no-constrain", "<|channel|>commentary to=functions.get_weather"),
        ("no-space", "<|channel|>commentary to=functions.get_weather<|constrain|>json"),
        ("bare-json", "<|channel|>commentary to=functions.get_weather json"),
    ):
        yield f"header-{name}", header + body, {"calls": (paris,)}
        yield f"header-{name}-after", thought + header + body, {"calls": (paris,), "reasoning": "plan"}
    yield (
        "preamble",
        f"{thought}<|channel|>commentary<|message|>I look.<|end|>{harmony(*paris, 0)}",
        {"calls": (paris,), "reasoning": "plan", "content": "I look."},
    )
    final = "<|channel|>final<|message|>Done."
    yield "final", f"{thought}{final}<|return|>", {"reasoning": "plan", "content": "Done."}
    yield "final-unended", f"{thought}{final}", {"reasoning": "plan", "content": "Done."}
    stray = {"reasoning": "plan", "content": "Done."}
    yield "stray-return", f"{thought}{final}<|end|><|return|>", stray
    yield "stray-call", f"{thought}{final}<|end|><|call|>", stray
    yield (
        "end-closes-call",
        f"<|channel|>commentary to=functions.get_weather<|message|>{dumps(paris[1])}<|end|>{start}{final}<|return|>",
        {"calls": (paris,), "content": "Done."},
    )


def muse_messages() -> Iterator[tuple[str, str, dict[str, Any]]]:
    start = "<|start|>assistant"
    paris = ("get_weather", {"city": "Paris", "days": 3})
    first = muse(*paris, 0).removeprefix(start)
    plan = f" to=self<|message|>plan<|eom|>{start}"
    yield "first-call", first, {"calls": (paris,)}
    yield "ends-turn", first.replace("<|eom|>", "<|eot|>"), {"calls": (paris,)}
    yield "answer", f"{plan} to=user<|message|>Done.<|eot|>", {"reasoning": "plan", "content": "Done."}
    yield (
        "commentary",
        f"{plan} to=commentary<|message|>I look.<|eom|>{muse(*paris, 0)}",
        {"reasoning": "plan", "content": "I look.", "calls": (paris,)},
    )


def functionary_parts() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The prompt ends with `>>>`, which begins every part: a function's name, or `all` for text."""
    paris, clock = ("get_weather", {"city": "Paris", "days": 3}), ("get_time", Arguments())
    written = f"get_weather\n{dumps(paris[1])}"
    yield "call", written, {"calls": (paris,), "tail": ">>>"}
    yield "two-calls", f"{written}\n>>>get_time\n{{}}", {"calls": (paris, clock), "tail": ">>>"}
    yield "text-call", f"all\nLook:\n>>>{written}", {"calls": (paris,), "content": "Look:", "tail": ">>>"}
    yield "text", "all\nHello >> you > all", {"content": "Hello >> you > all", "tail": ">>>"}
    nested = ("get_weather", {"city": "a\n>>>get_time\n{} b", "options": {"tags": ["x"]}})
    yield "marker-in-value", f"get_weather\n{dumps(nested[1])}", {"calls": (nested,), "tail": ">>>"}


M3 = "]<]minimax[>["
QWEN_KIN: dict[str, Any] = {"think": THINK, "opener_mention": "<tool_call>", "value_mention": "</tool_call>"}
HERMES_KIN: dict[str, Any] = {"opener_mention": "<tool_call>", "value_mention": "</tool_call>"}

WRITERS = (
    Writer("qwen3", qwen(), **QWEN_KIN),
    Writer("qwen3_coder", qwen(), **QWEN_KIN),
    Writer("step3p5", qwen(), **QWEN_KIN),
    Writer("step5", qwen(), **QWEN_KIN),
    Writer("nemotron_v3", qwen(), **QWEN_KIN),
    Writer("granite_thinking_parser", qwen(), **QWEN_KIN),
    Writer("minicpmv", qwen(), **QWEN_KIN),
    Writer("mimo", qwen(frame=""), **QWEN_KIN),
    Writer(
        "seed_oss",
        qwen("seed:tool_call"),
        think=("<seed:think>", "</seed:think>"),
        opened="<seed:think>",
        closed="<seed:think></seed:think>",
        opener_mention="<seed:tool_call>",
        value_mention="</seed:tool_call>",
    ),
    Writer("hermes", HERMES, think=THINK, **HERMES_KIN),
    Writer("qwen3+hermes", HERMES, think=THINK, **HERMES_KIN),
    Writer("exaone4", HERMES, think=THINK, **HERMES_KIN),
    Writer("trinity", HERMES, think=THINK, **HERMES_KIN),
    Writer("ernie45", HERMES, think=THINK, **HERMES_KIN),
    Writer("granite4", HERMES, **HERMES_KIN),
    Writer(
        "longcat",
        around("<longcat_tool_call>", "</longcat_tool_call>"),
        opener_mention="<longcat_tool_call>",
        value_mention="</longcat_tool_call>",
    ),
    Writer("granite_20b_fc", around("<function_call> ", ""), opener_mention="<function_call>"),
    Writer(
        "internlm2",
        around("<|action_start|><|plugin|>\n", "<|action_end|>", parameters_obj),
        think=THINK,
        opener_mention="<|action_start|>",
        value_mention="<|action_end|>",
    ),
    Writer("gigachat3", around("<|function_call|>", ""), single=True),
    Writer("minimax_m1", obj, "<tool_calls>\n", "\n</tool_calls>", "\n", think=THINK, opener_mention="<tool_calls>"),
    Writer("granite", obj, "<|tool_call|>[", "]", ", ", opener_mention="<|tool_call|>", value_mention="]"),
    Writer("jamba", obj, "<tool_calls>[\n  ", "\n]</tool_calls>", ",\n  ", value_mention="]</tool_calls>"),
    Writer("hunyuan_a13b", obj, "<tool_calls>[", "]</tool_calls>", ", ", think=THINK, value_mention="]</tool_calls>"),
    Writer("phi4_mini", obj, "functools[", "]", ", ", opener_mention="functools", value_mention="]"),
    Writer("firefunction", obj, "functools[", "]", ", ", opener_mention="functools", value_mention="]"),
    Writer("nemotron_nano_v2", obj, "<TOOLCALL>[", "]</TOOLCALL>", ", ", think=THINK, value_mention="]</TOOLCALL>"),
    Writer(
        "apriel",
        obj,
        "<tool_calls>[",
        "]</tool_calls>",
        ", ",
        think=("<thinking>", "</thinking>"),
        opened="<thinking>",
        closed="<thinking></thinking>",
        value_mention="</tool_calls>",
    ),
    Writer(
        "apriel16",
        obj,
        "<tool_calls>[",
        "]</tool_calls>",
        ", ",
        think=("Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n"),
        opened="Here are my reasoning steps:\n",
        closed="[BEGIN FINAL RESPONSE]",
    ),
    Writer("xlam", obj, "[", "]", ", ", think=THINK, after_text=False, value_mention="]"),
    Writer(
        "apertus",
        lambda name, arguments, _: f'{{"{name}": {dumps(arguments)}}}',
        "<|tools_prefix|>[",
        "]<|tools_suffix|>",
        ", ",
        think=("<|inner_prefix|>", "<|inner_suffix|>"),
        opened="<|inner_prefix|>",
        closed="<|inner_suffix|>",
    ),
    Writer(
        "cohere_command3",
        lambda name, arguments, index: (
            f'{{"tool_call_id": "{index}", "tool_name": "{name}", "parameters": {dumps(arguments)}}}'
        ),
        "<|START_ACTION|>[\n    ",
        "\n]<|END_ACTION|>",
        ",\n    ",
        think=("<|START_THINKING|>", "<|END_THINKING|>"),
        opened="<|START_THINKING|>",
        closed="<|START_THINKING|><|END_THINKING|>",
        content=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
    Writer(
        "cohere_command4",
        lambda name, arguments, index: (
            f'{{"tool_call_id": "{index}", "tool_name": "{name}", "parameters": {dumps(arguments)}}}'
        ),
        "<|START_ACTION|>[\n    ",
        "\n]<|END_ACTION|>",
        ",\n    ",
        think=("<|START_THINKING|>", "<|END_THINKING|>"),
        opened="<|START_THINKING|>",
        closed="<|START_THINKING|><|END_THINKING|>",
        content=("<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    Writer("deepseek_r1", fenced, *V3, between="\n", think=THINK, value_mention="```"),
    Writer("deepseek_v3", fenced, *V3, between="\n", think=THINK, value_mention="```"),
    Writer(
        "deepseek_v31",
        lambda name, arguments, _: f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumps(arguments)}<｜tool▁call▁end｜>",
        *V3,
        think=THINK,
        value_mention="<｜tool▁sep｜>",
    ),
    Writer(
        "deepseek_v32",
        named('<｜DSML｜invoke name="', '">\n', dsml("｜DSML｜"), "</｜DSML｜invoke>\n"),
        "<｜DSML｜function_calls>\n",
        "</｜DSML｜function_calls>",
        think=THINK,
        value_mention="</｜DSML｜invoke>",
    ),
    Writer(
        "deepseek_v4",
        named('<｜DSML｜invoke name="', '">\n', dsml("｜DSML｜"), "</｜DSML｜invoke>\n"),
        "<｜DSML｜tool_calls>\n",
        "</｜DSML｜tool_calls>",
        think=THINK,
        value_mention="</｜DSML｜invoke>",
    ),
    Writer(
        "deepseek_v41",
        named('<｜DSML｜ invoke name="', '">\n', dsml("｜DSML｜", " "), "</｜DSML｜ invoke>\n"),
        "<｜DSML｜ calls>\n",
        "</｜DSML｜ calls>",
        think=THINK,
        value_mention="</｜DSML｜ invoke>",
    ),
    Writer(
        "gigachat35",
        named('<｜GCML｜invoke name="', '">\n', dsml("｜GCML｜"), "</｜GCML｜invoke>\n"),
        "<｜GCML｜tool_calls>\n",
        "</｜GCML｜tool_calls>",
        think=THINK,
    ),
    Writer("glm45", named("<tool_call>", "\n", GLM, "</tool_call>"), between="\n", **QWEN_KIN),
    Writer("glm47", named("<tool_call>", "", GLM_TIGHT, "</tool_call>"), **QWEN_KIN),
    Writer("ling3", named("<tool_call>", "", GLM_TIGHT, "</tool_call>"), **QWEN_KIN),
    Writer("poolside_v1", named("<tool_call>", "\n", GLM, "</tool_call>"), **QWEN_KIN),
    Writer("spark25", named("<tool_call>", "\n", GLM, "</tool_call>"), **HERMES_KIN),
    Writer("iquest_q1", named("<iquest_tool_call>", "", GLM_TIGHT, "</iquest_tool_call>"), think=THINK),
    hunyuan("hy_v3", "<tool_sep>\n", "\n"),
    hunyuan("hy_v4"),
    hunyuan("hy_v4", suffix=":6124c78e"),
    Writer(
        "k2_horizon",
        named("<ifm|tool_call>", "", IFM, "</ifm|tool_call>"),
        "<ifm|tool_calls>",
        "</ifm|tool_calls>",
        think=("<ifm|think>", "</ifm|think>"),
        opened="<ifm|think>",
        closed="<ifm|think></ifm|think>",
    ),
    Writer("telechat4", named("<tool_call>", "", PARAM, "</tool_call>"), **QWEN_KIN),
    Writer("xing4", HERMES, **QWEN_KIN),
    Writer(
        "kimi_k2",
        lambda name, arguments, index: (
            f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{dumps(arguments)}<|tool_call_end|>"
        ),
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        think=THINK,
        value_mention="<|tool_call_end|>",
    ),
    Writer(
        "kimi_k3",
        kimi_k3,
        "<|open|>tools<|sep|>",
        "<|close|>tools<|sep|>",
        think=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        opened="<|open|>think<|sep|>",
        closed="<|open|>think<|sep|><|close|>think<|sep|>",
        content=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ),
    Writer(
        "minimax_m2",
        invokes(),
        "<minimax:tool_call>\n",
        "</minimax:tool_call>",
        think=THINK,
        opener_mention="<minimax:tool_call>",
        value_mention="</minimax:tool_call>",
    ),
    Writer(
        "minimax_m3",
        named(f'{M3}<invoke name="', '">', nested(M3), f"{M3}</invoke>\n"),
        f"{M3}<tool_call>\n",
        f"{M3}</tool_call>",
        think=("<mm:think>", "</mm:think>"),
        opened="<mm:think>",
        closed="<mm:think></mm:think>",
    ),
    Writer("dots", invokes(), "<dots_function_call>\n", "</dots_function_call>", opener_mention="<dots_function_call>"),
    Writer("step3", step3, "<｜tool_calls_begin｜>\n", "<｜tool_calls_end｜>", think=THINK),
    Writer("minicpm5", minicpm5, think=THINK, value_mention="</function>"),
    Writer(
        "mistral",
        lambda name, arguments, _: f"[TOOL_CALLS]{name}[ARGS]{dumps(arguments)}",
        think=("[THINK]", "[/THINK]"),
        opened="[THINK]",
        closed="[THINK][/THINK]",
        opener_mention="[TOOL_CALLS]",
        value_mention="[TOOL_CALLS]",
    ),
    Writer("pythonic", python_call, "[", "]", ", ", after_text=False, value_mention=")]"),
    Writer("llama4_pythonic", python_call, "<|python_start|>[", "]<|python_end|>", ", ", value_mention=")]"),
    Writer(
        "lfm2",
        python_call,
        "<|tool_call_start|>[",
        "]<|tool_call_end|>",
        ", ",
        think=THINK,
        value_mention="<|tool_call_end|>",
    ),
    Writer(
        "olmo3",
        python_call,
        "<function_calls>",
        "</function_calls>",
        "\n",
        think=THINK,
        value_mention="</function_calls>",
    ),
    Writer("llama3_json", parameters_obj, "", "", "; ", after_text=False, value_mention="; {"),
    Writer(
        "gemma4",
        gemma_call("<|tool_call>", '<|"|>', "<tool_call|>"),
        think=("<|channel>thought\n", "<channel|>"),
        opened="<|channel>thought\n",
        closed="<|channel>thought\n<channel|>",
        opener_mention="<|tool_call>",
        value_mention="<tool_call|>",
    ),
    Writer(
        "functiongemma",
        gemma_call("<start_function_call>", "<escape>", "<end_function_call>"),
        opener_mention="<start_function_call>",
        value_mention="<end_function_call>",
    ),
    Writer(
        "plamo3",
        plamo,
        "<|plamo:begin_tool_requests:plamo|>",
        "<|plamo:end_tool_requests:plamo|>",
        think=("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
        opened="<|plamo:begin_think:plamo|>",
        closed="<|plamo:begin_think:plamo|><|plamo:end_think:plamo|>",
    ),
    Writer(
        "solar",
        lambda name, arguments, index: (
            f"<|tool_call:begin|>id{index}<|tool_call:name|>{name}<|tool_call:args|>{dumps(arguments)}<|tool_call:end|>"
        ),
        think=("<|think|>", "<|end|>"),
        opened="<|think|>",
        closed="<|think|><|end|>",
        opener_mention="<|tool_call:begin|>",
    ),
    Writer(
        "functionary_v31",
        named("<function=", ">", dumps, "</function>"),
        opener_mention="<function=",
        value_mention="</function>",
    ),
    Writer(
        "inkling",
        lambda name, arguments, _: (
            f'<|message_model|><|content_invoke_tool_json|>{{"name":"{name}","args":{dumps(arguments)}}}<|end_message|>'
        ),
        think=("<|content_thinking|>", "<|end_message|>"),
        opened="<|message_model|><|content_thinking|>",
        closed="<|message_model|>",
        content=("<|message_model|><|content_text|>", "<|end_message|>"),
    ),
    Writer(
        "gpt_oss",
        harmony,
        think=("<|channel|>analysis<|message|>", "<|end|>"),
        opened="<|start|>assistant<|channel|>analysis<|message|>",
        closed="<|start|>assistant",
        content=("<|start|>assistant<|channel|>final<|message|>", "<|return|>"),
        value_mention="<|channel|>final",
        more=tuple(harmony_messages()),
    ),
    Writer(
        "beam",
        beam,
        think=("<|channel|>analysis<|message|>", "<|end|>"),
        opened="<|start|>assistant<|channel|>analysis<|message|>",
        closed="<|start|>assistant",
        content=("<|start|>assistant<|channel|>final<|message|>", "<|return|>"),
        value_mention="</rfl:parameter>",
    ),
    Writer(
        "muse",
        muse,
        think=(" to=self<|message|>", "<|eom|>"),
        opened="<|start|>assistant to=self<|message|>",
        closed="<|start|>assistant",
        content=("<|start|>assistant to=user<|message|>", "<|eot|>"),
        value_mention="</atem:parameter>",
        text_before_only=True,
        more=tuple(muse_messages()),
    ),
    Writer(
        "minimax_m2_append_think",
        invokes(),
        "<minimax:tool_call>\n",
        "</minimax:tool_call>",
        opener_mention="<minimax:tool_call>",
        value_mention="</minimax:tool_call>",
        prepended="<think>",
        more=(("thinks", "plan it</think>Hi.", {"content": "plan it</think>Hi."}),),
    ),
    Writer("functionary_v32", more=tuple(functionary_parts())),
    Writer("kimi_v1", think=("◁think▷", "◁/think▷"), opened="◁think▷", closed="◁think▷◁/think▷"),
    Writer("holo2", think=THINK),
    Writer(
        "granite_phrases",
        think=("Here is my thought process:\n", "\nHere is my response:\n"),
        opened="Here is my thought process:",
        closed="Here is my response:",
    ),
    Writer("identity"),
)


PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
        "options": {
            "type": "object",
            "properties": {
                "unit": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "depth": {"type": "integer"},
            },
        },
    },
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]
NESTED = {"city": "Zürich 東京 🚀", "options": {"unit": "°C", "tags": ["a b", "c"], "depth": 2}, "exact": True}


def cases(writer: Writer) -> Iterator[dict[str, Any]]:
    """The vectors of one family."""

    def case(
        suffix: str,
        output: str,
        *,
        content: str | None = None,
        reasoning: str | None = None,
        calls: tuple[tuple[str, Arguments], ...] = (),
        tail: str | None = writer.closed if writer.think else "",
        **more: Any,
    ) -> dict[str, Any]:
        finish = more.get("finish", "stop")
        return {
            "id": f"family-{writer.format}-{suffix}",
            "format": writer.format,
            "tools": TOOLS,
            "options": {},
            "prompt_tail": tail,
            "output": output,
            "finish": finish,
            "expect": {
                "reasoning": reasoning,
                "content": writer.prepended + content if content else None,
                "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls],
                "finish_reason": "tool_calls" if calls and finish == "stop" else finish,
            },
            "compare": "exact",
            **more,
        }

    begin, end = writer.content
    if begin:
        # Where content has a frame of its own, the whitespace around it touches a marker.
        yield case("framed", f"{begin}Hi there.{end}", content="Hi there.")
    yield case("plain", "Hello, world.\n\n  Bye <b> [1] {2}", content="Hello, world.\n\n  Bye <b> [1] {2}")
    yield case("cut-text", "Half a sen", content="Half a sen", finish="length")
    if writer.think:
        opened, ended = writer.think
        yield case("thinks", f"plan it{ended}{begin}Hi.{end}", reasoning="plan it", content="Hi.", tail=writer.opened)
        yield case("opens", f"{opened}plan it{ended}{begin}Hi.{end}", reasoning="plan it", content="Hi.", tail=None)
        yield case("cut-thinking", "plan it and", reasoning="plan it and", tail=writer.opened, finish="length")
    for suffix, output, expected in writer.more:
        yield case(suffix, output, **expected)
    if writer.call is None:
        return
    paris = ("get_weather", {"city": "Paris", "days": 3})
    clock: tuple[str, Arguments] = ("get_time", {})
    yield case("call", writer.calls(paris), calls=(paris,))
    yield case("no-arguments", writer.calls(clock), calls=(clock,))
    nested_call = ("get_weather", NESTED)
    yield case("nested", writer.calls(nested_call), calls=(nested_call,))
    if not writer.single:
        yield case("two-calls", writer.calls(paris, clock), calls=(paris, clock))
    if writer.think:
        yield case(
            "thinks-calls",
            f"plan it{writer.think[1]}{writer.calls(paris)}",
            reasoning="plan it",
            calls=(paris,),
            tail=writer.opened,
        )
    if writer.after_text:
        yield case("text-call", f"Look: {writer.calls(paris)}", content="Look:", calls=(paris,))
        if not writer.single and not writer.text_before_only:
            yield case("text-around", f"One.{writer.calls(paris)}Two.", content="One.Two.", calls=(paris,))
    if writer.opener_mention:
        prose = f"Write {writer.opener_mention} to call, then wait."
        yield case("mention", prose, content=prose)
    if writer.value_mention:
        holds = ("get_weather", {"city": f"a {writer.value_mention} b", "days": 1})
        yield case("marker-in-value", writer.calls(holds), calls=(holds,))


def main() -> None:
    VECTORS.mkdir(parents=True, exist_ok=True)
    for old in VECTORS.glob("*.jsonl"):
        old.unlink()
    for writer in WRITERS:
        lines = [json.dumps(case, ensure_ascii=False) for case in cases(writer)]
        name = re.sub(r"[^\w+]+", "_", writer.format).strip("_")
        (VECTORS / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
