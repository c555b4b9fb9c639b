"""Real servers for tests: repositories around `replay_llm`, and what one asks a running server.

Everything here has a deadline: a server that hangs fails a test, it does not stop the run.
"""

from __future__ import annotations

import json
import re
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from support.vectors import CASES_FILE
from tristream.backend.deploy.repository import write_repository
from tristream.backend.deploy.server import TritonServer

__all__ = [
    "ROOT",
    "START_S",
    "TIGHT_CONTEXT",
    "TIGHT_IDLE_S",
    "TIGHT_PATIENCE_S",
    "TIGHT_STREAMS",
    "Answer",
    "ReplayServer",
    "Set",
    "eventually",
    "infer",
    "infer_unary",
    "metric",
    "outputs",
    "post",
    "process_of",
    "replay_server",
    "resident_bytes",
    "responses",
    "executions",
    "free_settings",
]

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = (ROOT / "model_repository", ROOT / "tests" / "model_repository")
DEADLINE_S: Final = 60.0
START_S: Final = 240.0
"""A dozen processes that import numpy and read a tokenizer, on two cores that others use too."""

# Limits of the models with the suffix `_tight`.
TIGHT_STREAMS: Final = 8
TIGHT_IDLE_S: Final = 1
TIGHT_PATIENCE_S: Final = 2
TIGHT_CONTEXT: Final = 2048

# A free-running LLM: nothing is held to anything, and what a request does not say has OpenAI's defaults.
FREE: Final = {
    "match": "ids",
    "chat_template": str(SOURCES[1] / "replay_llm" / "chat_template.jinja"),
    "sampling_defaults": "",
    "tool_strict_level": "auto",
    "auto_tools": "model",
    "reasoning_chars": "",
}

Value = TypeVar("Value")


def free_settings() -> dict[str, Any]:
    """Settings of a free-running LLM, for a `PromptBuilder` of one's own."""
    return {"chat_template": Path(FREE["chat_template"])}


@dataclass(frozen=True, slots=True)
class Set:
    """The models around one replayed LLM; `suffix` keeps their names apart from those of other sets.

    Args:
        tokenizer: folder of the LLM's tokenizer.
        suffix: ends every model's name.
        models: which; names without the suffix.
        settings: model (without the suffix) -> parameter -> value.
        llm: the LLM's full name, where it is another set's.
        echo: the post model only echoes; its configuration stays what it is.
    """

    tokenizer: Path
    suffix: str = ""
    models: tuple[str, ...] = ("chat", "chat_direct", "preprocess", "postprocess", "llm")
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    llm: str = ""
    echo: bool = False

    def write(self, folder: Path, journal: Path) -> Path:
        """Write the repository of this set below `folder`."""
        names = {name: f"{name}{self.suffix}" for name in self.models}
        llm = self.llm or names["llm"]
        base: dict[str, dict[str, str]] = {
            "preprocess": {**FREE, "tokenizer": str(self.tokenizer), "postprocess": names.get("postprocess", "")},
            "chat_direct": {**FREE, "tokenizer": str(self.tokenizer), "llm": llm},
            "postprocess": {"tokenizer": str(self.tokenizer), "match": "ids", "stop_model": llm},
            "llm": {
                "tokenizer": str(self.tokenizer / "tokenizer.json"),
                "vectors": str(CASES_FILE),
                "journal": str(journal),
            },
        }
        # In two steps: the first puts the replay where the ensemble expects `llm`, the second gives all their names.
        plain = write_repository(
            SOURCES,
            folder / f"plain{self.suffix}",
            models={"replay_llm" if name == "llm" else name for name in self.models} | {"replay_llm"},
            rename={"replay_llm": "llm"},
        )
        target = write_repository(
            [plain],
            folder / f"set{self.suffix}",
            rename={**names, "llm": llm},
            settings={
                names.get(name, llm): {**base.get(name, {}), **self.settings.get(name, {})}
                for name in {*self.models, "llm"}
                if name in base
            },
        )
        if self.llm:  # only its name was needed, in the ensemble's step; the model is the other set's
            _remove(target / llm)
        if self.echo:
            code = target / names["postprocess"] / "1"
            code.unlink()
            code.symlink_to(SOURCES[1] / "postprocess_echo" / "1", target_is_directory=True)
        return target


def _remove(folder: Path) -> None:
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()


@dataclass(frozen=True, slots=True)
class ReplayServer:
    """A running server.

    Args:
        server: its process and addresses.
        journal: what `replay_llm` writes of ended streams.
    """

    server: TritonServer
    journal: Path

    @property
    def grpc_url(self) -> str:
        """`host:port`."""
        return self.server.grpc_url

    def ended(self, tag: str, count: int = 1, seconds: float = 30.0) -> list[dict[str, Any]]:
        """The journal's entries of the streams with this tag, once `count` of them have ended."""

        def entries() -> list[dict[str, Any]]:
            text = self.journal.read_text(encoding="utf-8") if self.journal.exists() else ""
            found = [json.loads(line) for line in text.splitlines()]
            return [entry for entry in found if entry["tag"] == tag]

        return eventually(entries, lambda found: len(found) >= count, seconds)

    def wait_empty(self, model: str, seconds: float = 30.0) -> None:
        """Wait until the model holds no stream. Its metric is up to a second old, so the first look comes late."""
        time.sleep(1.2)
        eventually(lambda: metric(self.server, "tristream_streams_live", model=model), lambda live: live == 0, seconds)

    def log(self) -> str:
        """The server's log so far."""
        assert self.server.log_file is not None
        return self.server.log_file.read_text(encoding="utf-8", errors="replace")


@contextmanager
def replay_server(folder: Path, sets: Sequence[Set], **options: Any) -> Iterator[ReplayServer]:
    """Start a server with these sets; it is stopped on leaving."""
    journal = folder / "journal.jsonl"
    repositories = [each.write(folder, journal) for each in sets]
    with TritonServer(repositories, log_file=folder / "server.log", exit_timeout_s=2, **options) as server:
        server.wait_ready(START_S)
        yield ReplayServer(server, journal)


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


def process_of(server: TritonServer, model: str) -> int:
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
    status = Path(f"/proc/{process_of(server, model)}/status").read_text(encoding="utf-8")
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024
