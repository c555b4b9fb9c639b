"""What tests ask a running server, without our client: raw requests, metrics, statistics, memory.

Everything here has a deadline: a server that hangs fails a test, it does not stop the run.
"""

from __future__ import annotations

import json
import re
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tristream.backend.deploy.server import TritonServer

__all__ = [
    "Answer",
    "eventually",
    "executions",
    "infer",
    "infer_unary",
    "metric",
    "outputs",
    "post",
    "resident_bytes",
    "responses",
]

DEADLINE_S: Final = 60.0

Value = TypeVar("Value")


def eventually(look: Callable[[], Value], good: Callable[[Value], bool], seconds: float = 30.0) -> Value:
    """Look again and again until what is seen is good."""
    deadline = time.monotonic() + seconds
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"after {seconds:g} s still: {seen!r}"
        time.sleep(0.1)
    return seen


class Answer(NamedTuple):
    """What came back for one request sent by `infer`.

    Args:
        responses: output name -> values, one mapping for each response that bears tensors.
        error: the text of an error within the stream; "" where there is none.
        code: the gRPC status's name.
    """

    responses: list[dict[str, list[Any]]]
    error: str = ""
    code: str = "OK"


def infer(url: str, model: str, inputs: Mapping[str, Any], *, seconds: float = DEADLINE_S) -> Answer:
    """One request by gRPC, without our client: raw tensors in and out.

    An error's code is not in a gRPC stream; the metadata `triton_grpc_error` would bring it, and kills the server
    (2.51: SIGSEGV after some dozens of refusals). HTTP tells it by its status: see `post`.

    Args:
        url: `host:port`.
        model: its name.
        inputs: name -> str, bool, list of int, or a batch of one of them as a tuple (shape, value).
        seconds: the deadline.
    """
    answer = Answer([])
    with responses(url, model, inputs, seconds) as messages:
        try:
            for message in messages:
                if message.error_message:
                    answer = answer._replace(error=message.error_message)
                elif message.infer_response.outputs:
                    answer.responses.append(outputs(message))
        except grpc.RpcError as error:
            return answer._replace(error=error.details() or "", code=error.code().name)
    return answer


@contextmanager
def responses(url: str, model: str, inputs: Mapping[str, Any], seconds: float = DEADLINE_S) -> Iterator[Iterator[Any]]:
    """The messages (protobuf) of one request as they come; leaving cancels it."""
    with grpc.insecure_channel(url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        call = stub.ModelStreamInfer(iter((_request(model, inputs),)), timeout=seconds)
        try:
            yield call
        finally:
            call.cancel()


def infer_unary(url: str, model: str, inputs: Mapping[str, Any], *, seconds: float = DEADLINE_S) -> tuple[str, str]:
    """One request to a model that is not decoupled: the gRPC status's name and its text."""
    with grpc.insecure_channel(url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            stub.ModelInfer(_request(model, inputs), timeout=seconds)
        except grpc.RpcError as error:
            return error.code().name, error.details() or ""
    return "OK", ""


def _request(model: str, inputs: Mapping[str, Any]) -> Any:
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, value in inputs.items():
        shape, value = value if isinstance(value, tuple) else (None, value)
        datatype, length, raw = _packed(value)
        request.inputs.add(name=name, datatype=datatype, shape=shape or [length])
        request.raw_input_contents.append(raw)
    return request


def _packed(value: Any) -> tuple[str, int, bytes]:
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return "BYTES", 1, struct.pack("<I", len(data)) + data
    if isinstance(value, bool):
        return "BOOL", 1, bytes([value])
    return "INT32", len(value), struct.pack(f"<{len(value)}i", *value)


def outputs(message: Any) -> dict[str, list[Any]]:
    """The tensors of a message of the gRPC stream: name -> values."""
    response = message.infer_response
    values: dict[str, list[Any]] = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.datatype == "INT32":
            values[output.name] = list(struct.unpack(f"<{len(raw) // 4}i", raw))
            continue
        values[output.name], place = [], 0
        while place < len(raw):
            (length,) = struct.unpack_from("<I", raw, place)
            values[output.name].append(raw[place + 4 : place + 4 + length].decode())
            place += 4 + length
    return values


def post(url: str, body: Mapping[str, Any], seconds: float = DEADLINE_S) -> tuple[int, str]:
    """POST JSON; the HTTP status and the text of the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def get(url: str, seconds: float = DEADLINE_S) -> str:
    """GET; the text of the answer."""
    with urllib.request.urlopen(url, timeout=seconds) as answer:
        return str(answer.read().decode())


def metric(server: TritonServer, name: str, **labels: str) -> float:
    """The sum of a metric over its series with these labels; 0 where there is none."""
    total = 0.0
    for line in get(server.metrics_url).splitlines():
        match = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
        if match and all(f'{label}="{value}"' in match[1] for label, value in labels.items()):
            total += float(match[2])
    return total


def executions(server: TritonServer, model: str) -> int:
    """Batches that a model has executed so far."""
    (statistics,) = json.loads(get(f"{server.http_url}/v2/models/{model}/stats"))["model_stats"]
    return int(statistics["execution_count"])


def _process_of(server: TritonServer, model: str) -> int:
    """Process id of the stub that serves a model."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            status = (folder / "status").read_text(encoding="utf-8")
        except OSError:  # it has just ended
            continue
        ours = f"\nPPid:\t{server.pid}\n" in status and b"triton_python_backend_stub" in command[0]
        if ours and any(f"/{model}/".encode() in part for part in command):
            return int(folder.name)
    raise AssertionError(f"no stub process of {model}")


def resident_bytes(server: TritonServer, model: str) -> int:
    """Resident memory of the process that serves a model, without what it shares with the server."""
    status = Path(f"/proc/{_process_of(server, model)}/status").read_text(encoding="utf-8")
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024
