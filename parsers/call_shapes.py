"""How families write a call, and where a prompt leaves the reasoning: what `constraint.py` needs to know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .errors import FormatDefinitionError

__all__ = ["CALL_SHAPES", "FORCED_JSON", "CallShape", "ReasoningShape"]


_MARKER: Final = re.compile(r"]<]minimax\[>\[|<[^<>{=\]]*>|\[[A-Z_]+\]|functools|<function=")


@dataclass(frozen=True, slots=True)
class CallShape:
    """How a family writes one call, as far as a grammar needs to know.

    Args:
        opener: what ends free text: calls begin with it. "" = they cannot follow free text.
        begin: text before the arguments; `{name}` stands for the function's name, `{number}`, if there, for digits.
        end: text after the arguments.
        style: how the arguments are written; a `style` of xgrammar's `json_schema` format.
        closer: what ends a call, or the calls of one wrapper, whose inside is not held to anything.
        mention: how a call names its function; `{name}` as in `begin`.
        separator: text between two calls.
        before, after: a wrapper around all calls.
        markers: the spellings in it that are one token in the family's tokenizers.
    """

    opener: str
    begin: str
    end: str
    style: str = "json"
    closer: str = ""
    mention: str = '"{name}"'
    separator: str = "\n"
    before: str = ""
    after: str = ""
    markers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.before or self.begin).startswith(self.opener) or "{name}" not in self.begin:
            raise FormatDefinitionError(
                f"call shape: begin {self.begin!r} must start with {self.opener!r} and hold {{name}}"
            )


def _tags(name: str, begin: str, end: str, **more: str) -> dict[str, CallShape]:
    """Each call between markers of its own."""
    opener = _opener(begin)
    closer = more.pop("closer", end.lstrip("}\n"))
    return {name: CallShape(opener=opener, begin=begin, end=end, closer=closer, markers=_markers(begin, end), **more)}


def _wrapped(
    name: str, before: str, begin: str, end: str, after: str, separator: str = "", **more: str
) -> dict[str, CallShape]:
    """Calls inside one wrapper."""
    return {
        name: CallShape(
            opener=before.rstrip("\n"),
            begin=begin,
            end=end,
            closer=after.lstrip("\n"),
            separator=separator,
            before=before,
            after=after,
            markers=_markers(before, begin, end, after),
            **more,
        )
    }


def _lists(
    name: str, opener: str = "", closer: str = "", *, begin: str = '{"name": "{name}", "arguments": '
) -> dict[str, CallShape]:
    """A JSON array of call objects."""
    return {
        name: CallShape(
            opener=opener,
            begin=begin,
            end="}",
            closer=closer,
            separator=", ",
            before=f"{opener}[",
            after=f"]{closer}",
            markers=_markers(opener, closer),
        )
    }


def _invokes(name: str, opener: str, closer: str, mark: str = "", *, style: str) -> dict[str, CallShape]:
    """`<invoke name="N">` elements inside a wrapper."""
    return _wrapped(
        name,
        f"{opener}\n",
        f'<{mark}invoke name="{{name}}">\n',
        f"\n</{mark}invoke>",
        f"\n{closer}",
        "\n",
        style=style,
        mention='invoke name="{name}"',
    )


def _opener(begin: str) -> str:
    """The marker that a call begins with."""
    match = _MARKER.match(begin)
    return match[0] if match else ""


def _markers(*texts: str) -> tuple[str, ...]:
    """What may be one token in the family's tokenizers; `bind_markers` takes those that are."""
    return tuple(dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text)))


