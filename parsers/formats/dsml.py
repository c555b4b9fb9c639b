"""DSML: tagged calls of DeepSeek V3.2 and later, and of GigaChat 3.5 with its own prefix.

Markers: the encoders that DeepSeek ships with DeepSeek-V3.2 and V4 instead of a chat template (read
2026-11). `｜DSML｜` is one added token in V4; the bars are U+FF5C. `string="true"` says that a value is
text, otherwise it is JSON. The body of an invoke may also be one JSON object (FORMATS 5).
"""

from __future__ import annotations

from typing import Final

from ..arguments.tagged import Tagged
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Lit, Maybe, Name, Until
from .deepseek import DEEPSEEK_END, DEEPSEEK_TURNS

__all__ = ["DEEPSEEK_V32", "DEEPSEEK_V4", "DEEPSEEK_V41", "GIGACHAT35"]


def _dsml(mark: str, wrapper: str, *others: str, space: str = "", ends: tuple[str, ...] = DEEPSEEK_END) -> ToolSyntax:
    """The family's calls.

    Args:
        mark: what every tag begins with, behind the bracket.
        wrapper, others: names of the wrapper's tag; the first is the one the template writes.
        space: what stands before every tag's name (V4.1 writes a blank).
    """
    opener = f"<{mark}{space}"
    closer = f"</{mark}{space}"
    wrappers = (wrapper, *others)
    invoke = (Lit(f'{opener}invoke name="'), Blanks(), Name(), Blanks(), Lit('"'), Blanks(), Lit(">"))
    wrapper_closers = tuple(f"{closer}{name}>" for name in wrappers)
    return ToolSyntax(
        arguments=Tagged(
            parameter=(
                Lit(f'{opener}parameter name="'),
                Until('"', "key"),
                Blanks(),
                Maybe((Lit('string="'), Until('"', "string"), Blanks())),
                Lit(">"),
            ),
            value_closers=(f"{closer}parameter>",),
            call_closers=(f"{closer}invoke>",),
            wrapper_closers=wrapper_closers,
            call_openers=(f"{opener}invoke", *(f"{opener}{name}>" for name in wrappers)),
            swallowed=ends,
            typed_by="string",
            json_body=True,
        ),
        wrappers=tuple(f"{opener}{name}>" for name in wrappers),
        inner=(invoke,),
        bare=(invoke,),
        closers=(
            *((Lit(spelling),) for spelling in wrapper_closers),
            (Lit(f"{closer}invoke>"),),
        ),
        ends_reasoning=True,
    )


_SWITCHES: Final = ("thinking", "enable_thinking", "reasoning_effort")

DEEPSEEK_V32: Final = Format(
    name="deepseek_v32",
    source="encoding_dsv32.py of deepseek-ai/DeepSeek-V3.2 (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("<think>",), ends=("</think>",), interleaved=True, switches=("thinking", "enable_thinking")
    ),
    tools=_dsml("｜DSML｜", "function_calls"),
    swallowed=DEEPSEEK_END,
    turns=DEEPSEEK_TURNS,
    constraint="dsml_v32",
    models=("DeepSeek-V3.2",),
)

DEEPSEEK_V4: Final = Format(
    name="deepseek_v4",
    source="encoder of deepseek-ai/DeepSeek-V4 (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("<think>",), ends=("</think>",), opens_by_default=True, interleaved=True, switches=_SWITCHES
    ),
    tools=_dsml("｜DSML｜", "tool_calls", "toolcalls", "tool"),
    swallowed=DEEPSEEK_END,
    turns=DEEPSEEK_TURNS,
    constraint="dsml_v4",
    models=("DeepSeek-V4",),
)

DEEPSEEK_V41: Final = Format(
    name="deepseek_v41",
    source="encoder of deepseek-ai/DeepSeek-V4.1 (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("<think>",), ends=("</think>",), opens_by_default=True, interleaved=True, switches=_SWITCHES
    ),
    tools=_dsml("｜DSML｜", "calls", space=" "),
    swallowed=DEEPSEEK_END,
    turns=DEEPSEEK_TURNS,
    constraint="dsml_v41",
    models=("DeepSeek-V4.1",),
)

GIGACHAT35: Final = Format(
    name="gigachat35",
    source="GigaChat 3.5 as SGLang 0.5.23 reads it",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",)),
    tools=_dsml("｜GCML｜", "tool_calls", ends=("</s>",)),
    swallowed=("</s>",),
    turns=("<|role_sep|>",),
    models=("GigaChat 3.5",),
)
