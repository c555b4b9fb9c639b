"""Families with one wire form each that no other family shares.

Sources: the chat templates of the models named in each literal (read 2026-11), and FORMATS 3 and 6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..arguments.json_object import JsonObject
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Ahead, Blanks, Lit, Maybe, Name, Until
from .qwen import THINK_OPEN

__all__ = ["FUNCTIONARY_V31", "FUNCTIONARY_V32", "GRANITE_PHRASES", "HOLO2", "PLAMO3", "SOLAR"]

_OBJECT: Final = Ahead(((Lit("{"),),))


def _plamo(name: str) -> str:
    return f"<|plamo:{name}:plamo|>"


_PLAMO_CALL: Final = (
    Lit(_plamo("begin_tool_request")),
    Blanks(),
    Lit(_plamo("begin_tool_name")),
    Blanks(),
    Name(),
    Blanks(),
    Lit(_plamo("end_tool_name")),
    Blanks(),
    Lit(_plamo("begin_tool_arguments")),
    Blanks(),
    Maybe((Lit("<|plamo:constrain|>json"), Blanks(), Lit("<|plamo:msg|>"))),
)

PLAMO3: Final = Format(
    name="plamo3",
    constraint="plamo3",
    source="chat template of pfnet/plamo-3-nict-8b-base's chat variant (2026-11)",
    reasoning=ReasoningSyntax(
        starts=(_plamo("begin_think"),),
        ends=(_plamo("end_think"),),
        opens_by_default=True,
        switches=("enable_thinking",),
    ),
    tools=ToolSyntax(
        arguments=JsonObject(),
        wrappers=(_plamo("begin_tool_requests"),),
        inner=(_PLAMO_CALL,),
        bare=(_PLAMO_CALL,),
        closers=((Lit(_plamo("end_tool_requests")),),),
        frames=((Lit(_plamo("end_tool_arguments")),), (Lit(_plamo("end_tool_request")),)),
        ends_reasoning=True,
    ),
    swallowed=("<|plamo:tag|>", "<|plamo:eos|>"),
    turns=("<|plamo:op|>",),
    models=("PLaMo 3",),
)

SOLAR: Final = Format(
    name="solar",
    constraint="solar",
    source="chat template of upstage/Solar-Open-100B (2026-11)",
    reasoning=ReasoningSyntax(starts=("<|think|>",), ends=("<|end|>", "<|content|>"), interleaved=True),
    tools=ToolSyntax(
        arguments=JsonObject(),
        entries=(
            (
                Lit("<|tool_call:begin|>"),
                Until("<|tool_call:name|>", "id", forbidden="\n"),
                Name(),
                Lit("<|tool_call:args|>"),
            ),
        ),
        closers=((Lit("<|tool_call:end|>"),),),
        ends_reasoning=True,
    ),
    swallowed=("<|begin|>", "<|content|>", "<|flush|>", "<|tool_calls|>"),
    turns=("<|begin|>",),
    models=("Solar Open 100B",),
)

FUNCTIONARY_V31: Final = Format(
    name="functionary_v31",
    constraint="functionary_v31",
    source="meetkai/functionary-small-v3.1 (2026-11)",
    tools=ToolSyntax(
        arguments=JsonObject(),
        entries=((Lit("<function="), Name(), Lit(">"), Blanks(), _OBJECT),),
        closers=((Lit("</function>"),),),
        leftovers=("}",),
    ),
    swallowed=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
    turns=("<|start_header_id|>",),
    text_markers=True,
    models=("Functionary 3.1",),
)

# The prompt ends with `>>>`; what follows is a recipient, a line's end, and the recipient's text.
FUNCTIONARY_V32: Final = Format(
    name="functionary_v32",
    constraint="functionary_v32",
    source="meetkai/functionary-small-v3.2 (2026-11)",
    tools=ToolSyntax(
        arguments=JsonObject(),
        entries=((Lit(">>>"), Name(), Lit("\n"), _OBJECT),),
        unmarked=((Name(), Lit("\n"), _OBJECT),),
    ),
    swallowed=(">>>all\n", ">>>", "<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
    begins=("all\n",),
    turns=("<|start_header_id|>",),
    text_markers=True,
    models=("Functionary 3.2",),
)

# Ordinary text is the marker here; the line breaks around the phrases are whitespace like any other.
GRANITE_PHRASES: Final = Format(
    name="granite_phrases",
    source="model card of ibm-granite/granite-3.2-8b-instruct, thinking=True (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("Here is my thought process:", "Here's my thought process:"),
        ends=("Here is my response:", "Here's my response:"),
    ),
    swallowed=("<|end_of_text|>",),
    turns=("<|start_of_role|>",),
    text_markers=True,
    models=("Granite 3.2",),
)

HOLO2: Final = Format(
    name="holo2",
    source="chat template of Hcompany/Holo2-8B (2026-11)",
    reasoning=replace(THINK_OPEN, interleaved=False, switches=("thinking", "enable_thinking")),
    swallowed=("<|im_end|>", "<|endoftext|>"),
    turns=("<|im_start|>",),
    models=("Holo2",),
)
