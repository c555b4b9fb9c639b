"""What an LLM's backend says in one response -> steps of a stream.

Four ways to say it (TRITON.md, "LLM backends, unchanged"): our `llm` (ids, and `meta` with the rest), vLLM's backend
(text that is new), TensorRT-LLM (ids, and no word about the end), its LLM API (all the text so far). One reader per
stream turns each response into `Said`; what a stream makes of that is `streams.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from .contract import TensorSpec
from .pb import Array

__all__ = [
    "BACKENDS",
    "LlmBackend",
    "LlmOutputs",
    "OutputReader",
    "ReaderOptions",
    "Said",
]

LlmBackend: TypeAlias = Literal["tristream", "vllm", "tensorrtllm", "llmapi"]

NO_LOGPROB: Final = -9999.0
"""What OpenAI writes for a token of no probability; JSON has no infinity."""

UNFINISHED: Final = "\ufffd"
"""A decoder's sign for a character whose last bytes have not come, at the end of its text."""

_NOTHING: Final[Mapping[str, Any]] = {}


class Said(NamedTuple):
    """One choice's part of one response.

    Args:
        token_ids: new tokens.
        step: the members of `meta` (engines/base.py), of the right types; `new_tokens` where tokens are counted
            and their ids not told.
    """

    token_ids: Sequence[int]
    step: Mapping[str, Any] = _NOTHING


class ReaderOptions(NamedTuple):
    """What a reader must know of the request.

    Args:
        choices: how many answers.
        end_ids: tokens that end an answer.
        max_tokens: so many tokens end one; None: not known.
        top_logprobs: how many likeliest tokens of each place were asked for.
    """

    choices: int = 1
    end_ids: Collection[int] = ()
    max_tokens: int | None = None
    top_logprobs: int = 0


Outputs: TypeAlias = Mapping[str, Array]
"""Name -> values of one response; any of the tensors may be absent."""


class OutputReader(Protocol):
    """Follows one stream."""

    def read(self, outputs: Outputs) -> list[Said]:
        """What one response says."""
        ...

    def end(self) -> list[Said]:
        """The responses are over: what that means for choices whose end nobody has named."""
        ...


class MetaReader:
    """Our `llm`: token ids, and JSON for the rest. Keeps nothing, so that all streams share one."""

    __slots__ = ()

    def read(self, outputs: Outputs) -> list[Said]:
        """One step of one choice."""
        meta = outputs.get("meta")
        text = _texts(meta)[0] if meta is not None and meta.size else ""
        return [Said(_numbers(outputs.get("token_ids")), read_meta(text) if text else _NOTHING)]

    def end(self) -> list[Said]:
        """Its end is always named: without one it is lost."""
        return []


class DeltaTextReader:
    """vLLM's backend: each response has what is new of each choice's text, and how each has finished.

    Ids come with log probabilities only: their JSON is keyed by them, the chosen token first.
    """

    __slots__ = ("_counts", "_ended", "_prompt_tokens", "_told", "_top")

    def __init__(self, options: ReaderOptions) -> None:
        self._counts = [0] * options.choices
        self._told = [0] * options.choices  # of those, how many have gone out with text
        self._ended: set[int] = set()
        self._prompt_tokens: int | None = None
        self._top = options.top_logprobs

    def read(self, outputs: Outputs) -> list[Said]:
        """A step for each choice that has something to say."""
        texts, reasons = _texts(outputs.get("text_output")), _texts(outputs.get("finish_reason"))
        counts, logprobs = _numbers(outputs.get("num_output_tokens")), _texts(outputs.get("logprobs"))
        prompt = _numbers(outputs.get("num_input_tokens"))
        self._prompt_tokens = prompt[0] if prompt else self._prompt_tokens
        said = []
        for index in range(min(len(self._counts), max(len(texts), len(reasons)))):
            if index in self._ended:
                continue
            if index < len(counts):
                self._counts[index] += counts[index]
            step: dict[str, Any] = {"text": texts[index] if index < len(texts) else ""}
            ids, entries = _vllm_logprobs(logprobs[index], self._top) if index < len(logprobs) else ((), [])
            if entries:
                step["logprobs"] = entries
            reason = _reason(reasons[index]) if index < len(reasons) else None
            if reason is not None:
                self._ended.add(index)
                step |= {"finish_reason": reason, **_counted(self._prompt_tokens, self._counts[index])}
            if step["text"] or ids or reason is not None:
                if not ids and self._counts[index] > self._told[index]:
                    step["new_tokens"] = self._counts[index] - self._told[index]
                self._told[index] = self._counts[index]
                said.append(Said(ids, step | {"choice_index": index} if index else step))
        return said

    def end(self) -> list[Said]:
        """It names its end if asked to; without one it is lost."""
        return []


