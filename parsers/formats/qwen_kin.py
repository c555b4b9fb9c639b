"""Families that write Qwen3-Coder's XML calls with markers, framing or defaults of their own.

Sources: the chat templates of the models named in each literal (read 2026-11).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..format import Format, ReasoningSyntax
from .qwen import CHATML_END, CHATML_TURNS, THINK_OPEN, XML_CALLS, xml_calls

__all__ = ["GRANITE_THINKING_PARSER", "MIMO", "MINICPMV", "NEMOTRON_V3", "SEED_OSS", "STEP3P5", "STEP5"]

SEED_OSS: Final = Format(
    name="seed_oss",
    constraint="seed_oss",
    source="chat template of ByteDance-Seed/Seed-OSS-36B-Instruct (2026-11)",
    reasoning=ReasoningSyntax(
        starts=("<seed:think>",),
        ends=("</seed:think>",),
        opens_by_default=True,
        interleaved=True,
        switches=("enable_thinking",),
    ),
    tools=xml_calls("seed:tool_call", ends=("<seed:eos>",)),
    swallowed=("<seed:eos>",),
    turns=("<seed:bos>",),
    models=("Seed-OSS-36B",),
)

STEP3P5: Final = Format(
    name="step3p5",
    source="chat template of stepfun-ai/Step-3.5-Flash (2026-11)",
    reasoning=replace(THINK_OPEN, interleaved=False, switches=()),
    tools=XML_CALLS,
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    constraint="qwen_xml",
    models=("Step-3.5-Flash",),
)

STEP5: Final = Format(
    name="step5",
    source="vLLM 0.33 registers it with Qwen3-Coder's calls and DeepSeek R1's reasoning",
    reasoning=replace(THINK_OPEN, interleaved=False, switches=()),
    tools=XML_CALLS,
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    constraint="qwen_xml",
    models=("Step 5",),
)

# Values are data to the last newline: this template writes them between the tags without framing.
MIMO: Final = Format(
    name="mimo",
    source="chat template of XiaomiMiMo/MiMo-V2-Flash (2026-11)",
    reasoning=replace(THINK_OPEN, interleaved=False),
    tools=xml_calls(framed=False),
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    models=("MiMo-V2-Flash",),
)

NEMOTRON_V3: Final = Format(
    name="nemotron_v3",
    source="chat template of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B (2026-11)",
    reasoning=THINK_OPEN,
    tools=XML_CALLS,
    swallowed=CHATML_END,
    turns=CHATML_TURNS,
    constraint="qwen_xml",
    models=("Nemotron 3 Nano", "Nemotron 3 Super"),
)

GRANITE_THINKING_PARSER: Final = Format(
    name="granite_thinking_parser",
    source="vLLM 0.33 registers it for Granite's thinking models",
    reasoning=replace(THINK_OPEN, interleaved=False),
    tools=XML_CALLS,
    swallowed=("<|end_of_text|>",),
    turns=("<|start_of_role|>",),
    constraint="qwen_xml",
    models=("Granite thinking",),
)

MINICPMV: Final = Format(
    name="minicpmv",
    source="chat template of openbmb/MiniCPM-V-4_5 (2026-11)",
    reasoning=replace(THINK_OPEN, interleaved=False),
    tools=XML_CALLS,
    swallowed=(
        *CHATML_END,
        *(f"<{bar}reserved_{number}{bar}>" for bar in ("", "|") for number in (12, 13, 14, 15)),
    ),
    turns=CHATML_TURNS,
    constraint="qwen_xml",
    models=("MiniCPM-V 4.5",),
)
