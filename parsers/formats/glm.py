"""GLM and all who write keys and values in tags of their own: `<arg_key>K</arg_key><arg_value>V</arg_value>`.

Markers: the chat templates of zai-org/GLM-4.5, GLM-4.7 and of the models named in each literal (read
2026-11). `<think>`, `</think>`, `<tool_call>` and `</tool_call>` are added tokens of GLM's tokenizer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..arguments.json_object import JsonObject
from ..arguments.tagged import Tagged
from ..format import Format, Opener, ReasoningSyntax, ToolSyntax
from ..header import Ahead, Blanks, Lit, Maybe, Name, Until

__all__ = [
    "GLM45",
    "GLM47",
    "HY_V3",
    "HY_V4",
    "IQUEST_Q1",
    "K2_HORIZON",
    "LING3",
    "POOLSIDE_V1",
    "SPARK25",
    "TELECHAT4",
    "XING4",
    "key_values",
]


def key_values(
    call: tuple[str, str] = ("<tool_call>", "</tool_call>"),
    *,
    wrapper: tuple[str, str] | None = None,
    key: tuple[str, str] = ("<arg_key>", "</arg_key>"),
    value: tuple[str, str] = ("<arg_value>", "</arg_value>"),
    kind: tuple[str, str] | None = None,
    separator: str = "",
    swallowed: tuple[str, ...] = (),
) -> ToolSyntax:
    """Calls whose name stands behind the opener and whose parameters are pairs of tags.

    Args:
        call: opener and closer of one call.
        wrapper: opener and closer around all calls, where the family has one.
        key, value, kind: tags of a parameter's name, value and (where it is written) type.
        separator: what stands between name and parameters, besides blanks.
        swallowed: ends of turn.
    """
    typed = (Maybe((Lit(kind[0]), Until(kind[1], "type"), Blanks())),) if kind else ()
    between = (Maybe((Lit(separator),)), Blanks()) if separator else ()
    behind = Ahead(((Lit(key[0]),), (Lit(call[1]),)))
    header = (Lit(call[0]), Blanks(), Name(), Blanks(), *between, behind)
    arguments = Tagged(
        parameter=(Lit(key[0]), Until(key[1], "key"), Blanks(), *typed, Lit(value[0])),
        value_closers=(value[1],),
        call_closers=(call[1],),
        wrapper_closers=(wrapper[1],) if wrapper else (),
        call_openers=(call[0],),
        swallowed=swallowed,
        typed_by="type" if kind else "",
    )
    if wrapper is None:
        return ToolSyntax(
            arguments=arguments,
            entries=(Opener(header, arguments, wrapper=False),),
            closers=((Lit(call[1]),),),
            empty=(call,),
            ends_reasoning=True,
        )
    return ToolSyntax(
        arguments=arguments,
        entries=((Lit(wrapper[0]), Blanks(), *header),),
        inner=(header,),
        bare=(header,),
        closers=((Lit(wrapper[1]),), (Lit(call[1]),)),
        empty=(wrapper,),
        ends_reasoning=True,
    )


_GLM_ENDS: Final = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>")
_GLM_TURNS: Final = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
_GLM_CALLS: Final = key_values(swallowed=_GLM_ENDS)
_THINK: Final = ReasoningSyntax(
    starts=("<think>",), ends=("</think>",), interleaved=True, switches=("thinking", "enable_thinking")
)

GLM45: Final = Format(
    name="glm45",
    source="chat template of zai-org/GLM-4.5 (2026-11)",
    reasoning=_THINK,
    tools=_GLM_CALLS,
    swallowed=_GLM_ENDS,
    turns=_GLM_TURNS,
    constraint="glm",
    models=("GLM-4.5", "GLM-4.6"),
)

GLM47: Final = Format(
    name="glm47",
    source="chat template of zai-org/GLM-4.7 (2026-11)",
    reasoning=replace(_THINK, opens_by_default=True),
    tools=_GLM_CALLS,
    swallowed=_GLM_ENDS,
    turns=_GLM_TURNS,
    constraint="glm_tight",
    models=("GLM-4.7", "GLM-5"),
)

LING3: Final = Format(
    name="ling3",
    source="chat template of inclusionAI/Ling-3 (2026-11)",
    reasoning=replace(_THINK, opens_by_default=True),
    tools=key_values(swallowed=("<|role_end|>",)),
    swallowed=("<|role_end|>",),
    turns=("<role>",),
    constraint="glm_tight",
    models=("Ling 3", "Ring 3"),
)

POOLSIDE_V1: Final = Format(
    name="poolside_v1",
    constraint="glm",
    source="Poolside's models as vLLM 0.33 and SGLang 0.5.23 read them",
    reasoning=replace(_THINK, interleaved=False),
    tools=key_values(swallowed=("</assistant>",)),
    swallowed=("</assistant>",),
    turns=("<assistant>", "<user>"),
    models=("Poolside",),
)

SPARK25: Final = Format(
    name="spark25",
    constraint="glm",
    source="Spark 2.5 as SGLang 0.5.23 reads it",
    tools=key_values(),
    swallowed=("<end>",),
    turns=("<Bot>", "<User>"),
    text_markers=True,
    models=("Spark 2.5",),
)

IQUEST_Q1: Final = Format(
    name="iquest_q1",
    constraint="iquest_q1",
    source="IQuest Q1 as SGLang 0.5.23 reads it",
    reasoning=_THINK,
    tools=key_values(("<iquest_tool_call>", "</iquest_tool_call>")),
    swallowed=("<|im_end|>",),
    turns=("<|im_start|>",),
    text_markers=True,
    models=("IQuest Q1",),
)


def _hunyuan(separator: str = "") -> ToolSyntax:
    """Calls of Hunyuan, whose markers end with a suffix that the tokenizer decides."""
    return key_values(
        ("<tool_call{S}>", "</tool_call{S}>"),
        wrapper=("<tool_calls{S}>", "</tool_calls{S}>"),
        key=("<arg_key{S}>", "</arg_key{S}>"),
        value=("<arg_value{S}>", "</arg_value{S}>"),
        separator=separator,
    )


_HUNYUAN_THINKS: Final = ReasoningSyntax(starts=("<think{S}>",), ends=("</think{S}>",), switches=("reasoning_effort",))

HY_V3: Final = Format(
    name="hy_v3",
    constraint="hy_v3",
    source="Hunyuan v3 as vLLM 0.33 reads it",
    reasoning=_HUNYUAN_THINKS,
    tools=_hunyuan("<tool_sep{S}>"),
    swallowed=("<|eos|>",),
    turns=("<|startoftext|>",),
    models=("Hunyuan 3",),
)

HY_V4: Final = Format(
    name="hy_v4",
    constraint="hy_v4",
    source="Hunyuan v4 as vLLM 0.33 reads it",
    reasoning=replace(_HUNYUAN_THINKS, opens_by_default=True),
    tools=_hunyuan(),
    swallowed=("<|eos|>",),
    turns=("<|startoftext|>",),
    models=("Hunyuan 4",),
)

_IFM: Final = key_values(
    ("<ifm|tool_call>", "</ifm|tool_call>"),
    wrapper=("<ifm|tool_calls>", "</ifm|tool_calls>"),
    key=("<ifm|arg_key>", "</ifm|arg_key>"),
    value=("<ifm|arg_value>", "</ifm|arg_value>"),
    kind=("<ifm|arg_type>", "</ifm|arg_type>"),
)
_IFM_JSON: Final = Opener((Lit("<ifm|tool_call>"), Blanks(), CALL_OBJECT_AHEAD), JsonCall())

K2_HORIZON: Final = Format(
    name="k2_horizon",
    source="K2 Horizon as vLLM 0.33 and SGLang 0.5.23 read it",
    reasoning=ReasoningSyntax(
        starts=("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
        ends=("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
        opens_by_default=True,
    ),
    tools=replace(
        _IFM,
        entries=(
            *_IFM.entries,
            Opener((Lit("<ifm|tool_calls>"), Blanks(), *_IFM_JSON.pattern), JsonCall()),
        ),
        inner=(*_IFM.inner, _IFM_JSON),
    ),
    swallowed=("<|endoftext|>",),
    turns=("<|im_start|>",),
    models=("K2 Horizon",),
)

_PARAMETERS: Final = key_values(
    key=("<param_key>", "</param_key>"), value=("<param_value>", "</param_value>"), swallowed=("<_end>",)
)
_NAME_AND_OBJECT: Final = Opener(
    (Lit("<tool_call>"), Blanks(), Name(), Blanks(), Ahead(((Lit("{"),),))), JsonObject(), wrapper=False
)

TELECHAT4: Final = Format(
    name="telechat4",
    source="TeleChat 4 as TensorRT-LLM's telechat4_parser.py reads it",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), interleaved=True),
    tools=replace(_PARAMETERS, entries=(*_PARAMETERS.entries, _NAME_AND_OBJECT)),
    swallowed=("<_end>",),
    turns=("<_bot>", "<_user>", "<_system>"),
    text_markers=True,
    models=("TeleChat 4",),
)

XING4: Final = Format(
    name="xing4",
    constraint="hermes",
    source="Xing 4.0 as TensorRT-LLM's xing4_0_parser.py reads it",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), interleaved=True),
    tools=replace(
        _PARAMETERS,
        entries=(
            *_PARAMETERS.entries,
            _NAME_AND_OBJECT,
            Opener((Lit("<tool_call>"), Blanks(), CALL_OBJECT_AHEAD), JsonCall()),
        ),
    ),
    swallowed=("<_end>",),
    turns=("<_bot>", "<_user>", "<_system>"),
    text_markers=True,
    models=("Xing 4.0",),
)
