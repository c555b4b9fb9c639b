"""Muse and Inkling: messages with recipients or typed blocks; the prompt has begun the first header.

Sources: FORMATS 3 and 5 (vLLM 0.33 and SGLang 0.5.23 read them so).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ..arguments.json_calls import JsonCall
from ..format import Format, MessageSyntax, ToolSyntax
from ..header import Blanks, Either, Lit, Until
from ..states import MessageHeader, State
from .minimax import ATEM

__all__ = ["INKLING", "MUSE", "read_inkling_header", "read_muse_header"]

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
    source="FORMATS 3 and 5: Muse as vLLM 0.33 and SGLang 0.5.23 read it",
    messages=MessageSyntax(
        headers=((Lit("<|start|>"), _BODY),),
        continued=((Blanks(), Either(((Lit("to="),), (Lit("<|start|>"),), (Lit("<|message|>"),))), _BODY),),
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


def read_inkling_header(header: str) -> MessageHeader:
    """The block's type decides; see `INKLING`."""
    if header.endswith("thinking"):
        return MessageHeader(State.REASONING)
    return MessageHeader(State.CONTENT)


INKLING: Final = Format(
    name="inkling",
    source="FORMATS 3 and 5: Inkling as vLLM 0.33 and SGLang 0.5.23 read it",
    messages=None,
    tools=ToolSyntax(
        arguments=JsonCall(),
    ),
    turns=("<|message_user|>", "<|message_model|>"),
    models=("Inkling",),
)
