"""MiniMax M2: tagged calls in `<minimax:tool_call>`; the same with reasoning left in content.

Markers: the chat template of MiniMaxAI/MiniMax-M2 (read 2026-11). The wrapper's tags and `<think>`,
`</think>` are added tokens. Values are verbatim: the template frames them with nothing.
"""

from __future__ import annotations

from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..arguments.nested import NestedElements
from ..arguments.tagged import Tagged
from ..format import Format, Opener, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Either, Lit, Maybe, Name, Pattern, Until

__all__ = ["ATEM", "DOTS", "MINICPM5", "MINIMAX_M2", "MINIMAX_M2_APPEND_THINK", "MINIMAX_M3", "STEP3", "invokes"]

_ENDS: Final = ("[e~[",)


def invokes(
    prefix: str = "",
    *,
    invoke: str = "invoke",
    parameter: str = "parameter",
    wrapper: tuple[str, str] | None = None,
    swallowed: tuple[str, ...] = (),
) -> tuple[Tagged, Pattern]:
    """`<invoke name="N"><parameter name="K">V</parameter></invoke>`: syntax of the body, and the header.

    Args:
        prefix: what tag names begin with.
        invoke, parameter: names of the two tags.
        wrapper: opener and closer around all calls, where the family has one.
        swallowed: ends of turn.
    """
    quoted = Either(((Lit('"'), Name(), Lit('"')), (Lit("'"), Name(), Lit("'")), (Name(),)))
    key = Either(((Lit('"'), Until('"', "key")), (Lit("'"), Until("'", "key"))))
    header = (Lit(f"<{prefix}{invoke}"), Blanks(), Lit("name="), quoted, Blanks(), Lit(">"))
    syntax = Tagged(
        parameter=(Lit(f"<{prefix}{parameter}"), Blanks(), Lit("name="), key, Blanks(), Lit(">")),
        value_closers=(f"</{prefix}{parameter}>",),
        call_closers=(f"</{prefix}{invoke}>",),
        wrapper_closers=(wrapper[1],) if wrapper else (),
        call_openers=(f"<{prefix}{invoke} ", *((wrapper[0],) if wrapper else ())),
        swallowed=swallowed,
    )
    return syntax, header


_WRAPPER: Final = ("<minimax:tool_call>", "</minimax:tool_call>")
_SYNTAX, _INVOKE = invokes(wrapper=_WRAPPER, swallowed=_ENDS)
_CALLS: Final = ToolSyntax(
    arguments=_SYNTAX,
    entries=((Lit(_WRAPPER[0]), Blanks(), *_INVOKE),),
    inner=(_INVOKE,),
    bare=(_INVOKE,),
    closers=((Lit(_WRAPPER[1]),), (Lit("</invoke>"),)),
    empty=(_WRAPPER,),
    ends_reasoning=True,
)

MINIMAX_M2: Final = Format(
    name="minimax_m2",
    source="chat template of MiniMaxAI/MiniMax-M2 (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), opens_by_default=True, interleaved=True),
    tools=_CALLS,
    swallowed=_ENDS,
    turns=("]~b]",),
    constraint="minimax",
    models=("MiniMax-M2", "MiniMax-M2.1"),
)

# vLLM's mode of that name leaves the reasoning in the content and puts the missing `<think>` before it.
MINIMAX_M2_APPEND_THINK: Final = Format(
    name="minimax_m2_append_think",
    source="vLLM 0.33: the reasoning parser of that name",
    tools=_CALLS,
    swallowed=_ENDS,
    turns=("]~b]",),
    prepend="<think>",
    constraint="minimax",
    models=("MiniMax-M2",),
)

_M3: Final = "]<]minimax[>["
_M3_INVOKE: Final = (
    Lit(f"{_M3}"),
    Blanks(),
    Lit("<invoke name="),
    Either(((Lit('"'), Name(), Lit('"')), (Lit("'"), Name(), Lit("'")))),
    Blanks(),
    Lit(">"),
)

