"""What an LLM engine is: a request in, steps out. `models/llm.py` knows no more than this.

Steps travel to `postprocess` as the tensors `token_ids` and `meta`. `meta` is "" for a step that is nothing but
tokens of the first choice; else JSON with those of these keys that say something:

    finish_reason      "stop" | "length" | "error", on the last step of a choice
    error              what went wrong, with finish_reason "error"; text for the client
    choice_index       which of n answers, where it is not the first
    logprobs           one OpenAI `logprobs.content` entry for each id
    prompt_tokens, completion_tokens   counts of this choice, on its last step
    last               true: all choices have ended, nothing follows
    text               the step's text, where the LLM sends its own, maybe later than its ids (these engines do not)
    cached_tokens      prompt tokens that were not computed again (these engines do not say)

A request that is refused gets one such step too, `error` in the words of RequestError or UnavailableError: so that
`postprocess` hears of it. Only what has no stream_id, or that of another live stream, is answered by Triton's error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from tristream.parsers.errors import RequestError

__all__ = [
    "Constraint",
    "Engine",
    "FinishReason",
    "GenerationRequest",
    "Sampling",
    "Sink",
    "Step",
    "merge_steps",
    "step_meta",
]

FinishReason: TypeAlias = Literal["stop", "length", "error"]
ConstraintKind: TypeAlias = Literal["structural_tag", "json_schema", "regex"]

MAX_STOPS: Final = 64
"""Most stop strings of a request; each costs a search per token."""
MAX_STOP_CHARS: Final = 1024
MAX_TOP_LOGPROBS: Final = 20  # OpenAI's bound


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens.

    Args:
        max_tokens: most tokens to generate; None is what the context has room for.
        temperature: 0 is greedy.
        top_p: smallest set of tokens with this probability together; 1 is all.
        top_k: so many of the likeliest; 0 is all.
        min_p: tokens with at least this share of the likeliest one's probability; 0 is all.
        seed: makes the choice repeatable; None is another one each time.
        stop: texts that end the answer and are not part of it.
        n: answers to generate.
        logprobs: report each token's log probability,
        top_logprobs: and those of so many likeliest tokens.
        presence_penalty, frequency_penalty: OpenAI's, on generated tokens.
        repetition_penalty: on tokens of prompt and output; 1 is none.
        ignore_eos: do not end at the model's end token.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not (low <= value <= high and math.isfinite(value)):
                raise RequestError(f"sampling.{name}", repr(value), f"{low} to {high}")
        if self.top_p <= 0 or self.repetition_penalty <= 0:
            name = "top_p" if self.top_p <= 0 else "repetition_penalty"
            raise RequestError(f"sampling.{name}", "0", "more than 0")
        if len(self.stop) > MAX_STOPS:
            raise RequestError("sampling.stop", f"{len(self.stop)} texts", f"at most {MAX_STOPS}")
        if any(not 0 < len(text) <= MAX_STOP_CHARS for text in self.stop):
            raise RequestError("sampling.stop", "an empty or too long text", f"1 to {MAX_STOP_CHARS} characters")

    @classmethod
    def from_json(cls, text: str) -> Sampling:
        """Read the tensor `sampling`; "" and absent or null keys are the defaults.

        Raises:
            RequestError: not an object, an unknown key, a wrong type, out of bounds.
        """
        values = _json_object("sampling", text) if text else {}
        known = {item.name: item.default for item in fields(cls)}
        read: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                raise RequestError(f"sampling.{name}", "an unknown name", ", ".join(known))
            if value is not None:
                read[name] = _sampling_value(name, value, known[name])
        return cls(**read)


_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "max_tokens": (1, 2**31 - 1),
    "temperature": (0, 100),
    "top_p": (0, 1),
    "top_k": (0, 2**31 - 1),
    "min_p": (0, 1),
    "seed": (-(2**63), 2**64 - 1),
    "n": (1, 1024),
    "top_logprobs": (0, MAX_TOP_LOGPROBS),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "repetition_penalty": (0, 100),
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """What to hold the output to.

    Args:
        kind: which of xgrammar's languages `source` is written in.
        source: canonical JSON of the grammar, so that equal ones have one key.
        after_ids: the constraint starts after one of these id sequences was generated; none: from the first token.
    """

    kind: ConstraintKind
    source: str
    after_ids: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def from_json(cls, text: str, *, max_bytes: int | None = None) -> Constraint | None:
        """Read the tensor `constraint`; "" is None.

        Args:
            text: JSON with exactly one of structural_tag, json_schema, regex, and maybe after_ids.
            max_bytes: most bytes of it.

        Raises:
            RequestError: anything else.
        """
        if not text:
            return None
        size = len(text.encode("utf-8", "surrogatepass"))
        if max_bytes is not None and size > max_bytes:
            raise RequestError("constraint", f"{size} bytes", f"at most {max_bytes} (max_constraint_bytes)")
        values = _json_object("constraint", text)
        after = values.pop("after_ids", None) or ()
        kinds: list[ConstraintKind] = [kind for kind in get_args(ConstraintKind) if kind in values]
        if len(kinds) != 1 or len(values) != 1:
            raise RequestError("constraint", f"the keys {sorted(values)}", "one of structural_tag, json_schema, regex")
        kind, source = kinds[0], values[kinds[0]]
        if kind == "regex" and not isinstance(source, str):
            raise RequestError("constraint.regex", type(source).__name__, "a string")
        if kind == "structural_tag" and not isinstance(source, dict):
            raise RequestError("constraint.structural_tag", type(source).__name__, "an object")
        if kind == "json_schema" and not isinstance(source, dict | bool):
            raise RequestError("constraint.json_schema", type(source).__name__, "an object or a boolean")
        return cls(kind, json.dumps(source, ensure_ascii=False, separators=(",", ":")), _id_sequences(after))


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request.

    Args:
        stream_id: names the stream for `stop`; unique among the live ones.
        input_ids: token ids of the rendered prompt.
        sampling: how to choose.
        constraint: what to hold the output to.
    """

    stream_id: str
    input_ids: Sequence[int]
    sampling: Sampling = Sampling()
    constraint: Constraint | None = None


