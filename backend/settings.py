"""config.pbtxt parameters -> frozen settings, checked.

A model's settings are a frozen dataclass whose fields are the parameters. `read_settings` reads the
strings that Triton hands over; its errors name the parameter, what was found and what is allowed.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import SettingsError
from .llm_outputs import LlmBackend

__all__ = ["ModelArguments", "PostprocessSettings", "StreamSettings", "limited", "read_settings"]

SettingsType = TypeVar("SettingsType")

MODEL_DIRECTORY: Final = "$$TRITON_MODEL_DIRECTORY"
"""Triton's own spelling for the folder of the model, also where the repository was fetched from S3 or GCS."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def limited(default: Any = MISSING, *, low: float | None = None, high: float | None = None) -> Any:
    """A numeric field with bounds, both inclusive; for the dataclasses that `read_settings` reads."""
    metadata = {"low": low, "high": high}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class ModelArguments:
    """What Triton hands to `initialize`.

    Args:
        name: the model's name.
        directory: its folder in the repository (the one with config.pbtxt).
        config: the whole configuration, as parsed JSON.
        parameters: config.pbtxt `parameters`, name -> string.
    """

    name: str
    directory: Path
    config: Mapping[str, Any]
    parameters: Mapping[str, str]

    @classmethod
    def from_triton(cls, args: Mapping[str, str]) -> ModelArguments:
        """Read the `args` of `initialize`."""
        config = json.loads(args["model_config"])
        parameters = {name: str(value.get("string_value", "")) for name, value in config.get("parameters", {}).items()}
        return cls(args["model_name"], Path(args["model_repository"]), config, parameters)

    @property
    def instance_count(self) -> int:
        """How many instances Triton starts, over all groups."""
        return sum(int(group.get("count", 1)) for group in self.config.get("instance_group", ())) or 1


def read_settings(
    kind: type[SettingsType], parameters: Mapping[str, str], directory: Path | None = None
) -> SettingsType:
    """Make the settings dataclass `kind` from parameters.

    A parameter that is absent or "" takes the field's default. Names all in capitals are Triton's own and
    are passed over. In `str` and `Path` values `$$TRITON_MODEL_DIRECTORY` and `${NAME}` (environment) are filled
    in; a relative `Path` counts from `directory`.

    Args:
        kind: a dataclass whose fields are str, int, float, bool, Path, a Literal of strings, or such a type or None.
        parameters: name -> string, as in config.pbtxt.
        directory: the model's folder.

    Raises:
        SettingsError: an unknown name, a value that does not parse or is out of bounds, a missing one.
    """
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    types = get_type_hints(kind)
    for name, value in parameters.items():
        if name not in known and not name.isupper():
            raise SettingsError(name, repr(value), f"the parameters {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for name, item in known.items():
        text = parameters.get(name, "").strip()
        if text:
            values[name] = _value(name, text, types[name], directory)
            _check_bounds(name, values[name], item.metadata)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise SettingsError(name, "nothing", "a value; this parameter has no default")
    return kind(**values)


def _value(name: str, text: str, kind: Any, directory: Path | None) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise SettingsError(name, repr(text), " or ".join(repr(value) for value in get_args(kind)))
        return text
    options = [option for option in get_args(kind) if option is not NoneType]
    if options:
        kind = options[0]
    if kind is bool:
        return _flag(name, text)
    if kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise SettingsError(name, repr(text), "a whole number" if kind is int else "a number")
        return value
    text = _filled(name, text, directory)
    if kind is Path:
        path = Path(text).expanduser()
        return path if path.is_absolute() or directory is None else Path(os.path.normpath(directory / path))
    return text


def _flag(name: str, text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false", "1", "0"):
        raise SettingsError(name, repr(text), "'true' or 'false'")
    return word in ("true", "1")


def _filled(name: str, text: str, directory: Path | None) -> str:
    if directory is not None:
        text = text.replace(MODEL_DIRECTORY, str(directory))

    def variable(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if value is None:
            raise SettingsError(name, f"{match[0]}, which is not set", "a variable of the server's environment")
        return value

    return _VARIABLE.sub(variable, text)


def _check_bounds(name: str, value: Any, bounds: Mapping[str, float | None]) -> None:
    low, high = bounds.get("low"), bounds.get("high")
    if low is not None and value < low:
        raise SettingsError(name, str(value), f"at least {low}")
    if high is not None and value > high:
        raise SettingsError(name, str(value), f"at most {high}")


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a stream needs to know of its server; shared by `postprocess` and `chat_direct`.

    Args:
        format: the model's format, where the request names none; `auto` reads the chat template.
        formats: a TOML or JSON file with formats of the operator's own (`parsers/formats/loading.py`).
        match: `ids`: a marker that is an added token of the tokenizer counts only as that token.
            `text`: spelling alone counts.
        max_choices: most answers (`n`) of one request.
        max_open_bytes: most bytes of one request's options (tools with their schemas are the bulk).
        llm_backend: whose tensors the LLM has: our `llm`, vLLM's backend, TensorRT-LLM's, or its LLM API's.
        end_tokens: ids, with commas, that end an answer of an LLM which does not say so; "" takes what the tokenizer's
            folder says.
    """

    format: str = "qwen3+hermes"
    formats: Path | None = None
    match: Literal["ids", "text"] = "ids"
    max_choices: int = limited(16, low=1, high=1024)
    max_open_bytes: int = limited(4 * 1024 * 1024, low=1024)
    llm_backend: LlmBackend = "tristream"
    end_tokens: str = ""

    def __post_init__(self) -> None:
        self.end_ids()

    def end_ids(self) -> tuple[int, ...]:
        """The ids of `end_tokens`.

        Raises:
            SettingsError: they are none.
        """
        try:
            return tuple(int(each) for each in self.end_tokens.split(",") if each.strip())
        except ValueError:
            raise SettingsError("end_tokens", repr(self.end_tokens), "token ids with commas between") from None


@dataclass(frozen=True, slots=True)
class PostprocessSettings(StreamSettings):
    """Parameters of `postprocess`.

    Args:
        tokenizer: the LLM's tokenizer.json, or a folder with one.
        implicit_open: the first token of an unknown stream opens it (an ensemble without `preprocess`).
        max_streams: most live streams; a further `open` is refused, none is evicted.
        max_options_bytes: most bytes of options of all live streams together.
        max_queue_age_ms: an `open` that waited longer is refused: the model is behind. 0 never refuses.
        idle_ttl_s: seconds since the last token after which a stream is dropped.
        first_token_ttl_s: the same before its first token (the LLM's queue and its prefill).
        stop_model: the LLM, told to `stop` the streams dropped for being idle; "" tells nobody.
        metrics: count in Triton's metrics.
    """

    tokenizer: Path | None = None
    implicit_open: bool = False
    max_streams: int = limited(4096, low=1)
    max_options_bytes: int = limited(256 * 1024 * 1024, low=1024)
    max_queue_age_ms: int = limited(5000, low=0)
    idle_ttl_s: float = limited(120.0, low=0.01)
    first_token_ttl_s: float = limited(3600.0, low=0.01)
    stop_model: str = ""
    metrics: bool = True
