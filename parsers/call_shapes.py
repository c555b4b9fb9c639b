"""How families write a call, and where a prompt leaves the reasoning: what `constraint.py` needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .errors import FormatDefinitionError

__all__ = ["CALL_SHAPES", "FORCED_JSON", "CallShape", "ReasoningShape"]


@dataclass(frozen=True, slots=True)
class CallShape:
    """How a family writes one call, as far as a grammar needs to know.

    Args:
        opener: what ends free text: calls begin with it. "" = they cannot follow free text.
        begin: text before the arguments; `{name}` stands for the function's name.
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


CALL_SHAPES: Final[Mapping[str, CallShape]] = {
    # The chat templates of Qwen2.5, Qwen3 and Hermes 2 Pro print exactly this text for a call in the history
    # (https://huggingface.co/Qwen/Qwen3-8B, tokenizer_config.json; NousResearch/Hermes-2-Pro-Llama-3-8B, README).
    "hermes": CallShape(
        opener="<tool_call>",
        begin='<tool_call>\n{"name": "{name}", "arguments": ',
        end="}\n</tool_call>",
        closer="</tool_call>",
        markers=("<tool_call>", "</tool_call>"),
    ),
    # https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct, chat_template.jinja.
    "qwen_xml": CallShape(
        opener="<tool_call>",
        begin="<tool_call>\n<function={name}>\n",
        end="\n</function>\n</tool_call>",
        style="qwen_xml",
        closer="</tool_call>",
        mention="<function={name}>",
        markers=("<tool_call>", "</tool_call>"),
    ),
    # https://huggingface.co/deepseek-ai/DeepSeek-R1-0528, chat template in tokenizer_config.json.
    "deepseek_v3": CallShape(
        opener="<｜tool▁calls▁begin｜>",
        begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
        end="\n```<｜tool▁call▁end｜>",
        closer="<｜tool▁calls▁end｜>",
        mention="<｜tool▁sep｜>{name}\n",
        before="<｜tool▁calls▁begin｜>",
        after="<｜tool▁calls▁end｜>",
        markers=(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
        ),
    ),
}

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
    """

    start: str
    end: str
    state: Literal["open", "closed", "unknown"]
    bounds: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not self.start or not self.end:
            raise FormatDefinitionError("reasoning shape: both markers must have text")
        if self.bounds is not None and not 0 <= self.bounds[0] <= self.bounds[1]:
            raise FormatDefinitionError(f"reasoning shape: bounds {self.bounds} are not 0 <= fewest <= most")
