"""Muse and Inkling: messages with recipients or typed blocks; the prompt has begun the first header.

Sources: FORMATS 3 and 5 (vLLM 0.33 and SGLang 0.5.23 read them so).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..format import Format, MessageSyntax, ReasoningSyntax, ToolSyntax
from ..header import Ahead, Blanks, Lit, Until
from ..states import MessageHeader, State
from .minimax import ATEM

__all__ = ["INKLING", "MUSE", "read_muse_header"]

_recipient: Final = re.compile(r"\bto=([A-Za-z0-9_.:/-]{1,128})").search


def read_muse_header(header: str) -> MessageHeader:
    """`to=self` (or nobody) is reasoning, `to=user` and commentary the answer, anything else a function."""
    match = _recipient(header)
    name = match[1] if match else "self"
    if name == "self":
        return MessageHeader(State.REASONING)
    if name == "developer":
        return MessageHeader(State.TOOL_BETWEEN)
    return MessageHeader(State.CONTENT, "" if name in ("user", "commentary") else name)


_BODY: Final = Until("<|message|>", "header", forbidden="", limit=400)
_ATEM_BODY, _ATEM_INVOKE = ATEM

MUSE: Final = Format(
    name="muse",
    source="Muse as vLLM 0.33 and SGLang 0.5.23 read it",
    messages=MessageSyntax(
        headers=((Lit("<|start|>"), _BODY),),
        continued=((Blanks(), Ahead(((Lit("to="),), (Lit("<|start|>"),), (Lit("<|message|>"),))), _BODY),),
        ends=("<|eom|>", "<|eot|>"),
        read=read_muse_header,
    ),
    tools=ToolSyntax(
        arguments=replace(
            _ATEM_BODY,
            # The recipient names the function; the tags around the parameters repeat it.
            skipped=((Lit("<atem:function_calls>"),), _ATEM_INVOKE),
            call_openers=("<|start|>",),
            swallowed=("<|eom|>", "<|eot|>"),
        ),
        closers=((Lit("</atem:function_calls>"),),),
    ),
    turns=("<|start|>",),
    models=("Muse", "Muse Spark", "Muse Glimmer"),
)


# Blocks of one type each. A block's label (the text before its type) is part of its header.
INKLING: Final = Format(
    name="inkling",
    constraint="inkling",
    source="Inkling as vLLM 0.33 and SGLang 0.5.23 read it",
    reasoning=ReasoningSyntax(starts=("<|content_thinking|>",), ends=("<|end_message|>",), interleaved=True),
    tools=ToolSyntax(
        arguments=JsonCall(),
        entries=(
            (Lit("<|message_model|>"), Until("<|content_invoke_tool_json|>", "label"), Blanks(), CALL_OBJECT_AHEAD),
            (Lit("<|content_invoke_tool_json|>"), Blanks(), CALL_OBJECT_AHEAD),
        ),
        closers=((Lit("<|end_message|>"),),),
        leftovers=("}",),
    ),
    swallowed=(
        "<|message_model|>",
        "<|content_text|>",
        "<|content_model_end_sampling|>",
    ),
    turns=("<|message_user|>", "<|message_model|>"),
    text_markers=True,
    models=("Inkling",),
)
