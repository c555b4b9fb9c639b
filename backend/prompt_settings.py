"""Parameters of the models that take requests: `preprocess` and `chat_direct`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tristream.parsers.errors import RequestError

from .errors import SettingsError
from .json_text import json_type, parse_json
from .llm_inputs import GuideType
from .settings import StreamSettings, limited

__all__ = ["PromptSettings", "char_bounds", "json_setting"]


@dataclass(frozen=True, slots=True)
class PromptSettings(StreamSettings):
    """Parameters of the models that take requests; those of `StreamSettings` as well.

    Args:
        tokenizer: a Hugging Face folder: tokenizer.json, tokenizer_config.json, config.json.
        chat_template: file of the chat template; absent = the tokenizer's own.
        chat_template_kwargs: JSON object of template variables, where a request sets none of the name.
        max_context: the model's context in tokens; absent = what config.json or the tokenizer says.
        max_request_bytes: most bytes of a body.
        max_messages: most messages of a body.
        max_tools: most tools of a body.
        max_schema_bytes: most bytes of all JSON schemas of a body, as compact JSON.
        sampling_defaults: JSON object of OpenAI sampling members, where a request says nothing.
        tool_strict_level: what `auto` holds of tools without `strict`: nothing, name and frame, arguments too.
        auto_tools: `model`: under `auto` the model decides. `call`: for models too small to decide: it is held
            to one call (under `required` too), and to text where the last message is a tool's result.
        reasoning_chars: fewest and most characters of reasoning, `20-160`; absent = as the model likes.
        max_reasoning_tokens: most tokens of reasoning; a request's `thinking_token_budget` may ask for fewer. Absent =
            as the model likes. Formats with message headers (gpt_oss, beam, muse) are not held.
        constraints: send constraints to the LLM. false: nothing is held, and nothing refused for it. Where true and
            the LLM's backend takes none, what must be held is refused.
        guide_type: how TensorRT-LLM is told a constraint.
        llm_batched: the LLM's model has `max_batch_size` over 0; absent = as its backend usually has it.
        strict_self_check: a chat template that the format does not read back is an error, not a warning.
    """

    tokenizer: Path | None = None
    chat_template: Path | None = None
    chat_template_kwargs: str = "{}"
    max_context: int | None = limited(None, low=2)
    max_request_bytes: int = limited(4 * 1024 * 1024, low=1024)
    max_messages: int = limited(4096, low=1)
    max_tools: int = limited(1024, low=1)
    max_schema_bytes: int = limited(1024 * 1024, low=1024)
    sampling_defaults: str = "{}"
    tool_strict_level: Literal["auto", "function", "parameter"] = "auto"
    auto_tools: Literal["model", "call"] = "model"
    reasoning_chars: str = ""
    max_reasoning_tokens: int | None = limited(None, low=0, high=2**31 - 1)
    constraints: bool = True
    guide_type: GuideType = "ebnf_grammar"
    llm_batched: bool | None = None
    strict_self_check: bool = False


def char_bounds(text: str) -> tuple[int, int] | None:
    """The setting `reasoning_chars`; None where it is empty.

    Raises:
        SettingsError: it is no range.
    """
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,6})-(\d{1,6})", text)
    if match is None or not 2 <= int(match[1]) < int(match[2]):
        raise SettingsError("reasoning_chars", repr(text), "fewest-most, for example 20-160, from 2 characters")
    return int(match[1]), int(match[2])


def json_setting(name: str, text: str) -> dict[str, Any]:
    """A setting that is a JSON object.

    Raises:
        SettingsError: it is none.
    """
    try:
        value = parse_json(text, name)
    except RequestError as error:
        raise SettingsError(name, error.found, error.allowed) from None
    if not isinstance(value, dict):
        raise SettingsError(name, f"a JSON {json_type(value)}", "a JSON object")
    return value
