"""The tensors of every model, as data: the truth that config.pbtxt, server and client share.

A test compares each `model_repository/*/config.pbtxt` with these tables. No import of Triton
here: the client reads them too. Dimensions are as the model declares them; `[1, -1]` marks what
an ensemble with `max_batch_size: 0` sees around a batched model (TRITON.md, ensembles, 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "CHAT",
    "CHAT_DIRECT",
    "LLM",
    "MESSAGE_OUTPUTS",
    "MODELS",
    "POSTPROCESS",
    "PREPROCESS",
    "ModelContract",
    "TensorSpec",
]

TritonType = Literal["STRING", "INT32", "BOOL", "UINT32", "UINT64", "INT64", "FP32"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor.

    Args:
        name: name on the wire.
        dtype: Triton's name in config.pbtxt without `TYPE_`; STRING is BYTES (UTF-8) in clients.
        dims: shape as declared, without the batch dimension; -1 is any length.
        optional: an input that may be absent. Outputs are always allowed to be absent.
        meaning: one line for people.
    """

    name: str
    dtype: TritonType
    dims: tuple[int, ...]
    optional: bool = False
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class ModelContract:
    """Inputs and outputs of one model of the repository."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch_size: int = 0
    decoupled: bool = True

    def input(self, name: str) -> TensorSpec:
        """The input called `name`; KeyError if there is none."""
        return {spec.name: spec for spec in self.inputs}[name]

    def output(self, name: str) -> TensorSpec:
        """The output called `name`; KeyError if there is none."""
        return {spec.name: spec for spec in self.outputs}[name]


REQUEST: Final = TensorSpec("request", "STRING", (1,), meaning="an OpenAI chat.completions body as JSON")

MESSAGE_OUTPUTS: Final = (
    TensorSpec("content", "STRING", (1, -1), meaning="text to append to the content"),
    TensorSpec("reasoning", "STRING", (1, -1), meaning="text to append to the reasoning"),
    TensorSpec("tool_call_index", "INT32", (1, -1), meaning="which call each column belongs to, from 0"),
    TensorSpec("tool_call_id", "STRING", (1, -1), meaning='the call\'s id on its first delta, else ""'),
    TensorSpec("tool_call_name", "STRING", (1, -1), meaning='the function\'s name on its first delta, else ""'),
    TensorSpec("tool_call_arguments", "STRING", (1, -1), meaning='JSON text to append, or ""'),
    TensorSpec("tool_call_status", "STRING", (1, -1), meaning='complete, incomplete, invalid; "" while it runs'),
    TensorSpec("finish_reason", "STRING", (1, -1), meaning="stop, length, tool_calls, content_filter, error"),
    TensorSpec("usage", "STRING", (1, -1), meaning="OpenAI usage object as JSON, on the last delta"),
    TensorSpec("notices", "STRING", (1, -1), meaning='JSON [{"code","count","offset"}] of odd model output'),
    TensorSpec("choice_index", "INT32", (1, -1), meaning="which of n answers; absent means 0"),
    TensorSpec("token_ids", "INT32", (1, -1), meaning="ids of the tokens first sent here, on request"),
    TensorSpec("logprobs", "STRING", (1, -1), meaning='JSON {"content":[...]} (and "reasoning"), on request'),
)

LLM_INPUTS: Final = (
    TensorSpec("stream_id", "STRING", (1,), meaning="128 random bits in hex, minted by preprocess"),
    TensorSpec("input_ids", "INT32", (-1,), optional=True, meaning="token ids of the rendered prompt"),
    TensorSpec("sampling", "STRING", (1,), optional=True, meaning="sampling parameters as JSON"),
    TensorSpec(
        "constraint", "STRING", (1,), optional=True, meaning='what to hold the output to, as JSON; "" = nothing'
    ),
)

PREPROCESS: Final = ModelContract(
    "preprocess",
    (REQUEST,),
    tuple(TensorSpec(spec.name, spec.dtype, spec.dims, meaning=spec.meaning) for spec in LLM_INPUTS),
    decoupled=False,
)

LLM: Final = ModelContract(
    "llm",
    (
        *LLM_INPUTS,
        TensorSpec("stop", "BOOL", (1,), optional=True, meaning="true: end the stream of this stream_id"),
    ),
    (
        TensorSpec("stream_id", "STRING", (1, 1), meaning="echo of the request's stream_id"),
        TensorSpec("token_ids", "INT32", (1, -1), meaning="new tokens of this step"),
        TensorSpec(
            "meta", "STRING", (1, 1), meaning='JSON, or "" when there is nothing to say; see backend/engines/base.py'
        ),
    ),
)

POSTPROCESS: Final = ModelContract(
    "postprocess",
    (
        TensorSpec("stream_id", "STRING", (1,), optional=True, meaning="which stream the tokens belong to"),
        TensorSpec("token_ids", "INT32", (-1,), optional=True, meaning="new tokens, any number"),
        TensorSpec("meta", "STRING", (1,), optional=True, meaning="as `llm` sends it"),
        TensorSpec(
            "open", "STRING", (1,), optional=True, meaning="JSON {stream_id, options, ...}; comes alone, by BLS"
        ),
    ),
    tuple(TensorSpec(spec.name, spec.dtype, spec.dims[1:], meaning=spec.meaning) for spec in MESSAGE_OUTPUTS),
    max_batch_size=256,
)

CHAT: Final = ModelContract("chat", (REQUEST,), MESSAGE_OUTPUTS)
CHAT_DIRECT: Final = ModelContract("chat_direct", (REQUEST,), MESSAGE_OUTPUTS)

MODELS: Final = (CHAT, CHAT_DIRECT, PREPROCESS, LLM, POSTPROCESS)
