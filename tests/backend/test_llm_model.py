"""The model `llm`: between Triton and an engine; then the whole of it in a real server."""

from __future__ import annotations

import gc
import json
import secrets
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from transformers import LlamaConfig
from tritonclient.grpc import service_pb2, service_pb2_grpc

from support.tiny_llm import SIZES, tiny_folder, tiny_tokenizer
from tristream.backend.deploy.repository import write_repository
from tristream.backend.deploy.server import TritonServer
from tristream.backend.engines.base import GenerationRequest, Sampling, Sink, Step
from tristream.backend.errors import BUSY_PREFIX, SettingsError, UnavailableError
from tristream.backend.models.delivery import ASK_TOKENS
from tristream.backend.models.llm import LlmModel
from tristream.parsers.errors import RequestError

REPOSITORY = Path(__file__).parents[2] / "model_repository"


class ScriptedEngine:
    """Streams run by hand."""

    def __init__(self) -> None:
        self.requests: dict[str, GenerationRequest] = {}
        self.sinks: dict[str, Sink] = {}
        self.stopped: list[str] = []
        self.closed = 0
        self.refusal: Exception | None = None

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.requests[request.stream_id] = request
        self.sinks[request.stream_id] = sink

    def stop(self, stream_id: str) -> None:
        self.stopped.append(stream_id)

    def close(self) -> None:
        self.closed += 1
        for sink in self.sinks.values():
            sink(Step((), "error", "closing", last=True))


def arguments(parameters: Mapping[str, str], **config: Any) -> dict[str, str]:
    """`args` of `initialize`."""
    model_config = {"parameters": {name: {"string_value": text} for name, text in parameters.items()}, **config}
    return {"model_name": "llm", "model_repository": "/models/llm", "model_config": json.dumps(model_config)}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def llm(pb: Any, engine: ScriptedEngine) -> Iterator[LlmModel]:
    model = LlmModel(pb, lambda _settings, _args: engine)
    model.initialize(arguments({"model": "/models/some"}))
    yield model
    engine.sinks.clear()
    model.finalize()


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def sent(request: Any) -> list[dict[str, Any]]:
    return [response.values() for response in request.sender.responses]


def meta(values: dict[str, Any]) -> Any:
    return json.loads(values["meta"][0]) if values["meta"][0] else {}


def test_steps_become_responses(pb: Any, llm: LlmModel, engine: ScriptedEngine) -> None:
    request = pb.request({"stream_id": "a", "input_ids": [1, 2], "sampling": '{"seed": 3}', "constraint": ""})
    llm.execute([request])
    assert engine.requests["a"] == GenerationRequest("a", [1, 2], Sampling(seed=3))
    engine.sinks["a"](Step((7,)))
    until(lambda: len(request.sender.responses) == 1)
    assert sent(request) == [{"stream_id": ["a"], "token_ids": [7], "meta": [""]}]
    assert request.sender.finals == 0
    engine.sinks["a"](Step((8,), "stop", prompt_tokens=2, completion_tokens=2, last=True))
    until(lambda: request.sender.finals == 1)
    assert request.sender.sends == 2  # FINAL rides on the last step
    assert meta(sent(request)[1]) == {"finish_reason": "stop", "prompt_tokens": 2, "completion_tokens": 2, "last": True}


def test_a_last_step_without_tokens(pb: Any, llm: LlmModel, engine: ScriptedEngine) -> None:
    request = pb.request({"stream_id": "a", "input_ids": [1]})
    llm.execute([request])
    engine.sinks["a"](Step((), "stop", last=True))
    until(lambda: request.sender.finals == 1)
    assert sent(request)[0]["token_ids"] == []


