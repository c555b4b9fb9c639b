"""Names of other engines' parsers resolve in their role: a configuration carries over as `REASONING+TOOLS`.

The lists are what vLLM 0.33.0 and SGLang 0.5.23 register, and the names of Dynamo and TensorRT-LLM.
"""

from __future__ import annotations

from itertools import product

import pytest

from tristream.parsers import Format, RequestError, load_format
from tristream.parsers.formats.registry import resolve_reasoning, resolve_tools

VLLM_REASONING = """
    qwen3 seed_oss step3p5 step5 mimo nemotron_v3 granite_thinking_parser minicpmv granite deepseek_r1 deepseek_v3
    holo2 poolside_v1 deepseek_v4 deepseek_v41 glm45 glm47 ling3 kimi_k2 kimi_k3 minimax_m2
    minimax_m2_append_think minimax_m3 mistral gemma4 inkling plamo3 openai_gptoss ernie45 hunyuan_a13b hy_v3
    hy_v4 k2_horizon muse musespark1x muse_glimmer olmo3 step3 cohere_command3 cohere_command4 hf beam
""".split()
VLLM_TOOLS = """
    qwen3_coder qwen3_xml seed_oss step3p5 step5 mimo hermes qwen3_json longcat granite4 granite granite-20b-fc
    deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 glm45 glm47 ling3 poolside_v1 kimi_k2 kimi_k3
    minimax_m2 minimax_m3 mistral gemma4 functiongemma inkling plamo3 openai ernie45 hunyuan_a13b hy_v3 hy_v4
    k2_horizon muse musespark1x muse_glimmer olmo3 step3 pythonic llama4_pythonic lfm2 llama3_json llama4_json
    jamba internlm phi4_mini_json xlam gigachat3 apertus dots minicpm5 cohere_command3 cohere_command4 hf beam
""".split()
SGLANG_REASONING = """
    apertus2509 beam deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 dots glm45 ling3 hunyuan gpt-oss k2_horizon
    kimi kimi_k2 kimi_k3 mimo muse poolside_v1 qwen3 qwen3-thinking minimax minimax-append-think minimax-m3
    nanbeige step3 step3p5 mistral nemotron_3 granite_thinking_parser interns1 gemma4 gigachat35 inkling iquest_q1
    cohere_command4 response_template
""".split()
SGLANG_TOOLS = """
    apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots glm glm45
    glm47 gpt-oss k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo minicpm5 mistral muse poolside_v1 pythonic
    qwen qwen25 qwen3_coder spark25 step3 step3p5 minimax-m2 minimax-m3 nanbeige trinity interns1 hermes hunyuan
    gigachat3 gigachat35 gemma4 inkling iquest_q1 response_template
""".split()
OTHERS_REASONING = """
    basic deepseek_r1 gpt_oss qwen3 nemotron_deci kimi kimi_k25 step3 mistral granite nemotron_nano nemotron3
    glm45 minimax_append_think deepseek-r1 glm glm47 glm_moe_dsa laguna nano-v3 nemotron-v3 qwen3_5
""".split()
OTHERS_TOOLS = """
    kimi_k2 minimax_m2 deepseek-v4 deepseek_v3 deepseek_v3_1 deepseek_v3_2 qwen3_coder glm47 nemotron_deci
    nemotron_nano gemma4 gemma-4 harmony hermes phi4 pythonic llama3_json mistral jamba deepseek_v31 deepseek_v32
    glm4 telechat4 xing4_0
""".split()
FROM_CHECKPOINT = {"hf", "response_template"}


def reasons(format: Format) -> bool:
    """Does the reasoning part say how reasoning is marked, or what becomes of it?"""
    return format.reasoning is not None or format.messages is not None


def test_the_lists_are_whole() -> None:
    sizes = [len(set(names)) for names in (VLLM_REASONING, VLLM_TOOLS, SGLANG_REASONING, SGLANG_TOOLS)]
    assert sizes == [42, 58, 36, 44]


@pytest.mark.parametrize("name", sorted({*VLLM_REASONING, *SGLANG_REASONING, *OTHERS_REASONING} - FROM_CHECKPOINT))
def test_a_reasoning_name(name: str) -> None:
    canonical = resolve_reasoning(name)
    format = load_format(f"{name}+identity")
    assert format.name == f"{canonical}+identity"
    assert format.tools is None
    # That mode of vLLM's leaves the reasoning in the content.
    assert reasons(format) or canonical == "minimax_m2_append_think"


@pytest.mark.parametrize("name", sorted({*VLLM_TOOLS, *SGLANG_TOOLS, *OTHERS_TOOLS} - FROM_CHECKPOINT))
def test_a_tool_name(name: str) -> None:
    canonical = resolve_tools(name)
    format = load_format(f"identity+{name}")
    assert format.name == f"identity+{canonical}"
    assert format.reasoning is None
    assert format.tools is not None


def test_every_pair_of_vllm_s_names_composes() -> None:
    pairs = product(set(VLLM_REASONING) - FROM_CHECKPOINT, set(VLLM_TOOLS) - FROM_CHECKPOINT)
    assert all(load_format(f"{reasoning}+{tools}").tools is not None for reasoning, tools in pairs)


def test_names_that_mean_another_format_in_the_other_role() -> None:
    assert (resolve_reasoning("granite"), resolve_tools("granite")) == ("granite_phrases", "granite")
    assert (resolve_reasoning("kimi"), resolve_tools("kimi")) == ("kimi_v1", "kimi_k2")
    assert load_format("granite").name == "granite"
    assert load_format("granite").reasoning is None
    assert load_format("basic").name == "qwen3", "an alias of a reasoning format alone, as a bare name"


@pytest.mark.parametrize("name", sorted(FROM_CHECKPOINT))
def test_a_name_that_a_checkpoint_gives_its_meaning(name: str) -> None:
    for wanted in (name, f"{name}+hermes", f"qwen3+{name}"):
        with pytest.raises(RequestError, match="checkpoint's metadata"):
            load_format(wanted)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(RequestError, match=r"'nonesuch'; allowed: .*qwen3"):
        load_format("nonesuch+hermes")
