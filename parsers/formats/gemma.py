"""Gemma 4 and FunctionGemma: `call:NAME{key:value}` with strings between marks of their own.

Sources: the chat templates of google/gemma-4-27b-it and google/functiongemma-270m-it (read 2026-11).
"""

from __future__ import annotations

from typing import Final

from ..arguments.literals import Literals, Quote
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Either, Lit, Name

__all__ = ["FUNCTIONGEMMA", "GEMMA4"]

_BRACKET: Final = Either(((Lit("{"),), (Lit("("),)))
_GEMMA4_CALL: Final = (Blanks(), Either(((Lit("call:"), Name("name")), (Name("name"),))), Blanks(), _BRACKET)

GEMMA4: Final = Format(
    name="gemma4",
    constraint="gemma4",
    source="chat template of google/gemma-4-27b-it (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("<|channel>thought\n", "<|channel>thought"),
        ends=("<channel|>",),
        interleaved=True,
    ),
    tools=ToolSyntax(
        arguments=Literals(closers="})", separator=":", quotes=(Quote('<|"|>'),), bare_strings=True),
        entries=((Lit("<|tool_call>"), *_GEMMA4_CALL),),
        closers=((Lit("<tool_call|>"),),),
        empty=(("<|tool_call>", "<tool_call|>"),),
        ends_reasoning=True,
    ),
    swallowed=("<turn|>", "<eos>", "<|tool_response>"),
    turns=("<|turn>", "<tool_response|>"),
    models=("Gemma 4",),
)

FUNCTIONGEMMA: Final = Format(
    name="functiongemma",
    source="chat template of google/functiongemma-270m-it (2026-11)",
    tools=ToolSyntax(
        arguments=Literals(closers="}", separator=":", quotes=(Quote("<escape>", typed=True),), bare_strings=True),
        entries=((Lit("<start_function_call>"), Blanks(), Lit("call:"), Name(), Blanks(), Lit("{")),),
        closers=((Lit("<end_function_call>"),),),
        empty=(("<start_function_call>", "<end_function_call>"),),
    ),
    swallowed=("<end_of_turn>", "<eos>", "<start_function_response>"),
    turns=("<start_of_turn>",),
    models=("FunctionGemma 270M",),
)