class WholeTextReader:
    """TensorRT-LLM's LLM API: each response has all the text of each choice so far."""

    __slots__ = ("_ended", "_sent")

    def __init__(self, options: ReaderOptions) -> None:
        self._sent = [0] * options.choices
        self._ended: set[int] = set()

    def read(self, outputs: Outputs) -> list[Said]:
        """A step for each choice that has something new to say."""
        texts, reasons = _texts(outputs.get("text_output")), _texts(outputs.get("finish_reason"))
        said = []
        for index in range(min(len(self._sent), max(len(texts), len(reasons)))):
            if index in self._ended:
                continue
            reason = _reason(reasons[index]) if index < len(reasons) else None
            whole = texts[index] if index < len(texts) else ""
            if reason is None:
                whole = whole.rstrip(UNFINISHED)
            step: dict[str, Any] = {"text": whole[self._sent[index] :]}
            self._sent[index] = max(self._sent[index], len(whole))
            if reason is not None:
                self._ended.add(index)
                step["finish_reason"] = reason
            if step["text"] or reason is not None:
                said.append(Said((), step | {"choice_index": index} if index else step))
        return said

    def end(self) -> list[Said]:
        """It names its end if asked to; without one it is lost."""
        return []


class TokenReader:
    """TensorRT-LLM's C++ backend: new ids of each beam, of which the first `sequence_length` count.

    It does not say how an answer ended: an end token came, or as many tokens as were asked for; or the responses
    are over, which only a direct caller sees. Of several beams the first is read; `sequence_index` says the choice.
    """

    __slots__ = ("_counts", "_ended", "_options")

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._counts = [0] * options.choices
        self._ended: set[int] = set()

    def read(self, outputs: Outputs) -> list[Said]:
        """One step of one choice."""
        index = (_numbers(outputs.get("sequence_index")) or [0])[0]
        ids = _first_beam(outputs)
        if index in self._ended or not 0 <= index < len(self._counts):
            return []
        ends = self._options.end_ids
        end = next((place for place, token in enumerate(ids) if token in ends), None)
        reason = None
        if end is not None:
            reason, ids = "stop", ids[:end]  # the end token is no text
        self._counts[index] += len(ids)
        if reason is None and self._options.max_tokens is not None and self._counts[index] >= self._options.max_tokens:
            reason = "length"
        last = _numbers(outputs.get("last_token_time_ns"))
        if reason is None and last and last[0]:
            reason = "stop"
        return [self._said(index, ids, reason)] if ids or reason is not None else []

    def end(self) -> list[Said]:
        """What is not over is over now: by a stop word, which the backend does not name."""
        open_choices = [index for index in range(len(self._counts)) if index not in self._ended]
        return [self._said(index, (), "stop") for index in open_choices]

    def _said(self, index: int, ids: Sequence[int], reason: str | None) -> Said:
        step: dict[str, Any] = {"choice_index": index} if index else {}
        if reason is not None:
            self._ended.add(index)
            step["finish_reason"] = reason
        return Said(ids, step)


class LlmOutputs(NamedTuple):
    """The output side of one kind of backend.

    Args:
        tensors: what it sends, as its own config.pbtxt declares it.
        has_ids: token ids come: the id view. Else the spelling of markers decides.
        make: a stream's reader.
        names_end: it says how an answer ended.
    """

    tensors: tuple[TensorSpec, ...]
    has_ids: bool
    make: Callable[[ReaderOptions], OutputReader]
    names_end: bool


_SHARED: Final = MetaReader()

