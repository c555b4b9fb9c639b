"""Mistral in all its versions, by what stands behind `[TOOL_CALLS]`.

Markers: mistral-common's instruct tokenizers v2 to v13 (read 2026-11): up to v7 a JSON array of call
objects with the id last; v11 NAME[CALL_ID]ID[ARGS]{...}; v13 NAME[ARGS]{...}, one marker a call.
`[THINK]` and `[/THINK]` are control tokens from v13 on; older fine-tunes write `<think>`.
"""

from __future__ import annotations

from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..arguments.json_object import JsonObject
from ..format import Format, Opener, ReasoningSyntax, ToolSyntax
from ..header import Ahead, Blanks, Either, Lit, Name, Pattern, Until, here

__all__ = ["MISTRAL"]

_MARK: Final = Lit("[TOOL_CALLS]")
_OBJECT: Final = Ahead(((Lit("{"),),))
_NAMED: Final[Pattern] = (
    _MARK,
    Blanks(),
    Name(),
    Blanks(),
    Either(
        (
            (Lit("[CALL_ID]"), Until("[ARGS]", "id")),
            (Lit("[ARGS]"),),
            (_OBJECT,),
        )
    ),
)

MISTRAL: Final = Format(
    name="mistral",
    source="mistral-common 1.13, instruct tokenizers v2 to v13 (2026-11)",
    reasoning=ReasoningSyntax(starts=("[THINK]", "<think>"), ends=("[/THINK]", "</think>"), interleaved=True),
    tools=ToolSyntax(
        arguments=JsonCall(),
        entries=(
            (_MARK, Blanks(), Lit("["), Blanks(), CALL_OBJECT_AHEAD),
            Opener((_MARK, Blanks(), CALL_OBJECT_AHEAD), JsonCall(), wrapper=False),
            Opener(_NAMED, JsonObject(), wrapper=False),
        ),
        inner=((*here(","), Blanks(), CALL_OBJECT_AHEAD), (CALL_OBJECT_AHEAD,)),
        closers=((Lit("]"),),),
        leftovers=("}",),
        ends_reasoning=True,
        ids="mistral",
    ),
    swallowed=("</s>",),
    turns=("[INST]", "[/INST]"),
    constraint="mistral",
    models=("Mistral 7B v0.3", "Mistral Small 3", "Ministral 3", "Magistral", "Devstral"),
)
