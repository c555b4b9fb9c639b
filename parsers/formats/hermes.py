"""Hermes and all who write its calls (Qwen 2.5, Qwen 3): a JSON call object in `<tool_call>`.

Markers: the function-calling prompt of NousResearch/Hermes-2-Pro-Mistral-7B and the chat template
of Qwen/Qwen2.5-7B-Instruct (read 2026-11). Hermes 4 reasons in `<think>`.
"""

from __future__ import annotations

from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..format import Format, ToolSyntax
from ..header import Blanks, Lit, Maybe, here
from .qwen import CHATML_END, CHATML_TURNS, THINK

__all__ = ["HERMES"]

HERMES: Final = Format(
    name="hermes",
    source="function-calling prompt of NousResearch/Hermes-2-Pro-Mistral-7B (2026-11)",
    reasoning=THINK,
    tools=ToolSyntax(
        arguments=JsonCall(),
        entries=((Lit("<tool_call>"), Blanks(), Maybe((Lit("["), Blanks())), CALL_OBJECT_AHEAD),),
        inner=((CALL_OBJECT_AHEAD,), here(",", Blanks(), CALL_OBJECT_AHEAD)),
        closers=((Lit("</tool_call>"),), (*here("]"), Blanks(), Lit("</tool_call>"))),
        # A brace too many is the commonest slip of small models; it is no text for the user.
        leftovers=("}",),
        empty=(("<tool_call>", "</tool_call>"),),
        ends_reasoning=True,
    ),
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    constraint="hermes",
    text_markers=True,
    models=("Hermes 2 Pro", "Hermes 3", "Hermes 4", "Qwen2.5", "Qwen3"),
)
