"""An OpenAI request -> all that the LLM and the parser need: prompt ids, sampling, constraint, opening.

`preprocess` and `chat_direct` use the same `PromptBuilder`. Whatever is wrong with a request comes out here, before
anything is generated, as a `RequestError` that names the field, what was found and what is allowed (PROTOCOL 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tristream.parsers import load_format
from tristream.parsers.constraint import CALL_SHAPES, AutoChoice, ReasoningShape, StrictLevel, build_constraint
from tristream.parsers.constraint_markers import bind_markers
from tristream.parsers.errors import RequestError
from tristream.parsers.format import Format
from tristream.parsers.formats import spelled
from tristream.parsers.opening import opening
from tristream.parsers.request import ChatOptions
from tristream.parsers.states import State

from .errors import SettingsError
from .format_choice import check_template, choose_format
from .json_schemas import check_schema
from .json_text import parse_json
from .llm_inputs import LLM_INPUTS, InputOptions, Prompt, check_sampling, reaches
from .llm_outputs import BACKENDS
from .prompt_settings import PromptSettings, char_bounds, json_setting
from .rendering import ChatTemplate, check_variables
from .request_body import ChatBody, SamplingBody, read_body, validated
from .tensors import compact_json

__all__ = ["PromptBuilder", "PromptSettings"]

PROMPT_TAIL_CHARS: Final = 4096
"""End of the prompt that the parser sees: the current turn's last reasoning marker stands in it."""

PARSER_MEMBERS: Final = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "include_reasoning",
    "unknown_tool",
    "force_nonempty_content",
    "logprobs",
    "top_logprobs",
    "reasoning_logprobs",
    "return_token_ids",
    "chat_template_kwargs",
    "reasoning_effort",
    "stream_options",
    "n",
    "max_held_chars",
    "id_seed",
)
"""Members of the body that the parser's options read; the rest stays here."""


