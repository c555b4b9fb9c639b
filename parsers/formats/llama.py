"""Llama 3: bare JSON calls joined by `;`, or behind `<|python_tag|>`; built-in tools as Python calls.

Source: the chat template of meta-llama/Llama-3.1-8B-Instruct (read 2026-11).
"""

from __future__ import annotations

from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..format import Format, Opener, ToolSyntax
from ..header import Blanks, Lit, Until, here
from .python_calls import PYTHON_ARGUMENTS

__all__ = ["LLAMA3_JSON"]

_TAG: Final = Lit("<|python_tag|>")
_CALL: Final = Opener((CALL_OBJECT_AHEAD,), JsonCall(), wrapper=False)


def _builtin(header: str, _declared: object) -> tuple[str, str]:
    """`brave_search.call(`: the tool is called by its method."""
    return header.removesuffix(".call"), ""


LLAMA3_JSON: Final = Format(
    name="llama3_json",
    constraint="llama3_json",
    source="chat template of meta-llama/Llama-3.1-8B-Instruct (2026-11)",
    tools=ToolSyntax(
        arguments=JsonCall(),
        entries=(
            Opener((_TAG, Blanks(), CALL_OBJECT_AHEAD), JsonCall(), wrapper=False),
            Opener((_TAG, Blanks(), Until("(", "header", forbidden="\n<{ ")), PYTHON_ARGUMENTS, False, _builtin),
        ),
        unmarked=(_CALL,),
        inner=(Opener((*here(";"), Blanks(), CALL_OBJECT_AHEAD), JsonCall(), wrapper=False),),
    ),
    swallowed=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|python_tag|>"),
    turns=("<|start_header_id|>",),
    models=("Llama 3.1", "Llama 3.2", "Llama 3.3", "Llama 4 (JSON)"),
)
