"""Kimi: K2's sections with `functions.NAME:INDEX` headers, K3's attributed tags, v1's reasoning marks.

Markers: the chat templates of moonshotai/Kimi-K2-Instruct and Kimi-K2-Thinking (read 2026-11); K3 and
v1 as FORMATS 3 and 6 have them. K2's are all added tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ..arguments.json_object import JsonObject
from ..arguments.tagged import Tagged
from ..format import Format, Opener, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Lit, Name, Pattern, Until
from ..request import valid_name

__all__ = ["KIMI_K2", "KIMI_K3", "KIMI_V1", "read_kimi_header"]

_full: Final = re.compile(r"functions\.(?P<name>[A-Za-z0-9_.:/-]{1,128}?):\d+").fullmatch
_indexed: Final = re.compile(r"(?P<name>.+?)[:_]?\d+").fullmatch
_prefix: Final = re.compile(r"functions[._]?(?=.)")


def read_kimi_header(header: str, declared: Iterable[str]) -> tuple[str, str]:
    """Name and id of a K2 header (PROTOCOL 5, recovery).

    `functions.NAME:INDEX` is kept as id. Of what models write otherwise: a leading `functions` with its
    separator and a trailing number are taken off; where that is no declared name, the longest declared
    name in the text is meant.
    """
    header = header.strip()
    match = _full(header)
    if match is not None:
        return match["name"], header
    declared = tuple(declared)
    bare = _prefix.sub("", header, count=1) if header.startswith("functions") else header
    indexed = _indexed(bare)
    for name in (header, bare, indexed["name"] if indexed else ""):
        if name in declared:
            return name, ""
    found = [name for name in declared if name in header]
    if found:
        return max(found, key=len), ""
    name = indexed["name"].rstrip(":_") if indexed else bare
    return (name, "") if valid_name(name) else ("", "")


_HEADER: Final[Pattern] = (
    Lit("<|tool_call_begin|>"),
    Until("<|tool_call_argument_begin|>", "header", forbidden="<"),
)
_CALL: Final = Opener(_HEADER, JsonObject(), read_name=read_kimi_header)

KIMI_K2: Final = Format(
    name="kimi_k2",
    source="chat template of moonshotai/Kimi-K2-Thinking (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("<think>",), ends=("</think>",), interleaved=True, switches=("thinking", "enable_thinking")
    ),
    tools=ToolSyntax(
        arguments=JsonObject(),
        wrappers=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
        inner=(_CALL,),
        bare=(_CALL,),
        closers=((Lit("<|tool_calls_section_end|>"),), (Lit("<|tool_call_section_end|>"),)),
        frames=((Lit("<|tool_call_end|>"),),),
        ends_reasoning=True,
        ids="kimi",
    ),
    swallowed=("<|im_end|>", "[EOS]"),
    turns=("<|im_user|>", "<|im_assistant|>", "<|im_system|>"),
    constraint="kimi",
    models=("Kimi K2", "Kimi K2 Thinking", "Kimi K2.5"),
)


def _tag(kind: str, name: str) -> str:
    return f"<|{kind}|>{name}<|sep|>"


_CALL_K3: Final = (
    Lit("<|open|>call"),
    Blanks(),
    Lit('tool="'),
    Name(),
    Lit('"'),
    Until("<|sep|>", "attributes"),
)

KIMI_K3: Final = Format(
    name="kimi_k3",
    constraint="kimi_k3",
    source="Kimi K3 as vLLM 0.33 and SGLang 0.5.23 read it",
    reasoning=ReasoningSyntax(
        starts=(_tag("open", "think"),),
        ends=(_tag("close", "think"),),
        opens_by_default=True,
        interleaved=True,
        switches=("thinking", "enable_thinking"),
    ),
    tools=ToolSyntax(
        arguments=Tagged(
            parameter=(
                Lit("<|open|>argument"),
                Blanks(),
                Lit('key="'),
                Until('"', "key"),
                Blanks(),
                Lit('type="'),
                Until('"', "type"),
                Blanks(),
                Lit("<|sep|>"),
            ),
            value_closers=(_tag("close", "argument"),),
            call_closers=(_tag("close", "call"),),
            wrapper_closers=(_tag("close", "tools"),),
            call_openers=("<|open|>call",),
            swallowed=(_tag("close", "message"),),
            escaped=True,
            typed_by="type",
        ),
        wrappers=(_tag("open", "tools"),),
        inner=(_CALL_K3,),
        bare=(_CALL_K3,),
        closers=((Lit(_tag("close", "tools")),),),
        ends_reasoning=True,
        ids="kimi",
    ),
    swallowed=(
        _tag("open", "response"),
        _tag("close", "response"),
        _tag("close", "message"),
        "<|im_end|>",
    ),
    turns=("<|im_user|>", "<|im_assistant|>", "<|im_system|>", _tag("open", "message")),
    models=("Kimi K3",),
)

KIMI_V1: Final = Format(
    name="kimi_v1",
    source="chat template of moonshotai/Kimi-VL-A3B-Thinking (2026-11)",
    reasoning=ReasoningSyntax(starts=("◁think▷",), ends=("◁/think▷",)),
    swallowed=("<|im_end|>", "[EOS]"),
    turns=("<|im_user|>", "<|im_assistant|>", "<|im_system|>"),
    models=("Kimi-VL Thinking",),
)
