"""Families that write calls as a JSON array of call objects, between markers or after one.

Sources: the chat templates of the models named in each literal (read 2026-11), and FORMATS 3, 5, 6
of the project's notes for what other engines accept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..arguments.json_calls import CALL_OBJECT_AHEAD, JsonCall, KeyedCall, keyed_ahead
from ..format import Format, ReasoningSyntax, ToolSyntax
from ..header import Blanks, Item, Lit, Maybe, Pattern, here
from .qwen import CHATML_END, CHATML_TURNS, THINK

__all__ = [
    "APERTUS",
    "APRIEL",
    "APRIEL16",
    "COHERE_COMMAND3",
    "COHERE_COMMAND4",
    "FIREFUNCTION",
    "GRANITE",
    "HUNYUAN_A13B",
    "JAMBA",
    "NEMOTRON_NANO_V2",
    "PHI4_MINI",
    "XLAM",
    "array_of_calls",
]


def array_of_calls(*openers: str, closer: str = "", ahead: Item = CALL_OBJECT_AHEAD) -> ToolSyntax:
    """`OPENER[{...}, {...}]CLOSER`; the brackets are part of header and closer.

    Args:
        openers: spellings before the array, which need it to count.
        closer: what follows the array, "" where nothing does.
        ahead: what an element begins with.
    """
    ends: tuple[Pattern, ...] = ((Lit("]"),),)
    bracket: Pattern = (Lit("["),)
    if closer:
        bracket = (Maybe((Lit("["),)),)  # one call without its list: the closer ends it all the same
        # The array's own bracket first: a string in it may contain the closer's spelling.
        ends = ((Lit(closer),), (*here("]"), Blanks(), Lit(closer)))
    return ToolSyntax(
        arguments=JsonCall(),
        entries=tuple((Lit(opener), Blanks(), *bracket, Blanks(), ahead) for opener in openers),
        inner=((*here(","), Blanks(), ahead), (ahead,)),
        closers=ends,
        leftovers=("}", "]") if closer else ("}",),
        empty=tuple((opener, closer) for opener in openers) if closer else (),
        ends_reasoning=True,
    )


GRANITE: Final = Format(
    name="granite",
    constraint="granite",
    source="chat template of ibm-granite/granite-3.3-8b-instruct (2026-11)",
    tools=array_of_calls("<|tool_call|>", "<tool_call>"),
    swallowed=("<|end_of_text|>",),
    turns=("<|start_of_role|>",),
    models=("Granite 3.x",),
)

JAMBA: Final = Format(
    name="jamba",
    constraint="tool_calls_list",
    source="chat template of ai21labs/AI21-Jamba-Mini-1.6 (2026-11)",
    tools=array_of_calls("<tool_calls>", closer="</tool_calls>"),
    swallowed=("<|eom|>", "<|endoftext|>"),
    turns=("<|bom|>",),
    models=("Jamba 1.5", "Jamba 1.6"),
)

HUNYUAN_A13B: Final = Format(
    name="hunyuan_a13b",
    constraint="tool_calls_list",
    source="chat template of tencent/Hunyuan-A13B-Instruct (2026-11)",
    reasoning=ReasoningSyntax(starts=("<think>",), ends=("</think>",), switches=("enable_thinking",)),
    tools=replace(array_of_calls("<tool_calls>", closer="</tool_calls>"), ends_reasoning=False),
    swallowed=("<answer>", "</answer>", "<|eos|>", "<|extra_0|>", "助手："),
    turns=("<|startoftext|>", "<|extra_4|>"),
    text_markers=True,
    models=("Hunyuan-A13B",),
)

PHI4_MINI: Final = Format(
    name="phi4_mini",
    constraint="functools",
    source="chat template of microsoft/Phi-4-mini-instruct (2026-11)",
    tools=array_of_calls("functools"),
    swallowed=("<|end|>", "<|endoftext|>"),
    turns=("<|user|>", "<|assistant|>", "<|system|>"),
    text_markers=True,
    models=("Phi-4-mini",),
)

FIREFUNCTION: Final = Format(
    name="firefunction",
    constraint="functools",
    source="chat template of fireworks-ai/llama-3-firefunction-v2 (2026-11)",
    tools=array_of_calls(" functools", "functools"),
    swallowed=("<|eot_id|>", "<|end_of_text|>"),
    turns=("<|start_header_id|>",),
    text_markers=True,
    models=("Firefunction v2",),
)

NEMOTRON_NANO_V2: Final = Format(
    name="nemotron_nano_v2",
    constraint="nemotron_nano_v2",
    source="chat template of nvidia/NVIDIA-Nemotron-Nano-9B-v2 (2026-11)",
    reasoning=replace(THINK, switches=()),
    tools=array_of_calls("<TOOLCALL>", closer="</TOOLCALL>"),
    swallowed=("<SPECIAL_12>",),
    turns=("<SPECIAL_10>", "<SPECIAL_11>"),
    text_markers=True,
    models=("Nemotron Nano 9B v2", "Llama-3.3-Nemotron-Super"),
)

APRIEL: Final = Format(
    name="apriel",
    constraint="tool_calls_list",
    source="chat template of ServiceNow-AI/Apriel-1.5-15b-Thinker (2026-11)",
    reasoning=ReasoningSyntax(starts=("<thinking>",), ends=("</thinking>",)),
    tools=array_of_calls("<tool_calls>", closer="</tool_calls>"),
    swallowed=("<|end|>",),
    turns=("<|assistant|>", "<|user|>", "<|system|>"),
    text_markers=True,
    models=("Apriel 1.5",),
)

APRIEL16: Final = Format(
    name="apriel16",
    constraint="tool_calls_list",
    source="chat template of ServiceNow-AI/Apriel-1.6-15b-Thinker (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("Here are my reasoning steps:",), ends=("[BEGIN FINAL RESPONSE]",), opens_by_default=True
    ),
    tools=array_of_calls("<tool_calls>", closer="</tool_calls>"),
    swallowed=("[END FINAL RESPONSE]", "<|end|>"),
    turns=("<|begin_assistant|>", "<|begin_user|>"),
    text_markers=True,
    models=("Apriel 1.6",),
)

_XLAM: Final = array_of_calls("```json", "[TOOL_CALLS]", "<tool_call>")
XLAM: Final = Format(
    name="xlam",
    constraint="xlam",
    source="chat template of Salesforce/Llama-xLAM-2-8b-fc-r (2026-11)",
    reasoning=THINK,
    tools=replace(
        _XLAM,
        unmarked=((Lit("["), Blanks(), CALL_OBJECT_AHEAD),),
        frames=((Lit("```"),), (Lit("</tool_call>"),)),
    ),
    swallowed=("<|eot_id|>", *CHATML_END),
    turns=("<|start_header_id|>", *CHATML_TURNS),
    text_markers=True,
    models=("xLAM 2",),
)

_KEYED: Final = keyed_ahead()
APERTUS: Final = Format(
    name="apertus",
    constraint="apertus",
    source="chat template of swiss-ai/Apertus-8B-Instruct-2509 (2026-11)",
    reasoning=ReasoningSyntax(starts=("<|inner_prefix|>",), ends=("<|inner_suffix|>",)),
    tools=replace(array_of_calls("<|tools_prefix|>", closer="<|tools_suffix|>", ahead=_KEYED), arguments=KeyedCall()),
    swallowed=("<|assistant_end|>",),
    turns=("<|assistant_start|>", "<|user_start|>", "<|system_start|>", "<|developer_start|>"),
    models=("Apertus 2509",),
)

_ACTION: Final = array_of_calls("<|START_ACTION|>", closer="<|END_ACTION|>")
_COHERE_THINKING: Final = ReasoningSyntax(starts=("<|START_THINKING|>",), ends=("<|END_THINKING|>",), interleaved=True)

COHERE_COMMAND3: Final = Format(
    name="cohere_command3",
    constraint="cohere",
    source="chat template of CohereLabs/c4ai-command-r7b-12-2024 (2026-11)",
    reasoning=_COHERE_THINKING,
    tools=_ACTION,
    swallowed=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|END_OF_TURN_TOKEN|>"),
    turns=("<|START_OF_TURN_TOKEN|>",),
    models=("Command R7B", "Command A"),
)

COHERE_COMMAND4: Final = Format(
    name="cohere_command4",
    constraint="cohere",
    source="Cohere's mixture-of-experts models, as SGLang and llama.cpp read them",
    reasoning=_COHERE_THINKING,
    tools=_ACTION,
    swallowed=("<|START_TEXT|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
    turns=("<|START_OF_TURN_TOKEN|>",),
    models=("Command 4",),
)
