"""numpy <-> values: the only place that builds or reads arrays.

Every STRING array is an object array of UTF-8 bytes; every output is `[1, k]`: in a batched model the
1 is the batch dimension, in the others it is declared (contract.py). Works on numpy 1.26 and 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from tristream.parsers.errors import RequestError
from tristream.parsers.message import MessageDelta

from .pb import Array, PbModule, PbRequest, PbTensor

__all__ = [
    "compact_json",
    "encode_text",
    "flag_array",
    "input_tensors",
    "ints_array",
    "ints_tensor",
    "message_tensors",
    "read_flag",
    "read_ints",
    "read_text",
    "text_array",
    "text_tensor",
]

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode_text(text: str) -> bytes:
    """UTF-8 of `text`; a lone surrogate (legal in JSON's escapes, not in UTF-8) becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        # through UTF-16, so that two halves that meet become the character they mean
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def compact_json(value: Any) -> str:
    """JSON without blanks; text as itself, not as escapes."""
    return _JSON.encode(value)


def text_tensor(pb: PbModule, name: str, values: Sequence[str]) -> Any:
    """A STRING tensor of shape [1, k].

    Args:
        pb: `triton_python_backend_utils`.
        name: the output's name.
        values: k texts.
    """
    return pb.Tensor(name, np.array([[encode_text(value) for value in values]], np.object_))


def ints_tensor(pb: PbModule, name: str, values: Sequence[int]) -> Any:
    """An INT32 tensor of shape [1, k].

    Args:
        pb: `triton_python_backend_utils`.
        name: the output's name.
        values: k numbers, each within 32 bits.
    """
    return pb.Tensor(name, np.array([values], np.int32))


def text_array(*values: str, shape: tuple[int, ...] | None = None) -> Array:
    """STRING values for an *input* of another model, by BLS or gRPC; shape [k] unless given."""
    array = np.empty(len(values), np.object_)
    array[:] = [encode_text(value) for value in values]
    return array if shape is None else array.reshape(shape)


def ints_array(values: Sequence[int]) -> Array:
    """INT32 values for an input of another model; shape [k]."""
    return np.asarray(values, np.int32)


def flag_array(value: bool) -> Array:
    """A BOOL value for an input of another model; shape [1]."""
    return np.array([value], np.bool_)


def input_tensors(request: PbRequest) -> dict[str, PbTensor]:
    """The inputs that a request carries, by name. One pass, where `get_input_tensor_by_name` makes one per name."""
    return {tensor.name(): tensor for tensor in request.inputs()}


def read_text(tensor: PbTensor, *, field: str | None = None, lenient: bool = False) -> str:
    """The one text of a STRING tensor with one element, of any rank.

    Args:
        tensor: the input.
        field: how the error names it; default the tensor's name.
        lenient: bytes that are not UTF-8 read as U+FFFD, for what the LLM says, which may not fail.

    Raises:
        RequestError: not exactly one element, not a STRING, or (not lenient) not UTF-8.
    """
    array = tensor.as_numpy()
    if array.size != 1:
        raise RequestError(field or tensor.name(), f"{array.size} elements", "exactly one")
    value = array.item()
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8", "replace" if lenient else "strict")
        except UnicodeDecodeError as error:
            where = f"a byte that is not UTF-8 at offset {error.start}"
            raise RequestError(field or tensor.name(), where, "UTF-8 text") from None
    if isinstance(value, str):
        return value
    raise RequestError(field or tensor.name(), f"datatype {array.dtype}", "STRING (BYTES)")


def read_ints(tensor: PbTensor, *, field: str | None = None) -> list[int]:
    """The numbers of an integer tensor, of any rank, in order.

    Raises:
        RequestError: the tensor holds no integers.
    """
    array = tensor.as_numpy()
    if array.dtype.kind not in "iu":
        raise RequestError(field or tensor.name(), f"datatype {array.dtype}", "INT32")
    values: list[int] = array.reshape(-1).tolist()
    return values


def read_flag(tensor: PbTensor, *, field: str | None = None) -> bool:
    """The one truth value of a BOOL tensor with one element.

    Raises:
        RequestError: not exactly one element.
    """
    array = tensor.as_numpy()
    if array.size != 1:
        raise RequestError(field or tensor.name(), f"{array.size} elements", "exactly one")
    return bool(array.item())


def message_tensors(pb: PbModule, delta: MessageDelta) -> list[Any]:
    """The output tensors of one delta (contract.MESSAGE_OUTPUTS), only those that carry something.

    Of a call's parallel arrays those that are all "" are left out too: a tensor costs 100 to 300 µs of
    IPC, and most deltas of a call carry arguments alone. `tool_call_index` gives their length.

    Returns:
        The tensors; empty where the delta says nothing.
    """
    tensors: list[Any] = []
    if delta.reasoning is not None:
        tensors.append(text_tensor(pb, "reasoning", (delta.reasoning,)))
    if delta.content is not None:
        tensors.append(text_tensor(pb, "content", (delta.content,)))
    if delta.tool_calls:
        tensors.extend(_call_tensors(pb, delta))
    if delta.finish_reason is not None:
        tensors.append(text_tensor(pb, "finish_reason", (delta.finish_reason,)))
    if delta.usage is not None:
        tensors.append(text_tensor(pb, "usage", (compact_json(delta.usage.to_openai()),)))
    if delta.notices:
        notices = [notice._asdict() for notice in delta.notices]
        tensors.append(text_tensor(pb, "notices", (compact_json(notices),)))
    if delta.token_ids:
        tensors.append(ints_tensor(pb, "token_ids", delta.token_ids))
    if delta.logprobs or delta.reasoning_logprobs:
        tensors.append(text_tensor(pb, "logprobs", (compact_json(_logprobs(delta)),)))
    if delta.choice_index and tensors:
        tensors.append(ints_tensor(pb, "choice_index", (delta.choice_index,)))
    return tensors


def _call_tensors(pb: PbModule, delta: MessageDelta) -> Iterable[Any]:
    calls = delta.tool_calls
    yield ints_tensor(pb, "tool_call_index", [call.index for call in calls])
    columns: dict[str, list[str]] = {
        "tool_call_id": [call.id or "" for call in calls],
        "tool_call_name": [call.name or "" for call in calls],
        "tool_call_arguments": [call.arguments for call in calls],
        "tool_call_status": [call.status or "" for call in calls],
    }
    for name, values in columns.items():
        if any(values):
            yield text_tensor(pb, name, values)


def _logprobs(delta: MessageDelta) -> dict[str, Any]:
    logprobs: dict[str, Any] = {}
    if delta.logprobs:
        logprobs["content"] = delta.logprobs
    if delta.reasoning_logprobs:
        logprobs["reasoning"] = delta.reasoning_logprobs
    return logprobs