MINIMAX_M3: Final = Format(
    name="minimax_m3",
    constraint="minimax_m3",
    source="MiniMax M3 as vLLM 0.33 and SGLang 0.5.23 read it",
    reasoning=ReasoningSyntax(
        starts=("<mm:think>",), ends=("</mm:think>",), interleaved=True, switches=("thinking_mode",)
    ),
    tools=ToolSyntax(
        arguments=NestedElements(_M3, "invoke"),
        entries=((Lit(_M3), Blanks(), Lit("<tool_call>"), Blanks(), *_M3_INVOKE),),
        inner=(_M3_INVOKE,),
        closers=((Lit(_M3), Blanks(), Lit("</tool_call>")),),
        empty=(),
        ends_reasoning=True,
    ),
    swallowed=_ENDS,
    turns=("]~b]",),
    models=("MiniMax-M3",),
)

_DOTS_WRAPPER: Final = ("<dots_function_call>", "</dots_function_call>")
_DOTS_SYNTAX, _DOTS_INVOKE = invokes(wrapper=_DOTS_WRAPPER, swallowed=("<|endofresponse|>",))

DOTS: Final = Format(
    name="dots",
    constraint="dots",
    source="dots as vLLM 0.33 and SGLang 0.5.23 read it",
    tools=ToolSyntax(
        arguments=_DOTS_SYNTAX,
        entries=(
            (Lit(_DOTS_WRAPPER[0]), Blanks(), *_DOTS_INVOKE),
            Opener((Lit(_DOTS_WRAPPER[0]), Blanks(), CALL_OBJECT_AHEAD), JsonCall()),
        ),
        inner=(_DOTS_INVOKE,),
        bare=(_DOTS_INVOKE,),
        closers=((Lit(_DOTS_WRAPPER[1]),), (Lit("</invoke>"),)),
        empty=(_DOTS_WRAPPER,),
    ),
    swallowed=("<|endofresponse|>",),
    turns=("<|response|>", "<|userprompt|>"),
    text_markers=True,
    models=("dots.llm1", "dots.llm2"),
)

_STEP3_SYNTAX, _STEP3_INVOKE = invokes("steptml:", swallowed=("<｜tool_call_end｜>",))
_STEP3_CALL: Final[Pattern] = (
    Lit("<｜tool_call_begin｜>"),
    Blanks(),
    Maybe((Lit("function"), Blanks(), Lit("<｜tool_sep｜>"), Blanks())),
    *_STEP3_INVOKE,
)

STEP3: Final = Format(
    name="step3",
    source="chat template of stepfun-ai/step3 (2026-11); bars are U+FF5C, underscores ASCII",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), opens_by_default=True),
    tools=ToolSyntax(
        arguments=_STEP3_SYNTAX,
        wrappers=("<｜tool_calls_begin｜>",),
        inner=(_STEP3_CALL, _STEP3_INVOKE),
        bare=(_STEP3_CALL, _STEP3_INVOKE),
        closers=((Lit("<｜tool_calls_end｜>"),), (Lit("</steptml:invoke>"),)),
        frames=((Lit("<｜tool_call_end｜>"),),),
        ends_reasoning=True,
    ),
    swallowed=("<|EOT|>",),
    turns=("<|BOT|>",),
    models=("Step3",),
)

# A value may stand in CDATA; its brackets belong to the tags.
_MINICPM5: Final = Tagged(
    parameter=(
        Lit('<param name="'),
        Until('"', "key"),
        Blanks(),
        Lit(">"),
        Maybe((Lit("<![CDATA["),)),
    ),
    value_closers=("]]></param>", "</param>"),
    call_closers=("</function>",),
    call_openers=("<function name=", "<functionname="),
    swallowed=("<|im_end|>",),
)
_MINICPM5_CALL: Final = (
    Either(((Lit("<function name="),), (Lit("<functionname="),))),
    Lit('"'),
    Name(),
    Lit('"'),
    Blanks(),
    Lit(">"),
)

MINICPM5: Final = Format(
    name="minicpm5",
    source="MiniCPM 5 as vLLM 0.33 and SGLang 0.5.23 read it",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), switches=("enable_thinking",)),
    tools=ToolSyntax(
        arguments=_MINICPM5,
        entries=(_MINICPM5_CALL,),
        closers=((Lit("</function>"),),),
        ends_reasoning=True,
    ),
    swallowed=("<|im_end|>",),
    turns=("<|im_start|>",),
    text_markers=True,
    models=("MiniCPM 5",),
)

ATEM: Final = invokes("atem:", wrapper=("<atem:function_calls>", "</atem:function_calls>"))
"""Body and header of Muse's calls, whose frames are messages (`muse.py`)."""