CALL_SHAPES: Final[Mapping[str, CallShape]] = {
    **_tags("hermes", '<tool_call>\n{"name": "{name}", "arguments": ', "}\n</tool_call>"),
    **_tags("longcat", '<longcat_tool_call>{"name": "{name}", "arguments": ', "}</longcat_tool_call>"),
    **_tags("granite_20b_fc", '<function_call> {"name": "{name}", "arguments": ', "}", separator=""),
    **_tags(
        "internlm2", '<|action_start|><|plugin|>\n{"name": "{name}", "parameters": ', "}<|action_end|>", separator=""
    ),
    **_tags("functionary_v31", "<function={name}>", "</function>", separator="", mention="<function={name}>"),
    **_tags("mistral", "[TOOL_CALLS]{name}[ARGS]", "", separator="", mention="{name}[ARGS]"),
    **_tags(
        "solar",
        "<|tool_call:begin|>{number}<|tool_call:name|>{name}<|tool_call:args|>",
        "<|tool_call:end|>",
        separator="",
        mention="<|tool_call:name|>{name}<",
    ),
    **_tags(
        "inkling",
        '<|message_model|><|content_invoke_tool_json|>{"name":"{name}","args":',
        "}<|end_message|>",
        separator="",
    ),
    **_tags("gemma4", "<|tool_call>call:{name}", "<tool_call|>", style="gemma", separator="", mention="call:{name}{"),
    **_lists("tool_calls_list", "<tool_calls>", "</tool_calls>"),
    **_lists("granite", "<|tool_call|>"),
    **_lists("functools", "functools"),
    **_lists("nemotron_nano_v2", "<TOOLCALL>", "</TOOLCALL>"),
    **_lists("xlam"),
    **_lists("apertus", "<|tools_prefix|>", "<|tools_suffix|>", begin='{"{name}": '),
    **_lists(
        "cohere",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        begin='{"tool_call_id": "{number}", "tool_name": "{name}", "parameters": ',
    ),
    "llama3_json": CallShape(opener="", begin='{"name": "{name}", "parameters": ', end="}", separator="; "),
    "functionary_v32": CallShape(opener="", begin="{name}\n", end="", separator="\n>>>"),
    **_wrapped("minimax_m1", "<tool_calls>\n", '{"name": "{name}", "arguments": ', "}", "\n</tool_calls>", "\n"),
    **_wrapped(
        "deepseek_v3",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "\n",
        mention="<｜tool▁sep｜>{name}\n",
    ),
    **_wrapped(
        "deepseek_v31",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        mention="<｜tool▁call▁begin｜>{name}<",
    ),
    **_wrapped(
        "kimi",
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
        mention="functions.{name}:",
    ),
    **_wrapped(
        "plamo3",
        "<|plamo:begin_tool_requests:plamo|>",
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        "<|plamo:end_tool_requests:plamo|>",
        mention="<|plamo:begin_tool_name:plamo|>{name}<",
    ),
    **_tags(
        "qwen_xml",
        "<tool_call>\n<function={name}>\n",
        "\n</function>\n</tool_call>",
        style="qwen_xml",
        closer="</tool_call>",
        mention="<function={name}>",
    ),
    **_tags(
        "seed_oss",
        "<seed:tool_call>\n<function={name}>\n",
        "\n</function>\n</seed:tool_call>",
        style="qwen_xml",
        closer="</seed:tool_call>",
        mention="<function={name}>",
    ),
    **_invokes("minimax", "<minimax:tool_call>", "</minimax:tool_call>", style="minimax_xml"),
    **_invokes("dots", "<dots_function_call>", "</dots_function_call>", style="minimax_xml"),
    **_invokes("dsml_v32", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", style="deepseek_xml"),
    **_invokes("dsml_v4", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", style="deepseek_xml"),
    **_invokes("dsml_v41", "<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", style="deepseek_v4_1_xml"),
    **_tags("glm", "<tool_call>{name}\n", "\n</tool_call>", style="glm_xml", mention="<tool_call>{name}\n"),
    **_tags(
        "glm_tight", "<tool_call>{name}", "</tool_call>", style="glm_xml", separator="", mention="<tool_call>{name}<"
    ),
    **_tags(
        "iquest_q1",
        "<iquest_tool_call>{name}",
        "</iquest_tool_call>",
        style="glm_xml",
        separator="",
        mention="<iquest_tool_call>{name}<",
    ),
    **_wrapped(
        "hy_v3",
        "<tool_calls>\n",
        "<tool_call>{name}<tool_sep>\n",
        "\n</tool_call>",
        "\n</tool_calls>",
        "\n",
        style="glm_xml",
        mention="<tool_call>{name}<",
    ),
    **_wrapped(
        "hy_v4",
        "<tool_calls>",
        "<tool_call>{name}",
        "</tool_call>",
        "</tool_calls>",
        style="glm_xml",
        mention="<tool_call>{name}<",
    ),
    **_wrapped(
        "kimi_k3",
        "<|open|>tools<|sep|>",
        '<|open|>call tool="{name}" index="{number}"<|sep|>',
        "<|close|>call<|sep|>",
        "<|close|>tools<|sep|>",
        style="kimi_k3_xml",
        mention='call tool="{name}"',
    ),
    **_wrapped(
        "minimax_m3",
        "]<]minimax[>[<tool_call>\n",
        ']<]minimax[>[<invoke name="{name}">',
        "]<]minimax[>[</invoke>\n",
        "]<]minimax[>[</tool_call>",
        style="minimax_m3_xml",
        mention='invoke name="{name}"',
    ),
}
"""How the families write calls; each text is what the chat templates print for a call in the history, whose sources
stand in the formats' tables. A family that is missing takes `FORCED_JSON` where a call is required."""

FORCED_JSON: Final = CallShape(
    opener="", begin='{"name": "{name}", "parameters": ', end="}", separator=", ", before="[", after="]"
)
"""The form of `required` where a family has no shape of its own: a list of call objects (PROTOCOL 5)."""


@dataclass(frozen=True, slots=True)
class ReasoningShape:
    """A family's reasoning markers, and where this prompt left the model.

    Args:
        start: marker that opens reasoning.
        end: marker that ends it.
        state: `open`: the answer begins inside reasoning; `closed`: the prompt has ended it;
            `unknown`: it begins in content, where the model may still open reasoning.
        bounds: fewest and most characters of reasoning that the prompt opened; None = as the model likes.
        budget: most tokens of the first reasoning; None = as the model likes. It then ends where it is.
    """

    start: str
    end: str
    state: Literal["open", "closed", "unknown"]
    bounds: tuple[int, int] | None = None
    budget: int | None = None

    @property
    def held(self) -> bool:
        """There is something to hold of the reasoning itself, whatever follows."""
        return self.state != "closed" and (
            self.budget is not None or (self.bounds is not None and self.state == "open")
        )

    def __post_init__(self) -> None:
        if not self.start or not self.end:
            raise FormatDefinitionError("reasoning shape: both markers must have text")
        if self.bounds is not None and not 0 <= self.bounds[0] <= self.bounds[1]:
            raise FormatDefinitionError(f"reasoning shape: bounds {self.bounds} are not 0 <= fewest <= most")
