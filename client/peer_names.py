"""Parser names of other engines, for the table in `docs/formats.md`: what a user writes there, and here.

Sources: vLLM 0.33.0 and SGLang 0.5.23, the registries of the installed packages; Dynamo, its pages on tool call
and reasoning parsing and `lib/parsers`; TensorRT-LLM, `serve/tool_parser` and `llmapi/reasoning_parser.py` (2026-11).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tristream.parsers.formats.registry import resolve_reasoning, resolve_tools

__all__ = ["FROM_CHECKPOINT", "PEERS", "Peer", "Role", "carried_over"]

Role = Literal["reasoning", "tools"]

FROM_CHECKPOINT: Final = frozenset({"hf", "response_template"})
"""Names that stand for what a checkpoint's own metadata describes."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine's names.

    Args:
        engine: what people call it.
        options: its options for reasoning and tools.
        reasoning, tools: the names, separated by blanks.
        others: (role, name) -> our name, where our registry means another format by that name.
    """

    engine: str
    options: tuple[str, str]
    reasoning: str
    tools: str
    others: Mapping[tuple[Role, str], str]


PEERS: Final = (
    Peer(
        "vLLM",
        ("--reasoning-parser", "--tool-call-parser"),
        reasoning=(
            "beam cohere_command3 cohere_command4 deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 ernie45 gemma4 "
            "glm45 glm47 granite granite_thinking_parser hf holo2 hunyuan_a13b hy_v3 hy_v4 inkling k2_horizon "
            "kimi_k2 kimi_k3 ling3 mimo minicpmv minimax_m2 minimax_m2_append_think minimax_m3 mistral muse "
            "muse_glimmer musespark1x nemotron_v3 olmo3 openai_gptoss plamo3 poolside_v1 qwen3 seed_oss step3 "
            "step3p5 step5"
        ),
        tools=(
            "apertus beam cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 "
            "deepseek_v41 dots ernie45 functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc granite4 "
            "hermes hf hunyuan_a13b hy_v3 hy_v4 inkling internlm jamba k2_horizon kimi_k2 kimi_k3 lfm2 ling3 "
            "llama3_json llama4_json llama4_pythonic longcat mimo minicpm5 minimax_m2 minimax_m3 mistral muse "
            "muse_glimmer musespark1x olmo3 openai phi4_mini_json plamo3 poolside_v1 pythonic qwen3_coder "
            "qwen3_json qwen3_xml seed_oss step3 step3p5 step5 xlam"
        ),
        others={},
    ),
    Peer(
        "SGLang",
        ("--reasoning-parser", "--tool-call-parser"),
        reasoning=(
            "apertus2509 beam cohere_command4 deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 dots gemma4 "
            "gigachat35 glm45 gpt-oss granite_thinking_parser hunyuan inkling interns1 iquest_q1 k2_horizon kimi "
            "kimi_k2 kimi_k3 ling3 mimo minimax minimax-append-think minimax-m3 mistral muse nanbeige nemotron_3 "
            "poolside_v1 qwen3 qwen3-thinking response_template step3 step3p5"
        ),
        tools=(
            "apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots "
            "gemma4 gigachat3 gigachat35 glm glm45 glm47 gpt-oss hermes hunyuan inkling interns1 iquest_q1 "
            "k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo minicpm5 minimax-m2 minimax-m3 mistral muse "
            "nanbeige poolside_v1 pythonic qwen qwen25 qwen3_coder response_template spark25 step3 step3p5 "
            "trinity"
        ),
        others={},
    ),
    Peer(
        "Dynamo",
        ("--dyn-reasoning-parser", "--dyn-tool-call-parser"),
        reasoning=(
            "basic deepseek_r1 deepseek_v41 glm45 gpt_oss granite hy3 kimi kimi_k25 mimo mimo_v2 "
            "minimax_append_think mistral muse muse_glimmer nemotron3 nemotron_deci nemotron_nano qwen3 step3"
        ),
        tools=(
            "deepseek-v4 deepseek_v3 deepseek_v3_1 deepseek_v3_2 deepseek_v4 deepseek_v41 deepseekv4 gemma-4 "
            "gemma4 glm47 harmony hermes hy3 jamba kimi_k2 llama3_json mimo mimo_v2 minimax_m2 mistral muse "
            "muse_glimmer nemotron_deci nemotron_nano phi4 pythonic qwen3_coder"
        ),
        others={},
    ),
    Peer(
        "TensorRT-LLM",
        ("--reasoning_parser", "--tool_parser"),
        reasoning=(
            "deepseek-r1 deepseek_v4 gemma4 glm glm45 glm47 glm_moe_dsa kimi_k2 kimi_k25 kimi_k3 laguna "
            "minimax_m3 nano-v3 nemotron-v3 poolside_v1 qwen3 qwen3_5"
        ),
        tools=(
            "deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 gemma4 glm4 glm47 kimi_k2 minimax_m2 qwen3 "
            "qwen3_coder telechat4 xing4_0"
        ),
        # Its `qwen3` reads JSON in <tool_call>; ours is the family that writes XML.
        others={("tools", "qwen3"): "hermes"},
    ),
)


def carried_over(peer: Peer) -> Iterator[tuple[Role, str, str]]:
    """Role, the engine's name and our canonical one, "" where the checkpoint's metadata says it."""
    roles: tuple[tuple[Role, str], ...] = (("reasoning", peer.reasoning), ("tools", peer.tools))
    for role, names in roles:
        resolve = resolve_reasoning if role == "reasoning" else resolve_tools
        for name in names.split():
            if name in FROM_CHECKPOINT:
                yield role, name, ""
            else:
                yield role, name, peer.others.get((role, name)) or resolve(name)
