"""DeepSeek R1: `<think>` reasoning, and the fenced JSON calls of DeepSeek V3.

Markers: the chat template of deepseek-ai/DeepSeek-R1-0528 (read 2026-11). All are added tokens; the
bars are U+FF5C, the low blocks U+2581.
"""

from __future__ import annotations

from typing import Final

from ..arguments.json_object import JsonObject
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Lit, Maybe, Name, here

__all__ = ["DEEPSEEK_R1"]

_FENCE: Final = "```"
_CALL_END: Final = "<｜tool▁call▁end｜>"
_CALLS_END: Final = "<｜tool▁calls▁end｜>"

_CALL: Final = (
    Lit("<｜tool▁call▁begin｜>"),
    Blanks(),
    Maybe((Lit("function"), Blanks(), Lit("<｜tool▁sep｜>"), Blanks())),
    Name(),
    Blanks(),
    Lit(_FENCE + "json"),
)

DEEPSEEK_R1: Final = Format(
    name="deepseek_r1",
    source="chat template of deepseek-ai/DeepSeek-R1-0528 (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), opens_by_default=True, interleaved=True),
    tools=ToolSyntax(
        arguments=JsonObject(),
        wrappers=("<｜tool▁calls▁begin｜>",),
        inner=(_CALL,),
        bare=(_CALL,),
        closers=((Lit(_CALLS_END),),),
        frames=(here(_FENCE), (Lit(_CALL_END),)),
        ends_reasoning=True,
    ),
    swallowed=("<｜end▁of▁sentence｜>",),
    turns=("<｜User｜>", "<｜Assistant｜>"),
    constraint="deepseek_v3",
    models=("DeepSeek-R1", "DeepSeek-R1-0528"),
)
