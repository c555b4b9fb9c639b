"""Tensors in, `MessageDelta` out: what one response of `chat` or `chat_direct` says.

Reads the raw bytes of the protobuf message. numpy would cost more than it saves: nearly every
tensor here has one element.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from tristream.backend.contract import MESSAGE_OUTPUTS
from tristream.parsers import MessageDelta, Notice, ToolCallDelta, Usage

__all__ = ["TensorError", "decode_delta", "pack_strings"]

_DTYPES: Final[Mapping[str, str]] = {spec.name: spec.dtype for spec in MESSAGE_OUTPUTS}
_WIRE_NAMES: Final[Mapping[str, str]] = {"STRING": "BYTES", "INT32": "INT32"}
"""contract.py says STRING as config.pbtxt does; on the wire it is BYTES."""

_LENGTH: Final = struct.Struct("<I")


class TensorError(ValueError):
    """A response whose tensors are not those of contract.py."""


def _decode_tensors(response: Any) -> dict[str, Sequence[str] | Sequence[int]]:
    """The known output tensors of a `ModelInferResponse`, flattened.

    Args:
        response: protobuf `ModelInferResponse`; outputs as raw contents, as Triton sends them.

    Returns:
        name -> values; names that contract.py does not know are left out.

    Raises:
        TensorError: a known name with another dtype, or bytes that do not hold what they announce.
    """
    values: dict[str, Sequence[str] | Sequence[int]] = {}
    raw = response.raw_output_contents
    for place, output in enumerate(response.outputs):
        name = output.name
        dtype = _DTYPES.get(name)
        if dtype is None:
            continue
        if output.datatype != _WIRE_NAMES[dtype]:
            raise TensorError(f"output {name!r}: dtype {output.datatype}, expected {_WIRE_NAMES[dtype]}")
        if place >= len(raw):
            raise TensorError(f"output {name!r}: no raw contents")
        values[name] = _strings(name, raw[place]) if dtype == "STRING" else _integers(name, raw[place])
    return values


def decode_delta(response: Any) -> MessageDelta | None:
    """What a `ModelInferResponse` says, or None where it bears no tensor (a flags-only FINAL).

    Raises:
        TensorError: the response is not one of a chat model.
    """
    if not response.outputs:
        return None
    values = _decode_tensors(response)
    if not values:
        names = ", ".join(repr(output.name) for output in response.outputs)
        raise TensorError(f"outputs {names}: none of them is an output of a chat model")
    logprobs = _json_object(values, "logprobs")
    return MessageDelta(
        reasoning=_text(values, "reasoning"),
        content=_text(values, "content"),
        tool_calls=_tool_calls(values),
        finish_reason=cast("Any", next(iter(_texts(values, "finish_reason")), "") or None),
        usage=Usage.from_openai(_json_object(values, "usage")) if "usage" in values else None,
        notices=_notices(values),
        token_ids=tuple(_ints(values, "token_ids")),
        logprobs=tuple(logprobs.get("content") or ()),
        choice_index=next(iter(_ints(values, "choice_index")), 0),
        reasoning_logprobs=tuple(logprobs.get("reasoning") or ()),
    )


def pack_strings(values: Sequence[bytes]) -> bytes:
    """Raw contents of a BYTES tensor: each element after its length in 4 bytes, little-endian."""
    return b"".join(_LENGTH.pack(len(value)) + value for value in values)


_Tensors = Mapping[str, Sequence[str] | Sequence[int]]


def _strings(name: str, raw: bytes) -> list[str]:
    values: list[str] = []
    place = 0
    while place < len(raw):
        try:
            (length,) = _LENGTH.unpack_from(raw, place)
        except struct.error:
            raise TensorError(f"output {name!r}: {len(raw) - place} bytes where a length was expected") from None
        place += _LENGTH.size
        if place + length > len(raw):
            raise TensorError(f"output {name!r}: a string of {length} bytes in {len(raw) - place} bytes")
        # A wrong byte costs one character, not the stream: the server sends UTF-8 only.
        values.append(raw[place : place + length].decode("utf-8", "replace"))
        place += length
    return values


def _integers(name: str, raw: bytes) -> tuple[int, ...]:
    if len(raw) % 4:
        raise TensorError(f"output {name!r}: {len(raw)} bytes are no INT32 values")
    return struct.unpack(f"<{len(raw) // 4}i", raw)


def _texts(values: _Tensors, name: str) -> Sequence[str]:
    return cast("Sequence[str]", values.get(name, ()))


def _ints(values: _Tensors, name: str) -> Sequence[int]:
    return cast("Sequence[int]", values.get(name, ()))


def _text(values: _Tensors, name: str) -> str | None:
    return "".join(_texts(values, name)) or None


def _tool_calls(values: _Tensors) -> tuple[ToolCallDelta, ...]:
    indexes = _ints(values, "tool_call_index")
    columns = [_column(values, f"tool_call_{part}", len(indexes)) for part in ("id", "name", "arguments", "status")]
    return tuple(
        ToolCallDelta(index, call_id or None, name or None, arguments, cast("Any", status or None))
        for index, call_id, name, arguments, status in zip(indexes, *columns, strict=True)
    )


def _column(values: _Tensors, name: str, length: int) -> Sequence[str]:
    """One of the parallel arrays; absent means that no call has anything new in it."""
    column = _texts(values, name)
    if not column:
        return ("",) * length
    if len(column) != length:
        raise TensorError(f"output {name!r}: {len(column)} values, but 'tool_call_index' has {length}")
    return column


def _notices(values: _Tensors) -> tuple[Notice, ...]:
    notices: list[Notice] = []
    for text in _texts(values, "notices"):
        entries = _json(text, "notices")
        if not isinstance(entries, list):
            raise TensorError("output 'notices': no JSON list")
        try:
            notices.extend(Notice(entry["code"], int(entry["count"]), int(entry["offset"])) for entry in entries)
        except (KeyError, TypeError, ValueError):
            raise TensorError("output 'notices': an entry without code, count or offset") from None
    return tuple(notices)


def _json_object(values: _Tensors, name: str) -> Mapping[str, Any]:
    text = next(iter(_texts(values, name)), "")
    if not text:
        return {}
    parsed = _json(text, name)
    if not isinstance(parsed, dict):
        raise TensorError(f"output {name!r}: no JSON object")
    return parsed


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise TensorError(f"output {name!r}: no JSON") from None
