"""The OpenAI chat.completions body as pydantic models: parsed JSON in, a checked body out.

Strict types, bounded sizes; members that nobody here knows are ignored, as OpenAI's API is extended all
the time. Whatever is wrong is one `RequestError` that names the field, what was found and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tristream.parsers.errors import RequestError
from tristream.parsers.request import DEFAULT_MAX_HELD_CHARS

from .engines.base import MAX_STOP_CHARS, MAX_STOPS, MAX_TOP_LOGPROBS
from .json_text import json_type, shown

__all__ = ["ChatBody", "ChatMessage", "SamplingBody", "read_body", "validated"]


def _text(value: Any) -> Any:
    """Message content: a string, or a list of text parts, which are joined by newlines as vLLM joins them."""
    if not isinstance(value, list):
        if value is None or isinstance(value, str):
            return value
        raise RequestError("", shown(value), "a string, or a list of text parts")
    texts = []
    for index, part in enumerate(value):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise RequestError(f"[{index}]", shown(part), 'an object {"type": "text", "text": ...}')
        kind = part.get("type")
        name = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}.get(str(kind))
        if name is None or not isinstance(kind, str):
            raise RequestError(f"[{index}].type", shown(kind), "'text' (this model reads text only)")
        if not isinstance(part.get(name), str):
            raise RequestError(f"[{index}].{name}", shown(part.get(name)), "a string")
        texts.append(part[name])
    return "\n".join(texts)


def _arguments(value: Any) -> Any:
    """Arguments of a call in the history: OpenAI has JSON text, some clients send the object itself."""
    if value is None or isinstance(value, str | dict):
        return value
    raise RequestError("", shown(value), "a string with JSON, or an object")


def _unsupported(value: Any) -> Any:
    if value is None or value in ({}, [], ["text"]):
        return None
    raise RequestError("", shown(value), "nothing: this server does not support it")


def _stop(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Text = Annotated[str | None, BeforeValidator(_text)]
Unsupported = Annotated[None, BeforeValidator(_unsupported)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


class CalledFunction(_Model):
    """The function of a call in the history."""

    name: str = Field(min_length=1)
    arguments: Annotated[Any, BeforeValidator(_arguments)] = None


class CallInHistory(_Model):
    """A tool call that an assistant message made."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(_Model):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text = None
    name: str | None = None
    tool_calls: list[CallInHistory] | None = None
    tool_call_id: str | None = None
    reasoning: Text = None
    reasoning_content: Text = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.role != "assistant":
            if self.content is None:
                raise RequestError(
                    ".content", "nothing", f"a string, or a list of text parts, in a {self.role} message"
                )
            if self.tool_calls:
                raise RequestError(".tool_calls", f"calls in a {self.role} message", "an assistant message")
        return self


class SchemaFormat(_Model):
    """`response_format.json_schema`."""

    name: str | None = None
    schema_: Any = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(_Model):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None


class SamplingBody(_Model):
    """How to choose tokens; also what the setting `sampling_defaults` may hold."""

    max_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    ignore_eos: bool | None = None


class ChatBody(SamplingBody):
    """A chat.completions body, as far as anything here reads it."""

    messages: list[ChatMessage] = Field(min_length=1)
    model: str | None = None
    user: str | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: int | None = Field(default=None, ge=1)
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]] | None, BeforeValidator(_stop)
    ] = Field(default=None, max_length=MAX_STOPS)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = Field(default=None, max_length=64)
    thinking_token_budget: int | None = Field(default=None, ge=0, le=2**31 - 1)
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    format: str | None = Field(default=None, max_length=128)
    id_seed: str | None = Field(default=None, max_length=256)
    max_held_chars: int | None = Field(default=None, ge=1024, le=DEFAULT_MAX_HELD_CHARS)
    logit_bias: Unsupported = None
    functions: Unsupported = None
    function_call: Unsupported = None
    modalities: Unsupported = None
    audio: Unsupported = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs", str(self.top_logprobs), "0, or `logprobs` true as well")
        if self.continue_final_message:
            if self.add_generation_prompt:
                raise RequestError("continue_final_message", "true with add_generation_prompt", "one of the two")
            if self.messages[-1].role != "assistant" or self.messages[-1].content is None:
                raise RequestError(
                    "continue_final_message", "no last assistant message with content", "one to continue"
                )
        return self


_AnyModel = TypeVar("_AnyModel", bound=BaseModel)


def read_body(value: Any, *, max_messages: int) -> ChatBody:
    """Check a parsed body.

    Args:
        value: parsed JSON.
        max_messages: most messages.

    Raises:
        RequestError: the first thing that is wrong.
    """
    if not isinstance(value, dict):
        raise RequestError("request", f"a JSON {json_type(value)}", "a JSON object")
    if "messages" not in value:
        raise RequestError("messages", "nothing", "a list of at least one message")
    messages = value["messages"]
    if isinstance(messages, list) and len(messages) > max_messages:
        raise RequestError("messages", f"{len(messages)} messages", f"at most {max_messages} (max_messages)")
    return validated(ChatBody, value)


def validated(model: type[_AnyModel], value: Mapping[str, Any]) -> _AnyModel:
    """`value` as `model`; pydantic's first complaint as a `RequestError`.

    Raises:
        RequestError: see above.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _request_error(error) from None


_KINDS: Final[Mapping[str, str]] = {
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "a list",
    "string_type": "a string",
    "string_too_short": "a string that is not empty",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""pydantic's error type -> what is allowed, in JSON's words."""


def _request_error(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    path = "".join(_path(first["loc"]))
    own = first.get("ctx", {}).get("error")
    if isinstance(own, RequestError):
        return RequestError((path + own.field).removeprefix("."), own.found, own.allowed)
    allowed = _KINDS.get(first["type"]) or first["msg"].removeprefix("Input should be ")
    if first["type"] == "missing":
        return RequestError(path, "nothing", "a value; this field is required")
    found = first["input"]
    if first["type"] == "too_long":
        return RequestError(path, f"{len(found)} items", f"at most {first['ctx']['max_length']}")
    if first["type"] == "too_short":
        return RequestError(path, "an empty list", "at least one")
    return RequestError(path, shown(found), allowed)


def _path(loc: Sequence[int | str]) -> Iterator[str]:
    for index, part in enumerate(loc):
        if isinstance(part, int):
            yield f"[{part}]"
        else:
            yield f".{part}" if index else part