class PromptBuilder:
    """Checks and renders requests; immutable once built.

    Args:
        settings: the model's parameters.
        direct: the LLM is called by who builds the prompt, not as the next step of an ensemble.

    Raises:
        SettingsError: one of them cannot be used.
    """

    def __init__(self, settings: PromptSettings, *, direct: bool = False) -> None:
        if settings.tokenizer is None:
            raise SettingsError("tokenizer", "nothing", "a Hugging Face folder with a tokenizer")
        self.settings = settings
        self.template = ChatTemplate(settings.tokenizer, settings.chat_template, settings.max_context)
        chosen = choose_format(settings, self.template)
        self.format = chosen.name
        """The model's format: the one that was set, or found."""
        self.remarks = (*chosen.remarks, *check_template(settings, self.template, chosen.name))
        """What the server's log should say about the format; warnings first to last."""
        self._bounds = char_bounds(settings.reasoning_chars)
        self._variables = json_setting("chat_template_kwargs", settings.chat_template_kwargs)
        self._defaults = json_setting("sampling_defaults", settings.sampling_defaults)
        try:
            check_variables(self.template, self._variables, "chat_template_kwargs")
            validated(SamplingBody, self._defaults)
        except RequestError as error:
            raise SettingsError(error.field, error.found, error.allowed) from None
        self._defaults = {name: value for name, value in self._defaults.items() if name in SamplingBody.model_fields}
        self._direct = direct
        self.input_options = InputOptions(
            self.template.encode,
            settings.end_ids() or self.template.end_ids,
            self.template.added_bos,
            settings.guide_type,
        )
        """What is needed to write a prompt's tensors (`llm_inputs.py`)."""
        if settings.constraints and not self._constrained():
            _check_holds_nothing(settings)

    def warm_up(self) -> None:
        """Do once what the first request would pay for."""
        self.build('{"messages":[{"role":"user","content":"Hello"}]}')

    def build(self, text: str) -> Prompt:
        """Check and render one request.

        Args:
            text: an OpenAI chat.completions body as JSON.

        Raises:
            RequestError: it cannot be served.
        """
        settings = self.settings
        raw = parse_json(text, "request", max_bytes=settings.max_request_bytes, bound="max_request_bytes")
        body = read_body(raw, max_messages=settings.max_messages)
        self._check_tools(raw)
        options = ChatOptions.from_openai(raw)
        if body.n is not None and body.n > settings.max_choices:
            raise RequestError("n", str(body.n), f"1 to {settings.max_choices} (max_choices)")
        schema = self._check_schemas(options, body)
        name = spelled(body.format, self.template.added_spellings) if body.format else self.format
        spec = load_format(name)
        prompt = self._render(body, raw, options)
        input_ids = self.template.encode(prompt)
        max_tokens = self._check_length(body, len(input_ids))
        context = self.template.max_context
        if max_tokens is None and context is not None and LLM_INPUTS[settings.llm_backend].bounded:
            max_tokens = context - len(input_ids)
        sampling = self._sampling(body, max_tokens)
        check_sampling(settings.llm_backend, sampling, direct=self._direct)
        budget = self._budget(spec, body)
        constraint = self._constraint(spec, options, body, prompt, schema, budget) if settings.constraints else None
        if constraint is not None and not self._constrained():
            raise _unheld(options, body)
        opening = {
            "request": _parser_request(raw, options),
            "format": name,
            "prompt_tail": prompt[-PROMPT_TAIL_CHARS:],
            "prompt_tokens": len(input_ids),
        }
        if not BACKENDS[settings.llm_backend].names_end:
            ends = () if sampling["ignore_eos"] else self.input_options.end_ids
            opening |= {"end_ids": list(ends), "max_tokens": sampling["max_tokens"]}
        return Prompt(prompt, input_ids, sampling, constraint, opening)

    def _constrained(self) -> bool:
        return reaches(LLM_INPUTS[self.settings.llm_backend].constrained, direct=self._direct)

    def _check_tools(self, raw: Mapping[str, Any]) -> None:
        tools = raw.get("tools")
        if not isinstance(tools, list) or not tools:
            return  # what is neither a list nor null is refused by ChatOptions
        if len(tools) > self.settings.max_tools:
            raise RequestError("tools", f"{len(tools)} tools", f"at most {self.settings.max_tools} (max_tools)")
        if not self.template.reads_tools and raw.get("tool_choice") != "none":
            raise RequestError("tools", "tools", "none: this model's chat template declares no tools")

    def _check_schemas(self, options: ChatOptions, body: ChatBody) -> Mapping[str, Any] | bool | None:
        """Check all schemas; returns that of `response_format`."""
        size = 0
        for index, tool in enumerate(options.tools):
            check_schema(tool.parameters, f"tools[{index}].function.parameters", object_only=True)
            size += len(compact_json(tool.parameters).encode("utf-8", "replace"))
        schema: Mapping[str, Any] | bool | None = None
        if body.response_format is not None and body.response_format.type == "json_object":
            schema = {"type": "object"}
        elif body.response_format is not None and body.response_format.type == "json_schema":
            spec = body.response_format.json_schema
            where = "response_format.json_schema"
            if spec is None or spec.schema_ is None:
                raise RequestError(where if spec is None else f"{where}.schema", "nothing", "a JSON schema")
            schema = spec.schema_
            check_schema(schema, f"{where}.schema")
            size += len(compact_json(schema).encode("utf-8", "replace"))
        if size > self.settings.max_schema_bytes:
            allowed = f"at most {self.settings.max_schema_bytes} (max_schema_bytes)"
            raise RequestError("tools", f"{size} bytes of JSON schemas", allowed)
        return schema

    def _render(self, body: ChatBody, raw: Mapping[str, Any], options: ChatOptions) -> str:
        variables = {**self._variables, **(body.chat_template_kwargs or {})}
        check_variables(self.template, body.chat_template_kwargs or {}, "chat_template_kwargs")
        if body.reasoning_effort is not None and self.template.reads_effort:
            variables["reasoning_effort"] = body.reasoning_effort
        continued = bool(body.continue_final_message)
        return self.template.render(
            body.messages,
            None if options.tool_choice == "none" else raw.get("tools"),
            variables,
            add_generation_prompt=not continued if body.add_generation_prompt is None else body.add_generation_prompt,
            continue_final_message=continued,
        )

    def _check_length(self, body: ChatBody, prompt_tokens: int) -> int | None:
        """The prompt must leave room for an answer, and for as many tokens as were asked for."""
        if not prompt_tokens:
            raise RequestError("messages", "an empty prompt", "messages from which the chat template makes text")
        asked = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        context = self.template.max_context
        if context is not None and prompt_tokens > context - 1:
            found = f"a prompt of {prompt_tokens} tokens"
            raise RequestError("messages", found, f"at most {context - 1} with the model's context of {context}")
        if asked is None:
            asked = self._defaults.get("max_tokens")
            return asked if asked is None or context is None else min(asked, context - prompt_tokens)
        if context is None or asked <= context - prompt_tokens:
            return asked
        field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        allowed = f"1 to {context - prompt_tokens}: the model's context is {context}, the prompt has {prompt_tokens}"
        raise RequestError(field, str(asked), allowed)

    def _sampling(self, body: ChatBody, max_tokens: int | None) -> dict[str, Any]:
        defaults = self._defaults
        sampling: dict[str, Any] = {"max_tokens": max_tokens}
        for name, standard in _STANDARD_SAMPLING.items():
            value = getattr(body, name)
            sampling[name] = defaults.get(name, standard) if value is None else value
        sampling["top_k"] = max(sampling["top_k"], 0)  # vLLM's -1 is all
        sampling["stop"] = body.stop or []
        sampling["n"] = body.n or 1
        sampling["logprobs"] = bool(body.logprobs)
        sampling["top_logprobs"] = body.top_logprobs or 0
        return sampling

    def _constraint(
        self,
        spec: Format,
        options: ChatOptions,
        body: ChatBody,
        prompt: str,
        schema: Mapping[str, Any] | bool | None,
        budget: int | None,
    ) -> dict[str, Any] | None:
        auto: AutoChoice = "model"
        if self.settings.auto_tools == "call":
            auto = "text" if body.messages[-1].role == "tool" else "call"
        level: StrictLevel = self.settings.tool_strict_level
        calls = CALL_SHAPES.get(spec.constraint)
        tag = build_constraint(
            options,
            calls=calls,
            reasoning=self._reasoning(spec, options, prompt, budget),
            response_schema=schema,
            level=level,
            auto=auto,
        )
        if tag is None or self.settings.match == "text":
            return tag
        markers = (*(calls.markers if calls else ()), *_reasoning_markers(spec))
        return bind_markers(
            tag, {name: self.template.added_ids[name] for name in markers if name in self.template.added_ids}
        )

    def _budget(self, spec: Format, body: ChatBody) -> int | None:
        """Most tokens of reasoning: the request's, the server's, or the smaller of both.

        Raises:
            RequestError: the request has one, and nothing that holds it.
        """
        asked, most = body.thinking_token_budget, self.settings.max_reasoning_tokens
        if asked is not None and (spec.messages is not None or not self.settings.constraints):
            allowed = "none: nothing holds the reasoning of this model"
            raise RequestError("thinking_token_budget", str(asked), allowed)
        return most if asked is None else asked if most is None else min(asked, most)

    def _reasoning(self, spec: Format, options: ChatOptions, prompt: str, budget: int | None) -> ReasoningShape | None:
        """Where the prompt leaves the model, by the parser's own judgement."""
        if spec.reasoning is None:
            return None
        start = opening(spec, options, prompt[-PROMPT_TAIL_CHARS:])
        starts, ends = spec.reasoning.starts[0], spec.reasoning.ends[0]
        if start.state is State.REASONING:
            return ReasoningShape(starts, ends, "open", self._bounds, budget)
        return ReasoningShape(starts, ends, "closed" if start.reasoned else "unknown", budget=budget)


