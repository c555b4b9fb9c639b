"""DeepSeek before DSML: `<think>` reasoning, and calls between U+FF5C bars.

Markers: the chat templates of deepseek-ai/DeepSeek-R1-0528, DeepSeek-V3-0324 and DeepSeek-V3.1 (read
2026-11). All are added tokens; the bars are U+FF5C, the low blocks U+2581.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..arguments.json_object import JsonObject
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Ahead, Blanks, Lit, Maybe, Name, here

__all__ = ["DEEPSEEK_END", "DEEPSEEK_R1", "DEEPSEEK_TURNS", "DEEPSEEK_V3", "DEEPSEEK_V31"]

DEEPSEEK_END: Final = ("<｜end▁of▁sentence｜>",)
DEEPSEEK_TURNS: Final = ("<｜User｜>", "<｜Assistant｜>")

_BEGIN: Final = Lit("<｜tool▁call▁begin｜>")
_SEP: Final = Lit("<｜tool▁sep｜>")

# V3 and R1: function<sep>NAME, then fenced JSON. V3.1: NAME<sep>{json}. Models trained on the one
# write the other at times (Rapid-MLX issue 795), so both headers are read in both families.
_V3: Final = (_BEGIN, Blanks(), Lit("function"), Blanks(), _SEP, Blanks(), Name(), Blanks(), Lit("```json"))
_V3_BARE: Final = (_BEGIN, Blanks(), Name(), Blanks(), Lit("```json"))
_V31: Final = (
    _BEGIN,
    Blanks(),
    Name(),
    Blanks(),
    _SEP,
    Blanks(),
    Maybe((Lit("```json"),)),
    Blanks(),
    Ahead(((Lit("{"),),)),
)

# The family's own form first.
_CALLS: Final = ToolSyntax(
    arguments=JsonObject(),
    wrappers=("<｜tool▁calls▁begin｜>",),
    inner=(_V3, _V3_BARE, _V31),
    bare=(_V3, _V3_BARE, _V31),
    closers=((Lit("<｜tool▁calls▁end｜>"),),),
    frames=(here("```"), (Lit("<｜tool▁call▁end｜>"),)),
    ends_reasoning=True,
)

_CALLS_V31: Final = replace(_CALLS, inner=(_V31, _V3, _V3_BARE), bare=(_V31, _V3, _V3_BARE))

_THINKING: Final = ("thinking", "enable_thinking")

DEEPSEEK_R1: Final = Format(
    name="deepseek_r1",
    source="chat template of deepseek-ai/DeepSeek-R1-0528 (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), opens_by_default=True, interleaved=True),
    tools=_CALLS,
    swallowed=DEEPSEEK_END,
    turns=DEEPSEEK_TURNS,
    constraint="deepseek_v3",
    models=("DeepSeek-R1", "DeepSeek-R1-0528"),
)

DEEPSEEK_V3: Final = Format(
    name="deepseek_v3",
    source="chat template of deepseek-ai/DeepSeek-V3-0324 (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), interleaved=True, switches=_THINKING),
    tools=_CALLS,
    swallowed=DEEPSEEK_END,
    turns=DEEPSEEK_TURNS,
    constraint="deepseek_v3",
    models=("DeepSeek-V3", "DeepSeek-V3-0324"),
)

DEEPSEEK_V31: Final = Format(
    name="deepseek_v31",
    source="chat template of deepseek-ai/DeepSeek-V3.1 (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), interleaved=True, switches=_THINKING),
    tools=_CALLS_V31,
    swallowed=DEEPSEEK_END,
    turns=DEEPSEEK_TURNS,
    constraint="deepseek_v31",
    models=("DeepSeek-V3.1",),
)