def test_what_comes_while_a_send_lasts_goes_together(
    pb: Any, llm: LlmModel, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = pb.request({"stream_id": "a", "input_ids": [1]})
    llm.execute([request])
    go, begun = threading.Event(), threading.Event()
    real_send = request.sender.send

    def slow_send(*args: Any, **rest: Any) -> None:
        begun.set()
        go.wait(10)
        real_send(*args, **rest)

    monkeypatch.setattr(request.sender, "send", slow_send)
    engine.sinks["a"](Step((1,)))
    assert begun.wait(10)
    for token in range(2, 7):
        engine.sinks["a"](Step((token,), "length" if token == 6 else None, last=token == 6))
    go.set()
    until(lambda: request.sender.finals == 1)
    assert [values["token_ids"] for values in sent(request)] == [[1], [2, 3, 4, 5, 6]]


def test_choices_stay_apart(pb: Any, llm: LlmModel, engine: ScriptedEngine) -> None:
    request = pb.request({"stream_id": "a", "input_ids": [1]})
    llm.execute([request])
    for step in (
        Step((1,)),
        Step((2,), choice_index=1),
        Step((3,), "stop"),
        Step((), "stop", choice_index=1, last=True),
    ):
        engine.sinks["a"](step)
    until(lambda: request.sender.finals == 1)
    tokens: dict[int, list[int]] = {0: [], 1: []}
    for values in sent(request):
        tokens[meta(values).get("choice_index", 0)] += values["token_ids"]
    assert tokens == {0: [1, 3], 1: [2]}


def test_stop(pb: Any, llm: LlmModel, engine: ScriptedEngine) -> None:
    request = pb.request({"stream_id": "a", "stop": True})
    llm.execute([request])
    assert engine.stopped == ["a"]
    assert (request.sender.responses, request.sender.finals) == ([], 1)
    again = pb.request({"stream_id": "b", "input_ids": [1], "stop": False})
    llm.execute([again])
    assert "b" in engine.requests


def test_a_client_that_goes_stops_its_stream(pb: Any, llm: LlmModel, engine: ScriptedEngine) -> None:
    gone, stays = pb.request({"stream_id": "a", "input_ids": [1]}), pb.request({"stream_id": "b", "input_ids": [1]})
    llm.execute([gone, stays])
    gone.sender.cancelled = True
    for token in range(ASK_TOKENS):
        engine.sinks["a"](Step((token,)))
    until(lambda: engine.stopped == ["a"])
    engine.sinks["a"](Step((), "stop", last=True))
    until(lambda: gone.sender.finals == 1)
    engine.sinks["b"](Step((1,), "stop", last=True))
    until(lambda: stays.sender.finals == 1)
    assert engine.stopped == ["a"]


def test_a_client_that_goes_before_the_first_token(pb: Any, llm: LlmModel, engine: ScriptedEngine) -> None:
    request = pb.request({"stream_id": "a", "input_ids": [1]})
    llm.execute([request])
    request.sender.cancelled = True
    until(lambda: engine.stopped == ["a"])


def test_a_send_that_fails_stops_its_stream_alone(
    pb: Any, llm: LlmModel, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, fine = pb.request({"stream_id": "a", "input_ids": [1]}), pb.request({"stream_id": "b", "input_ids": [1]})
    llm.execute([broken, fine])

    def refuse(*_args: Any, **_rest: Any) -> None:
        raise RuntimeError("no shared memory")

    monkeypatch.setattr(broken.sender, "send", refuse)
    engine.sinks["a"](Step((1,)))
    until(lambda: engine.stopped == ["a"])
    engine.sinks["b"](Step((1,), "stop", last=True))
    until(lambda: fine.sender.finals == 1)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"input_ids": [1]}, "stream_id: found no such input"),
        ({"stream_id": np.array([b"a", b"b"], np.object_), "input_ids": [1]}, "stream_id: found 2 elements"),
        ({"stream_id": b"\xff", "input_ids": [1]}, "stream_id: found a byte that is not UTF-8"),
    ],
)
def test_without_a_stream_id_it_is_tritons_error(pb: Any, llm: LlmModel, inputs: dict[str, Any], text: str) -> None:
    request = pb.request(inputs)
    llm.execute([request])
    error = request.sender.responses[0].error()
    assert error.message().startswith(text)
    assert error.code() == pb.TritonError.INVALID_ARG
    assert request.sender.finals == request.sender.sends == 1


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "input_ids: found no such input"),
        ({"input_ids": "text"}, "input_ids: found datatype"),
        ({"input_ids": [1], "sampling": '{"top_p": 7}'}, "sampling.top_p: found 7"),
        ({"input_ids": [1], "constraint": "{}"}, "constraint: found"),
        ({"input_ids": [1], "constraint": json.dumps({"regex": "a" * 5_000_000})}, "constraint: found 5000013 bytes"),
    ],
)
def test_refusals_are_steps(pb: Any, llm: LlmModel, inputs: dict[str, Any], text: str) -> None:
    request = pb.request({"stream_id": "a", **inputs})
    llm.execute([request])
    values = sent(request)[0]
    assert values["stream_id"] == ["a"]
    assert meta(values)["error"].startswith(text)
    assert meta(values)["finish_reason"] == "error"
    assert meta(values)["last"]
    assert request.sender.finals == request.sender.sends == 1


def test_refusals_of_the_engine(pb: Any, llm: LlmModel, engine: ScriptedEngine) -> None:
    def refused(error: Exception) -> Any:
        engine.refusal = error
        request = pb.request({"stream_id": "a", "input_ids": [1]})
        llm.execute([request])
        assert request.sender.finals == 1
        return request.sender.responses[0]

    assert meta(refused(UnavailableError("max_queue", "full", "later")).values())["error"].startswith(BUSY_PREFIX)
    live = refused(RequestError("stream_id", "the id of a stream that runs", "another"))
    assert live.error().code() == pb.TritonError.INVALID_ARG  # in-band it would end the other stream
    internal = meta(refused(KeyError("a secret of the prompt")).values())["error"]
    assert internal == "internal error; the server's log tells more"
    assert any("a secret" in line for line in pb.Logger.lines)