_STANDARD_SAMPLING: Final[Mapping[str, Any]] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "seed": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "ignore_eos": False,
}
"""OpenAI's defaults, and none where OpenAI has no such member."""


def _check_holds_nothing(settings: PromptSettings) -> None:
    """Do the settings themselves hold nothing, where the LLM takes no constraint?

    Raises:
        SettingsError: one of them would be refused with every request.
    """
    free = {"tool_strict_level": "auto", "auto_tools": "model", "reasoning_chars": "", "max_reasoning_tokens": None}
    for name, value in free.items():
        if getattr(settings, name) != value:
            found = f"{getattr(settings, name)!r}, which this LLM's backend cannot hold"
            raise SettingsError(name, found, f"{value or 'nothing'}; or constraints: false, and nothing is held")


def _unheld(options: ChatOptions, body: ChatBody) -> RequestError:
    """The refusal of a request that an LLM without constraints cannot be held to."""
    allowed = "what needs no constraint: this LLM's backend takes none"
    if body.response_format is not None and body.response_format.type != "text":
        return RequestError("response_format.type", repr(body.response_format.type), f"'text', or {allowed}")
    if body.thinking_token_budget is not None:
        return RequestError("thinking_token_budget", str(body.thinking_token_budget), allowed)
    if options.tool_choice != "auto":
        return RequestError("tool_choice", "a choice that demands a call", f"'auto' or 'none', or {allowed}")
    return RequestError("tools", "a tool with `strict: true`", f"tools without, or {allowed}")


def _reasoning_markers(spec: Format) -> tuple[str, ...]:
    return () if spec.reasoning is None else (*spec.reasoning.starts, *spec.reasoning.ends)


def _parser_request(raw: Mapping[str, Any], options: ChatOptions) -> dict[str, Any]:
    request = {name: raw[name] for name in PARSER_MEMBERS if raw.get(name) is not None}
    if options.history_calls:
        # The parser only counts the calls of the history (Kimi's ids go on from there).
        request["messages"] = [{"tool_calls": [{}] * options.history_calls}]
    return request
