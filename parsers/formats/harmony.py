"""Harmony (gpt-oss): every message has a header with role, channel, recipient and constraint.

Source: openai/harmony docs/format.md (read 2026-11), and the orders that models write the parts in
(FORMATS 7). `<|start|>`, `<|channel|>`, `<|constrain|>`, `<|message|>`, `<|end|>`, `<|return|>` and
`<|call|>` are special tokens.
"""

from __future__ import annotations

import re
from typing import Final

from ..arguments.json_object import JsonObject
from ..arguments.tagged import Tagged
from ..format import Format, MessageSyntax, ToolSyntax
from ..header import Ahead, Blanks, Either, Lit, Until
from ..states import MessageHeader, State

__all__ = ["BEAM", "GPT_OSS", "read_harmony_header"]

_recipient: Final = re.compile(r"\bto=([A-Za-z0-9_.:/-]{1,128})").search
_channel: Final = re.compile(r"<\|channel\|>\s*([a-z]*)").search
_first_word: Final = re.compile(r"\s*([a-z]*)").match


def read_harmony_header(header: str) -> MessageHeader:
    """What a header means: a recipient makes a call, whatever the channel; else the channel decides.

    Built-in recipients (`python`, `browser.search`) are names like any other; a recipient `user` or
    `assistant` is none.
    """
    match = _recipient(header)
    name = match[1].removeprefix("functions.") if match else ""
    if name and name not in ("user", "assistant", "functions"):
        return MessageHeader(State.CONTENT, name)
    # A header that starts at `<|channel|>` begins with the channel's name.
    channel = _channel(header) or _first_word(header)
    analysis = channel is not None and channel[1] == "analysis"
    return MessageHeader(State.REASONING if analysis else State.CONTENT)


_BODY: Final = Until("<|message|>", "header", forbidden="", limit=400)

_MESSAGES: Final = MessageSyntax(
    headers=((Either(((Lit("<|start|>"),), (Lit("<|channel|>"),))), _BODY),),
    continued=((Blanks(), Ahead(((Lit("to="),), (Lit("<|start|>"),), (Lit("<|channel|>"),))), _BODY),),
    ends=("<|end|>", "<|return|>", "<|call|>"),
    read=read_harmony_header,
)

GPT_OSS: Final = Format(
    name="gpt_oss",
    source="openai/harmony docs/format.md (2026-11)",
    messages=_MESSAGES,
    tools=ToolSyntax(arguments=JsonObject()),
    swallowed=("<|constrain|>",),
    turns=("<|start|>",),
    constraint="harmony",
    models=("gpt-oss-20b", "gpt-oss-120b"),
)

# The same frames around tagged parameters.
BEAM: Final = Format(
    name="beam",
    source="Beam as SGLang 0.5.23 reads it",
    messages=_MESSAGES,
    tools=ToolSyntax(
        arguments=Tagged(
            parameter=(Lit('<rfl:parameter name="'), Until('"', "key"), Blanks(), Lit(">")),
            value_closers=("</rfl:parameter>",),
            call_closers=("<|call|>",),
            call_openers=("<|start|>", "<|end|>", "<|return|>"),
            framed=True,
        ),
    ),
    swallowed=("<|constrain|>",),
    turns=("<|start|>",),
    models=("Beam",),
)
