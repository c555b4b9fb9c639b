"""Families that write a call as one JSON object between two tags, as Hermes does with its own.

Sources: the chat templates of the models named in each literal (read 2026-11), and FORMATS 5 and 6
of the project's notes for what other engines accept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Lit, Maybe, Pattern, here
from .qwen import CHATML_END, CHATML_TURNS, THINK

__all__ = [
    "ERNIE45",
    "EXAONE4",
    "GIGACHAT3",
    "GRANITE4",
    "GRANITE_20B_FC",
    "INTERNLM2",
    "LONGCAT",
    "MINIMAX_M1",
    "TRINITY",
    "tagged_objects",
]

_COMMA: Final = (*here(","), Blanks(), CALL_OBJECT_AHEAD)


def tagged_objects(opener: Pattern, closer: str, *, ends_reasoning: bool = True) -> ToolSyntax:
    """Call objects between `opener` and `closer`, one or several.

    Args:
        opener: begins with a literal, which with the closer behind it is removed.
        closer: "" where the family writes none.
        ends_reasoning: see `ToolSyntax`.
    """
    return ToolSyntax(
        arguments=JsonCall(),
        entries=((*opener, Blanks(), CALL_OBJECT_AHEAD),),
        inner=((CALL_OBJECT_AHEAD,), _COMMA),
        closers=((Lit(closer),),) if closer else (),
        # A brace too many is the commonest slip of small models; it is no text for the user.
        leftovers=("}",) if closer else (),
        empty=((opener[0].text, closer),) if closer and isinstance(opener[0], Lit) else (),
        ends_reasoning=ends_reasoning,
    )


LONGCAT: Final = Format(
    name="longcat",
    constraint="longcat",
    source="chat template of meituan-longcat/LongCat-Flash-Chat (2026-11)",
    tools=tagged_objects((Lit("<longcat_tool_call>"),), "</longcat_tool_call>"),
    swallowed=("</longcat_s>",),
    turns=("[Round ",),
    models=("LongCat-Flash",),
)

GRANITE4: Final = Format(
    name="granite4",
    source="chat template of ibm-granite/granite-4.0-h-small (2026-11)",
    tools=tagged_objects((Lit("<tool_call>"),), "</tool_call>"),
    swallowed=("<|end_of_text|>",),
    turns=("<|start_of_role|>",),
    constraint="hermes",
    text_markers=True,
    models=("Granite 4.0",),
)

GRANITE_20B_FC: Final = Format(
    name="granite_20b_fc",
    constraint="granite_20b_fc",
    source="model card of ibm-granite/granite-20b-functioncalling (2026-11)",
    tools=replace(
        tagged_objects((Lit("<function_call>"),), ""),
        # Nothing closes a call: what follows its object is the next call or text.
        inner=(),
    ),
    swallowed=("<|endoftext|>",),
    turns=("SYSTEM:", "USER:", "ASSISTANT:"),
    text_markers=True,
    models=("Granite 20B functioncalling",),
)

ERNIE45: Final = Format(
    name="ernie45",
    constraint="hermes",
    source="chat template of baidu/ERNIE-4.5-21B-A3B-Thinking (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), opens_by_default=True),
    tools=tagged_objects((Lit("<tool_call>"),), "</tool_call>"),
    swallowed=("<response>", "</response>", *CHATML_END),
    turns=CHATML_TURNS,
    text_markers=True,
    models=("ERNIE 4.5 Thinking",),
)

INTERNLM2: Final = Format(
    name="internlm2",
    constraint="internlm2",
    source="chat template of internlm/internlm2_5-7b-chat (2026-11)",
    reasoning=THINK,
    tools=tagged_objects((Lit("<|action_start|>"), Blanks(), Lit("<|plugin|>")), "<|action_end|>"),
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    models=("InternLM 2.5", "InternLM 3", "Intern-S1"),
)

GIGACHAT3: Final = Format(
    name="gigachat3",
    source="chat template of ai-sage/GigaChat3-10B-A1.8B (2026-11)",
    tools=replace(
        tagged_objects((Lit("function call<|role_sep|>"),), ""),
        entries=(
            (Lit("function call<|role_sep|>"), Blanks(), CALL_OBJECT_AHEAD),
            (Lit("<|function_call|>"), Blanks(), CALL_OBJECT_AHEAD),
        ),
        inner=(),
    ),
    swallowed=("<|message_sep|>", "</s>"),
    turns=("<|role_sep|>",),
    models=("GigaChat 3",),
)

EXAONE4: Final = Format(
    name="exaone4",
    source="chat template of LGAI-EXAONE/EXAONE-4.0-32B (2026-11)",
    reasoning=THINK,
    tools=tagged_objects((Lit("<tool_call>"),), "</tool_call>"),
    swallowed=("[|endofturn|]",),
    turns=("[|assistant|]", "[|user|]", "[|system|]"),
    constraint="hermes",
    models=("EXAONE 4.0",),
)

# SGLang's detector for it takes a call that the model wrote before it closed its reasoning.
TRINITY: Final = Format(
    name="trinity",
    source="chat template of arcee-ai/Trinity-Mini (2026-11)",
    reasoning=THINK,
    tools=tagged_objects((Lit("<tool_call>"),), "</tool_call>"),
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    constraint="hermes",
    text_markers=True,
    models=("Trinity",),
)

MINIMAX_M1: Final = Format(
    name="minimax_m1",
    constraint="minimax_m1",
    source="chat template of MiniMaxAI/MiniMax-M1-40k (2026-11)",
    reasoning=THINK,
    tools=tagged_objects((Lit("<tool_calls>"), Maybe((Lit("\n"),))), "</tool_calls>"),
    swallowed=("<end_of_sentence>",),
    turns=("<beginning_of_sentence>",),
    text_markers=True,
    models=("MiniMax-M1",),
)