def test_unloading_ends_streams(pb: Any, engine: ScriptedEngine) -> None:
    model = LlmModel(pb, lambda _settings, _args: engine)
    model.initialize(arguments({"model": "x"}))
    request = pb.request({"stream_id": "a", "input_ids": [1]})
    model.execute([request])
    model.finalize()
    assert meta(sent(request)[0])["error"] == "closing"
    assert (engine.closed, request.sender.finals) == (1, 1)


def test_nothing_refers_to_a_request_that_has_ended(pb: Any, tmp_path: Path) -> None:
    """The server cannot unload a model that holds on to a sender; waiting for the garbage collector is holding on."""
    folder = tiny_folder(tmp_path, LlamaConfig(**SIZES))
    model = LlmModel(pb)
    model.initialize(arguments({"model": str(folder), "dtype": "float32", "device": "cpu", "num_threads": "1"}))

    def serve(inputs: dict[str, Any]) -> weakref.ref[Any]:
        request = pb.request({"stream_id": "a", "input_ids": [5, 6], **inputs})
        model.execute([request])
        until(lambda: bool(request.sender.finals))
        return weakref.ref(request.sender)

    gc.disable()
    try:
        cases: list[dict[str, Any]] = [
            {"sampling": '{"max_tokens": 9}'},
            {"sampling": '{"max_tokens": 9, "n": 3}'},
            {"sampling": "nonsense"},
            {"sampling": '{"max_tokens": 9}', "constraint": '{"regex": "(a"}'},
        ]
        for inputs in cases:
            sender = serve(inputs)
            until(lambda sender=sender: sender() is None)  # type: ignore[misc]
    finally:
        gc.enable()
        model.finalize()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({}, "'model': found nothing"),
        ({"model": "x", "dtype": "int4"}, "'dtype': found 'int4'"),
        ({"model": "x", "max_concurrent": "0"}, "'max_concurrent'"),
        ({"model": "x", "beams": "3"}, "'beams'"),
        ({"model": "nowhere", "device": "cpu"}, "which does not exist"),
    ],
)
def test_settings(pb: Any, parameters: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        LlmModel(pb).initialize(arguments(parameters))


def test_several_instances_are_warned_of(pb: Any, engine: ScriptedEngine) -> None:
    for group in ({"count": 2}, {"count": 1, "gpus": [0, 1]}):
        model = LlmModel(pb, lambda _settings, _args: engine)
        model.initialize(arguments({"model": "x"}, instance_group=[group]))
        model.finalize()
    assert sum("2 instances" in line for line in pb.Logger.lines) == 2


# The real server, with a tiny model.


class Call:
    """One request on a real server, its responses gathered by a thread."""

    def __init__(self, url: str, **inputs: Any) -> None:
        self.steps: list[tuple[list[int], dict[str, Any]]] = []
        self.error = ""
        self.finals = 0
        self._channel = grpc.insecure_channel(url)
        request = service_pb2.ModelInferRequest(model_name="llm")
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        for name, value in inputs.items():
            _add(request, name, value)
        self._stream = service_pb2_grpc.GRPCInferenceServiceStub(self._channel).ModelStreamInfer(iter([request]))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self._stream:
                self.error += message.error_message
                response = message.infer_response
                self.finals += response.parameters["triton_final_response"].bool_param
                raw = {tensor.name: content for tensor, content in zip(response.outputs, response.raw_output_contents)}  # noqa: B905
                if "meta" in raw:
                    text = raw["meta"][4:].decode()
                    ids = raw["token_ids"]
                    self.steps.append((list(struct.unpack(f"<{len(ids) // 4}i", ids)), json.loads(text or "{}")))
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                self.error += str(error)

    def wait(self) -> Call:
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._channel.close()
        return self

    def cancel(self) -> None:
        self._stream.cancel()

    @property
    def ids(self) -> list[int]:
        return [token for ids, _ in self.steps for token in ids]

    @property
    def meta(self) -> dict[str, Any]:
        return self.steps[-1][1]


def _add(request: Any, name: str, value: Any) -> None:
    tensor = request.inputs.add(name=name)
    if isinstance(value, bool):
        tensor.datatype, raw, count = "BOOL", bytes([value]), 1
    elif isinstance(value, str):
        tensor.datatype, raw, count = "BYTES", struct.pack("<I", len(value.encode())) + value.encode(), 1
    else:
        tensor.datatype, raw, count = "INT32", struct.pack(f"<{len(value)}i", *value), len(value)
    tensor.shape.append(count)
    request.raw_input_contents.append(raw)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    config = LlamaConfig(**{**SIZES, "max_position_embeddings": 8192})
    settings = {"dtype": "float32", "num_threads": "1", "max_concurrent": "4", "max_queue": "2"}
    repository = write_repository([REPOSITORY], folder / "repository", models=["llm"], settings={"llm": settings})
    environment = {"TRISTREAM_MODEL": str(tiny_folder(folder / "model", config))}
    with TritonServer([repository], environment=environment) as server:
        server.wait_ready(120)
        yield server.grpc_url


def body(**parts: Any) -> str:
    return json.dumps(parts)


def fresh() -> str:
    return secrets.token_hex(16)


@pytest.mark.server
def test_server_streams_together_are_as_alone(url: str) -> None:
    sampling = body(temperature=0, max_tokens=50, ignore_eos=True)
    prompts = [[5 + number, 9, 40 + number] * (1 + 7 * number) for number in range(4)]
    alone = [Call(url, stream_id=fresh(), input_ids=prompt, sampling=sampling).wait() for prompt in prompts]
    calls = [Call(url, stream_id=fresh(), input_ids=prompt, sampling=sampling) for prompt in prompts]
    for call, expected, prompt in zip(calls, alone, prompts, strict=True):
        call.wait()
        assert call.ids == expected.ids
        assert len(call.ids) == call.meta["completion_tokens"] == 50
        assert call.meta["prompt_tokens"] == len(prompt)
        assert (call.meta["finish_reason"], call.finals, call.error) == ("length", 1, "")


@pytest.mark.server
def test_server_constraint_choices_and_logprobs(url: str) -> None:
    tag = {
        "type": "tag",
        "begin": "<c>",
        "content": {"type": "json_schema", "json_schema": {"enum": [1, 2]}},
        "end": "</c>",
    }
    sampling = body(n=2, seed=5, max_tokens=30, logprobs=True, top_logprobs=2)
    call = Call(url, stream_id=fresh(), input_ids=[5], sampling=sampling, constraint=body(structural_tag=tag)).wait()
    for choice in range(2):
        steps = [(ids, meta) for ids, meta in call.steps if meta.get("choice_index", 0) == choice]
        ids = [token for ids, _ in steps for token in ids]
        assert tiny_tokenizer().decode(ids, skip_special_tokens=True) in ("<c>1</c>", "<c>2</c>")
        entries = [entry for _, meta in steps for entry in meta.get("logprobs", ())]
        assert len(entries) == len(ids)
    assert [meta.get("last", False) for _, meta in call.steps].count(True) == 1
    assert call.finals == 1


@pytest.mark.server
def test_server_stop_cancel_and_full_queue(url: str) -> None:
    endless = body(temperature=0, ignore_eos=True)
    names = [fresh() for _ in range(6)]
    calls = [Call(url, stream_id=name, input_ids=[5, 6], sampling=endless) for name in names]
    until(lambda: sum(len(call.ids) > 3 for call in calls) == 4)
    refused = Call(url, stream_id=fresh(), input_ids=[5, 6], sampling=endless).wait()
    assert refused.meta["error"].startswith(BUSY_PREFIX)
    assert "max_queue" in refused.meta["error"]
    live = Call(url, stream_id=names[0], input_ids=[5, 6]).wait()
    assert live.error.startswith("stream_id: found the id of a stream that runs")
    # two stopped by name: the two that wait get their rows
    running = [index for index, call in enumerate(calls) if call.ids]
    for index in running[:2]:
        stop = Call(url, stream_id=names[index], stop=True).wait()
        assert (stop.steps, stop.finals) == ([], 1)
        call = calls[index].wait()
        assert call.meta["finish_reason"] == "stop"
        assert call.meta["completion_tokens"] == len(call.ids)
    until(lambda: all(call.ids for call in calls))
    # the others go away: their rows are free again
    for index, call in enumerate(calls):
        if index not in running[:2]:
            call.cancel()
    until(
        lambda: (
            not Call(url, stream_id=fresh(), input_ids=[5], sampling=body(n=4, max_tokens=1)).wait().meta.get("error")
        )
    )


@pytest.mark.server
@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"input_ids": [5] * 8192}, "input_ids: found 8192 tokens; allowed: 1 to 8191"),
        ({"input_ids": [99999]}, "input_ids: found the id 99999"),
        ({"input_ids": [5], "sampling": "nonsense"}, "sampling: found no JSON"),
        ({"input_ids": [5], "constraint": '{"regex": "(a"}'}, "constraint: found no grammar"),
    ],
)
def test_server_refusals(url: str, inputs: dict[str, Any], text: str) -> None:
    call = Call(url, stream_id=fresh(), **inputs).wait()
    assert call.meta["error"].startswith(text)
    assert (call.meta["finish_reason"], call.finals, call.ids) == ("error", 1, [])
