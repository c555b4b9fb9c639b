"""Qwen 3 and kin: `<think>` reasoning, and the XML calls of Qwen3-Coder.

Markers: the chat templates of Qwen/Qwen3-8B and Qwen/Qwen3-Coder-30B-A3B-Instruct on the Hugging
Face hub (read 2026-11). `<think>`, `</think>`, `<tool_call>`, `</tool_call>` are added tokens of the
tokenizer, not flagged special; the inner tags are ordinary text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..arguments.tagged import Tagged
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Lit, Name, Until

__all__ = ["CHATML_END", "CHATML_TURNS", "QWEN3", "QWEN3_CODER", "THINK", "THINK_OPEN", "XML_CALLS", "xml_calls"]

THINK: Final = ReasoningSyntax(
    starts=("<think>",),
    ends=("</think>",),
    interleaved=True,
    switches=("enable_thinking",),
)

THINK_OPEN: Final = replace(THINK, opens_by_default=True)
"""The same, where the output starts inside it unless the prompt says otherwise."""

CHATML_END: Final = ("<|im_end|>", "<|endoftext|>")
CHATML_TURNS: Final = ("<|im_start|>",)

_FUNCTION: Final = (Lit("<function="), Blanks(), Name(), Blanks(), Lit(">"))


def xml_calls(wrapper: str = "tool_call", *, framed: bool = True, ends: tuple[str, ...] = CHATML_END) -> ToolSyntax:
    """The XML calls of Qwen3-Coder, which other families write with another wrapper or framing.

    The template writes one newline after a parameter's opener and one before its closer; only those
    two are framing, and nothing is escaped (vLLM issue 48753, SGLang PR 13411).
    """
    opener, closer = f"<{wrapper}>", f"</{wrapper}>"
    return ToolSyntax(
        arguments=Tagged(
            parameter=(Lit("<parameter="), Until(">", "key")),
            value_closers=("</parameter>",),
            call_closers=("</function>",),
            wrapper_closers=(closer,),
            call_openers=(opener, "<function="),
            swallowed=ends,
            framed=framed,
        ),
        entries=((Lit(opener), Blanks(), *_FUNCTION),),
        inner=(_FUNCTION,),
        bare=(_FUNCTION,),
        closers=((Lit(closer),), (Lit("</function>"),)),
        empty=((opener, closer),),
        ends_reasoning=True,
    )


XML_CALLS: Final = xml_calls()

_SOURCE: Final = "chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct (2026-11)"

QWEN3: Final = Format(
    name="qwen3",
    source="chat template of Qwen/Qwen3-8B (2026-11); calls: " + _SOURCE,
    reasoning=THINK,
    tools=XML_CALLS,
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    constraint="qwen_xml",
    models=("Qwen3", "Qwen3.5"),
)

QWEN3_CODER: Final = Format(
    name="qwen3_coder",
    source=_SOURCE,
    reasoning=THINK,
    tools=XML_CALLS,
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    constraint="qwen_xml",
    models=("Qwen3-Coder", "Qwen3-Next"),
)
