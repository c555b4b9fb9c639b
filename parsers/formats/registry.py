"""Names to formats. Family modules load when one of their names is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, NoReturn

from ..errors import FormatDefinitionError, RequestError
from ..format import Format, compose
from ..request import ToolChoice
from ..spelling import fill, find_suffix, is_template, split_suffix
from .forced import FORCED_NAMED, FORCED_REQUIRED

__all__ = [
    "forced_form",
    "format_names",
    "load_format",
    "register_format",
    "reasoning_aliases",
    "resolve_reasoning",
    "resolve_tools",
    "spelled",
    "tool_aliases",
]

_MODULES: Final = {
    "deepseek": ("deepseek_r1", "deepseek_v3", "deepseek_v31"),
    "dsml": ("deepseek_v32", "deepseek_v4", "deepseek_v41", "gigachat35"),
    "gemma": ("functiongemma", "gemma4"),
    "glm": (
        "glm45", "glm47", "hy_v3", "hy_v4", "iquest_q1", "k2_horizon", "ling3", "poolside_v1", "spark25", "telechat4",
        "xing4",
    ),
    "harmony": ("beam", "gpt_oss"),
    "json_lists": (
        "apertus", "apriel", "apriel16", "cohere_command3", "cohere_command4", "firefunction", "granite",
        "hunyuan_a13b", "jamba", "nemotron_nano_v2", "phi4_mini", "xlam",
    ),
    "json_tags": (
        "ernie45", "exaone4", "gigachat3", "granite4", "granite_20b_fc", "internlm2", "longcat", "minimax_m1",
        "trinity",
    ),
    "kimi": ("kimi_k2", "kimi_k3", "kimi_v1"),
    "llama": ("llama3_json",),
    "minimax": ("dots", "minicpm5", "minimax_m2", "minimax_m2_append_think", "minimax_m3", "step3"),
    "muse": ("inkling", "muse"),
    "python_calls": ("lfm2", "llama4_pythonic", "olmo3", "pythonic"),
    "qwen": ("qwen3", "qwen3_coder"),
    "qwen_kin": ("granite_thinking_parser", "mimo", "minicpmv", "nemotron_v3", "seed_oss", "step3p5", "step5"),
    "small": ("functionary_v31", "functionary_v32", "granite_phrases", "holo2", "plamo3", "solar"),
}  # fmt: skip
"""Module of this package -> canonical names in it; the literal is the name in capitals. One of one needs no line."""

_NO_FAMILIES: Final = frozenset({"definition", "forced", "loading", "registry", "response_template"})


def _modules() -> dict[str, str]:
    """Canonical name -> module. A module that is not listed above has one format, of its own name."""
    known = {name: module for module, names in _MODULES.items() for name in names}
    for module in iter_modules(import_module(__package__ or "").__path__):
        if module.name not in _MODULES and module.name not in _NO_FAMILIES:
            known[module.name] = module.name
    return known


_MODULE_OF: Final = _modules()

_REASONING_ALIASES: Final = {
    # vLLM
    "granite": "granite_phrases",
    "openai_gptoss": "gpt_oss",
    "musespark1x": "muse",
    "muse_glimmer": "muse",
    # SGLang, Dynamo, TensorRT-LLM, llama.cpp
    "apertus2509": "apertus",
    "basic": "qwen3",
    "cohere": "cohere_command3",
    "deepseek-r1": "deepseek_r1",
    "deepseek-v3": "deepseek_v3",
    "deepseek-v4": "deepseek_v4",
    "deepseek-v41": "deepseek_v41",
    # Its tools are dots' own; its reasoning is marked as Qwen3 marks it.
    "dots": "qwen3",
    "glm": "glm47",
    "glm_moe_dsa": "glm47",
    "gpt-oss": "gpt_oss",
    "gpt_oss_reasoning": "gpt_oss",
    "hunyuan": "hy_v3",
    "hy3": "hy_v3",
    "interns1": "internlm2",
    "kimi": "kimi_v1",
    "kimi_k25": "kimi_k2",
    "laguna": "poolside_v1",
    "mimo_v2": "mimo",
    "minimax": "minimax_m2",
    "minimax-append-think": "minimax_m2_append_think",
    "minimax_append_think": "minimax_m2_append_think",
    "minimax-m3": "minimax_m3",
    "nanbeige": "qwen3",
    "nano-v3": "nemotron_v3",
    "nemotron-v3": "nemotron_v3",
    "nemotron3": "nemotron_v3",
    "nemotron_3": "nemotron_v3",
    "nemotron_deci": "nemotron_nano_v2",
    "nemotron_nano": "nemotron_v3",
    "qwen3-thinking": "qwen3",
    "qwen3_5": "qwen3",
    # SGLang's name for what a checkpoint's own metadata describes; `hf` is vLLM's.
    "response_template": "hf",
}
_TOOL_ALIASES: Final = {
    # vLLM
    "granite-20b-fc": "granite_20b_fc",
    "internlm": "internlm2",
    "llama4_json": "llama3_json",
    "musespark1x": "muse",
    "muse_glimmer": "muse",
    "openai": "gpt_oss",
    "phi4_mini_json": "phi4_mini",
    "qwen3_json": "hermes",
    "qwen3_xml": "qwen3_coder",
    # SGLang, Dynamo, TensorRT-LLM, llama.cpp
    "apertus2509": "apertus",
    "cohere": "cohere_command3",
    "deepseek-v4": "deepseek_v4",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v31",
    "deepseekv32": "deepseek_v32",
    "deepseekv4": "deepseek_v4",
    "deepseekv41": "deepseek_v41",
    "deepseek_v3_1": "deepseek_v31",
    "deepseek_v3_2": "deepseek_v32",
    "functionary": "functionary_v31",
    "gemma-4": "gemma4",
    "glm": "glm45",
    "glm4": "glm45",
    "gpt-oss": "gpt_oss",
    "harmony": "gpt_oss",
    "hunyuan": "hy_v3",
    "hy3": "hy_v3",
    "interns1": "internlm2",
    "kimi": "kimi_k2",
    "llama3": "llama3_json",
    "llama4": "llama4_pythonic",
    "mimo_v2": "mimo",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3",
    "nanbeige": "qwen3_coder",
    "nemotron_deci": "nemotron_nano_v2",
    "nemotron_nano": "qwen3_coder",
    "phi4": "phi4_mini",
    "qwen": "hermes",
    "qwen25": "hermes",
    "response_template": "hf",
    "xing4_0": "xing4",
}
_OUTSIDE: Final[dict[str, Format]] = {}
"""Formats from files, entry points and checkpoints, by name (`loading.py`). Filled while models load."""

_FROM_CHECKPOINT: Final = ("hf", "response_template")
"""Other engines' names for a format that a checkpoint's own metadata describes."""


def format_names() -> tuple[str, ...]:
    """The canonical names, sorted; those of formats from outside that were loaded among them."""
    return tuple(sorted((*_MODULE_OF, *_OUTSIDE)))


def register_format(format: Format) -> None:
    """Make a format from outside known by its name; one of that name that was loaded before is replaced.

    Raises:
        FormatDefinitionError: the name is taken by a format of this package, or an alias of one.
    """
    if format.name in _MODULE_OF or format.name in _REASONING_ALIASES or format.name in _TOOL_ALIASES:
        raise FormatDefinitionError(f"format {format.name!r}: the name is taken; allowed: one that is not")
    _OUTSIDE[format.name] = format
    load_format.cache_clear()


def _outside(name: str) -> Format | None:
    """A format from outside. Packages that bring formats are asked only where no other has the name."""
    if name not in _OUTSIDE:
        from .loading import load_entry_point

        found = load_entry_point(name)
        if found is None:
            return None
        register_format(found)
    return _OUTSIDE[name]


def _canonical(name: str, aliases: Mapping[str, str]) -> str:
    canonical = _FROM_CHECKPOINT[0] if name in _FROM_CHECKPOINT else aliases.get(name, name)
    return canonical if canonical in _MODULE_OF or _outside(canonical) is not None else _unknown(name)


def reasoning_aliases() -> dict[str, str]:
    """Other names of reasoning formats (the left part of a composition) -> canonical name."""
    return dict(_REASONING_ALIASES)


def tool_aliases() -> dict[str, str]:
    """Other names of tool formats (the right part, or a bare name) -> canonical name."""
    return dict(_TOOL_ALIASES)


def resolve_reasoning(name: str) -> str:
    """The canonical name of a reasoning format: the left part of `REASONING+TOOLS`.

    Raises:
        RequestError: there is none of that name.
    """
    return _canonical(name, _REASONING_ALIASES)


def resolve_tools(name: str) -> str:
    """The canonical name of a tool format: the right part of `REASONING+TOOLS`.

    Raises:
        RequestError: there is none of that name.
    """
    return _canonical(name, _TOOL_ALIASES)


def _unknown(name: str) -> NoReturn:
    if name in _FROM_CHECKPOINT:
        raise RequestError(
            "format",
            f"{name!r}, which stands in a checkpoint's metadata and was read from none",
            "a model whose tokenizer carries a response_template; or a name of `tristream formats`",
        )
    known = ", ".join(format_names())
    raise RequestError("format", repr(name[:80]), f"{known}; or REASONING+TOOLS of two of them")


@lru_cache(maxsize=1024)
def load_format(name: str) -> Format:
    """The format called `name`, or `REASONING+TOOLS` composed of two.

    A bare name is a canonical one, or else an alias: the tool format's, then the reasoning format's. Where the
    tokenizer decides how markers end, `NAME{SUFFIX}` says how (`spelled` finds it); `NAME` alone has no suffix.

    Raises:
        RequestError: there is none of that name.
    """
    reasoning, plus, tools = name.partition("+")
    if plus and "+" not in tools:
        (left, left_suffix), (right, right_suffix) = split_suffix(reasoning), split_suffix(tools)
        left, right = resolve_reasoning(left), resolve_tools(right)
        try:
            return compose(_load(left, left_suffix), _load(right, right_suffix))
        except FormatDefinitionError as error:
            raise RequestError("format", repr(name), f"two formats that agree on their markers ({error})") from None
    bare, suffix = split_suffix(name)
    only_reasoning = bare in _REASONING_ALIASES and bare not in _MODULE_OF and bare not in _TOOL_ALIASES
    canonical = bare if bare in _MODULE_OF else resolve_reasoning(bare) if only_reasoning else resolve_tools(bare)
    return _load(canonical, suffix)


@lru_cache(maxsize=1024)
def spelled(name: str, added: frozenset[str]) -> str:
    """The name with the suffix that this tokenizer's markers end with, where its format leaves that open.

    Args:
        name: a format's name, or of two composed; a suffix that it has already stays.
        added: spellings of the tokenizer's added tokens.

    Raises:
        RequestError: there is none of that name.
    """
    load_format(name)
    reasoning, plus, tools = name.partition("+")
    if plus:
        left, right = _literal(resolve_reasoning(split_suffix(reasoning)[0])), tools
        return f"{_spelled(reasoning, left, added)}+{spelled(right, added)}"
    return _spelled(name, _literal(load_format(split_suffix(name)[0]).name), added)


def _spelled(name: str, literal: Format, added: frozenset[str]) -> str:
    if not is_template(literal) or split_suffix(name)[1]:
        return name
    suffix = find_suffix(literal, added)
    return f"{name}{{{suffix}}}" if suffix else name


def _load(canonical: str, suffix: str) -> Format:
    literal = _literal(canonical)
    if suffix and not is_template(literal):
        raise RequestError("format", repr(f"{canonical}{{{suffix}}}"), f"{canonical}: its markers have no suffix")
    return fill(literal, suffix)


def _literal(canonical: str) -> Format:
    """The format as its module has it: with `{S}` where the tokenizer decides the spelling."""
    if canonical not in _MODULE_OF:
        return _OUTSIDE[canonical]
    found: Format = getattr(import_module(f".{_MODULE_OF[canonical]}", __package__), canonical.upper())
    return found


@lru_cache(maxsize=1024)
def forced_form(format: Format, choice: ToolChoice) -> Format:
    """The format with its calls written as forced JSON; reasoning and the rest stay."""
    return replace(format, tools=FORCED_NAMED if choice == "named" else FORCED_REQUIRED)
