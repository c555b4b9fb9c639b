"""Families that write calls as Python: `[f(a=1), g()]`, with or without markers around.

Sources: the chat templates of meta-llama/Llama-4-Scout-17B-16E-Instruct, LiquidAI/LFM2-1.2B and
allenai/Olmo-3-7B-Think, and the pythonic format of Llama 3.2's prompt guide (read 2026-11).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..arguments.literals import Literals, Quote
from ..format import Format, Opener, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Lit, Name, Pattern, here
from .qwen import CHATML_END, CHATML_TURNS

__all__ = ["LFM2", "LLAMA4_PYTHONIC", "OLMO3", "PYTHON_ARGUMENTS", "PYTHONIC"]

PYTHON_ARGUMENTS: Final = Literals(
    closers=")", separator="=", quotes=(Quote('"', escapes=True), Quote("'", escapes=True))
)

_CALL: Final[Pattern] = (Name(), Blanks(), Lit("("))
_NEXT: Final[Pattern] = (*here(","), Blanks(), *_CALL)
_LIST: Final[Pattern] = (Lit("["), Blanks(), *_CALL)

_PYTHONIC: Final = ToolSyntax(
    arguments=PYTHON_ARGUMENTS,
    unmarked=(_LIST,),
    inner=(_NEXT,),
    closers=((Lit("]"),),),
)

PYTHONIC: Final = Format(
    name="pythonic",
    source="prompt guide of meta-llama/Llama-3.2-3B-Instruct, zero-shot function calling (2026-11)",
    tools=_PYTHONIC,
    swallowed=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    turns=("<|start_header_id|>",),
    text_markers=True,
    models=("Llama 3.2 1B and 3B", "ToolACE"),
)

LLAMA4_PYTHONIC: Final = Format(
    name="llama4_pythonic",
    source="chat template of meta-llama/Llama-4-Scout-17B-16E-Instruct (2026-11)",
    tools=replace(
        _PYTHONIC,
        entries=((Lit("<|python_start|>"), Blanks(), *_LIST),),
        unmarked=(_LIST, Opener((CALL_OBJECT_AHEAD,), JsonCall(), wrapper=False)),
        closers=((Lit("]"),), (Lit("<|python_end|>"),)),
    ),
    swallowed=("<|python_start|>", "<|python_end|>", "<|eot|>", "<|eom|>", "<|end_of_text|>"),
    turns=("<|header_start|>",),
    models=("Llama 4",),
)

LFM2: Final = Format(
    name="lfm2",
    source="chat template of LiquidAI/LFM2-1.2B (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",)),
    tools=ToolSyntax(
        arguments=PYTHON_ARGUMENTS,
        entries=(
            (Lit("<|tool_call_start|>"), Blanks(), *_LIST),
            Opener((Lit("<|tool_call_start|>"), Blanks(), Lit("["), Blanks(), CALL_OBJECT_AHEAD), JsonCall()),
        ),
        inner=(_NEXT, Opener((*here(","), Blanks(), CALL_OBJECT_AHEAD), JsonCall())),
        closers=((Lit("<|tool_call_end|>"),), (*here("]"), Blanks(), Lit("<|tool_call_end|>"))),
        leftovers=("]",),
        empty=(("<|tool_call_start|>", "<|tool_call_end|>"),),
        ends_reasoning=True,
    ),
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    models=("LFM2", "LFM2.5"),
)

# One call a line; nothing separates them but the line's end.
OLMO3: Final = Format(
    name="olmo3",
    source="chat template of allenai/Olmo-3-7B-Think (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), opens_by_default=True),
    tools=ToolSyntax(
        arguments=PYTHON_ARGUMENTS,
        entries=((Lit("<function_calls>"), Blanks(), *_CALL),),
        inner=(_CALL, _NEXT),
        closers=((Lit("</function_calls>"),),),
        empty=(("<function_calls>", "</function_calls>"),),
    ),
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    text_markers=True,
    models=("Olmo 3",),
)