BACKENDS: Final[Mapping[LlmBackend, LlmOutputs]] = {
    "tristream": LlmOutputs(
        (
            TensorSpec("stream_id", "STRING", (1,), meaning="which stream"),
            TensorSpec("token_ids", "INT32", (-1,), meaning="new tokens"),
            TensorSpec("meta", "STRING", (1,), meaning="JSON with the rest"),
        ),
        True,
        lambda _: _SHARED,
        True,
    ),
    "vllm": LlmOutputs(
        (
            TensorSpec("text_output", "STRING", (-1,), meaning="new text of each choice"),
            TensorSpec("finish_reason", "STRING", (-1,), meaning='"None" until a choice ends'),
            TensorSpec("num_input_tokens", "UINT32", (1,), optional=True, meaning="tokens of the prompt"),
            TensorSpec("num_output_tokens", "UINT32", (-1,), optional=True, meaning="new tokens of each choice"),
            TensorSpec("logprobs", "STRING", (-1,), optional=True, meaning="JSON for each choice, keyed by token ids"),
        ),
        False,
        DeltaTextReader,
        True,
    ),
    "tensorrtllm": LlmOutputs(
        (
            TensorSpec("output_ids", "INT32", (-1, -1), meaning="new tokens of each beam"),
            TensorSpec("sequence_length", "INT32", (-1,), meaning="how many of them count"),
            TensorSpec("sequence_index", "INT32", (1,), optional=True, meaning="which choice"),
            TensorSpec("last_token_time_ns", "INT64", (1,), optional=True, meaning="not 0: the answer is over"),
        ),
        True,
        TokenReader,
        False,
    ),
    "llmapi": LlmOutputs(
        (
            TensorSpec("text_output", "STRING", (-1,), meaning="all text of each choice so far"),
            TensorSpec("finish_reason", "STRING", (-1,), meaning="how a choice ended"),
        ),
        False,
        WholeTextReader,
        True,
    ),
}

_META_TYPES: Final[Mapping[str, type]] = {
    "finish_reason": str,
    "error": str,
    "text": str,
    "choice_index": int,
    "prompt_tokens": int,
    "completion_tokens": int,
    "cached_tokens": int,
    "logprobs": list,
    "last": bool,
}


def read_meta(meta: str) -> Mapping[str, Any]:
    """The members of `meta` that have the type they should have; what a model side says wrongly is passed over."""
    try:
        value = json.loads(meta)
    except (ValueError, RecursionError):
        return _NOTHING
    if not isinstance(value, dict):
        return _NOTHING
    return {name: value[name] for name, kind in _META_TYPES.items() if type(value.get(name)) is kind}


def _texts(array: Array | None) -> list[str]:
    if array is None:
        return []
    values = array.reshape(-1).tolist()
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]


def _numbers(array: Array | None) -> list[int]:
    if array is None or array.dtype.kind not in "iu":
        return []
    values: list[int] = array.reshape(-1).tolist()
    return values


def _first_beam(outputs: Outputs) -> list[int]:
    ids, lengths = outputs.get("output_ids"), _numbers(outputs.get("sequence_length"))
    if ids is None or not ids.size:
        return []
    beam = _numbers(ids.reshape(-1, ids.shape[-1])[0])
    return beam[: max(0, lengths[0])] if lengths else beam


def _reason(text: str) -> str | None:
    """A finish reason; Python's None reached the wire as text."""
    return None if text in ("", "None") else text


def _counted(prompt_tokens: int | None, completion_tokens: int) -> dict[str, int]:
    found = {"completion_tokens": completion_tokens} if completion_tokens else {}
    return found if prompt_tokens is None else {**found, "prompt_tokens": prompt_tokens}


def _vllm_logprobs(text: str, top: int) -> tuple[tuple[int, ...], list[dict[str, Any]]]:
    """vLLM's JSON, `[{"ID": {"logprob", "rank", "decoded_token"}, ...}, ...]`, as ids and OpenAI's entries."""
    try:
        places = json.loads(text)
    except (ValueError, RecursionError):
        return (), []
    ids: list[int] = []
    entries: list[dict[str, Any]] = []
    for place in places if isinstance(places, list) else ():
        try:
            chosen, *_ = place
            ids.append(int(chosen))
            ranked = sorted(place.values(), key=lambda each: each.get("rank") or 0)
            likeliest = [_entry(each) for each in ranked if (each.get("rank") or 0) <= top]
            entries.append({**_entry(place[chosen]), "top_logprobs": likeliest})
        except (AttributeError, TypeError, ValueError, KeyError):
            return (), []
    return tuple(ids), entries


def _entry(each: Mapping[str, Any]) -> dict[str, Any]:
    token = each.get("decoded_token") or ""
    value = max(float(each["logprob"]), NO_LOGPROB)
    return {"token": token, "logprob": value, "bytes": list(token.encode("utf-8", "replace"))}