class Step(NamedTuple):
    """New tokens of one choice, or its end, or both. The fields are those of `meta` above."""

    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    error: str = ""
    logprobs: tuple[Mapping[str, Any], ...] = ()
    choice_index: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    last: bool = False


Sink: TypeAlias = Callable[[Step], None]
"""Takes a stream's steps in order. Called on the engine's thread: it must not wait."""


class Engine(Protocol):
    """An LLM that runs."""

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Start a stream. Its steps go to `sink`; exactly one has `last`, and it is the last.

        Raises:
            RequestError: the request cannot be served (prompt too long, unknown ids, a live stream_id).
            UnavailableError: a limit is reached.
        """
        ...

    def stop(self, stream_id: str) -> None:
        """End a stream: its last step follows soon, with finish_reason `stop`. An unknown id is ignored."""
        ...

    def close(self) -> None:
        """End all streams with an error step, free the model. May be called twice."""
        ...


def step_meta(step: Step) -> str:
    """The tensor `meta` of a step."""
    meta: dict[str, Any] = {}
    if step.choice_index:
        meta["choice_index"] = step.choice_index
    if step.logprobs:
        meta["logprobs"] = step.logprobs
    if step.finish_reason is not None:
        meta["finish_reason"] = step.finish_reason
        meta["prompt_tokens"] = step.prompt_tokens
        meta["completion_tokens"] = step.completion_tokens
    if step.error:
        meta["error"] = step.error
    if step.last:
        meta["last"] = True
    return json.dumps(meta, ensure_ascii=False, separators=(",", ":")) if meta else ""


def merge_steps(steps: Sequence[Step]) -> list[Step]:
    """Join neighbouring steps of one choice, in order; for sends that lag behind."""
    groups: list[list[Step]] = []
    for step in steps:
        before = groups[-1][-1] if groups else None
        if before is not None and before.choice_index == step.choice_index and before.finish_reason is None:
            groups[-1].append(step)
        else:
            groups.append([step])
    return [group[0] if len(group) == 1 else _joined(group) for group in groups]


def _joined(group: Sequence[Step]) -> Step:
    token_ids = tuple(token for step in group for token in step.token_ids)
    logprobs = tuple(entry for step in group for entry in step.logprobs)
    return group[-1]._replace(token_ids=token_ids, logprobs=logprobs)


def _json_object(field: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(field, f"no JSON ({type(error).__name__})", "a JSON object") from None
    if not isinstance(value, dict):
        raise RequestError(field, type(value).__name__, "a JSON object")
    return value


def _sampling_value(name: str, value: Any, default: Any) -> Any:
    field = f"sampling.{name}"
    if name == "stop":
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RequestError(field, type(value).__name__, "a string or a list of strings")
        return tuple(texts)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise RequestError(field, repr(value)[:40], "true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(field, repr(value)[:40], "a number")
    if isinstance(default, float):
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise RequestError(field, repr(value)[:40], "a whole number")
    return int(value)


def _id_sequences(value: Any) -> tuple[tuple[int, ...], ...]:
    lists = value if isinstance(value, list | tuple) else None
    if lists is None or not all(
        isinstance(ids, list) and ids and all(type(number) is int for number in ids) for ids in lists
    ):
        raise RequestError("constraint.after_ids", repr(value)[:40], "a list of non-empty lists of token ids")
    return tuple(tuple(ids) for ids in lists)
