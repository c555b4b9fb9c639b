"""The model `chat_direct` against an LLM that is a real gRPC server in this process."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tristream.backend.errors import SettingsError
from tristream.backend.models.chat_direct import ChatDirectModel

TEXT = "plan</think>\n\nHello there, my friend."
Value = TypeVar("Value")


class Llm(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Plays what the user's message asks for, as JSON: text, and where to fail."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.requests: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self.cancelled: list[str] = []
        self.sent: dict[str, int] = {}

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """The one method that `chat_direct` calls."""
        async for request in requests:
            raw = dict(zip((i.name for i in request.inputs), request.raw_input_contents, strict=True))
            stream_id = raw["stream_id"][4:].decode()
            if "stop" in raw:
                assert raw["stop"] == b"\x01"
                self.stopped.append(stream_id)
                return
            ids = struct.unpack(f"<{len(raw['input_ids']) // 4}i", raw["input_ids"])
            sampling = json.loads(raw["sampling"][4:])
            self.requests.append({"model": request.model_name, "id": request.id, "stream_id": stream_id, **sampling})
            prompt = self._tokenizer.decode(list(ids), skip_special_tokens=False)
            play = json.loads(prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0])
            try:
                async for response in self._play(stream_id, play, context):
                    yield response
            except asyncio.CancelledError:
                self.cancelled.append(stream_id)
                raise

    async def _play(self, stream_id: str, play: dict[str, Any], context: Any) -> AsyncIterator[Any]:
        if "error" in play:
            yield service_pb2.ModelStreamInferResponse(error_message=play["error"])
            return
        await asyncio.sleep(play.get("prefill", 0))
        ids = self._tokenizer.encode(play.get("text", TEXT), add_special_tokens=False).ids * play.get("times", 1)
        group: list[int] = []
        for place, token_id in enumerate(ids):
            if place == play.get("abort"):
                await context.abort(grpc.StatusCode.INTERNAL, "out of memory")
            if place == play.get("error_at"):
                yield service_pb2.ModelStreamInferResponse(error_message="Traceback: kaputt")
                return
            if place == play.get("drop"):
                return
            if place == play.get("hang"):
                await asyncio.sleep(60)
            if place == play.get("fail"):
                yield step(stream_id, [], {"finish_reason": "error", "error": play.get("says", "boom"), "last": True})
                return
            self.sent[stream_id] = place + 1
            group.append(token_id)
            meta = {"finish_reason": "stop", "completion_tokens": len(ids), "last": True}
            if place == len(ids) - 1 or len(group) == play.get("together", 1):
                yield step(stream_id, group, meta if place == len(ids) - 1 else None)
                group = []
            await asyncio.sleep(play.get("delay", 0))


def step(stream_id: str, token_ids: list[int], meta: dict[str, Any] | None) -> Any:
    """One response of `llm`."""
    response = service_pb2.ModelInferResponse(model_name="llm")
    said = json.dumps(meta).encode() if meta else b""
    for name, datatype, shape, raw in (
        ("stream_id", "BYTES", [1, 1], struct.pack("<I", len(stream_id)) + stream_id.encode()),
        ("token_ids", "INT32", [1, len(token_ids)], struct.pack(f"<{len(token_ids)}i", *token_ids)),
        ("meta", "BYTES", [1, 1], struct.pack("<I", len(said)) + said),
    ):
        response.outputs.add(name=name, datatype=datatype, shape=shape)
        response.raw_output_contents.append(raw)
    return service_pb2.ModelStreamInferResponse(infer_response=response)


class LlmServer:
    """The LLM on a loop and a port of its own."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.llm = Llm(tokenizer)
        self.url = self._run(self._start())

    def _run(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(20)

    async def _start(self) -> str:
        self._server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self.llm, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    def kill(self) -> None:
        """Drop all connections and the port."""
        self._run(self._server.stop(None))

    def close(self) -> None:
        self.kill()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def server(demo_model: Path) -> Iterator[LlmServer]:
    running = LlmServer(Tokenizer.from_file(str(demo_model / "tokenizer.json")))
    yield running
    running.close()


def load(pb: Any, demo_model: Path, project: Path, url: str, **parameters: str) -> ChatDirectModel:
    values = {
        "tokenizer": str(demo_model),
        "chat_template": "$$TRITON_MODEL_DIRECTORY/chat_template.jinja",
        "llm_url": url,
        "cancel_check_ms": "50",
        **parameters,
    }
    config = {
        "parameters": {name: {"string_value": value} for name, value in values.items()},
        "model_transaction_policy": {"decoupled": True},
    }
    model = ChatDirectModel(pb)
    folder = project / "model_repository" / "chat_direct"
    arguments = {"model_name": "chat_direct", "model_repository": str(folder), "model_config": json.dumps(config)}
    model.initialize(arguments)
    return model


Loader = Callable[..., ChatDirectModel]


@pytest.fixture
def loader(pb: Any, demo_model: Path, project: Path, server: LlmServer) -> Iterator[Loader]:
    loaded: list[ChatDirectModel] = []

    def make(url: str | None = None, **parameters: str) -> ChatDirectModel:
        loaded.append(load(pb, demo_model, project, url or server.url, **parameters))
        return loaded[-1]

    yield make
    for model in loaded:
        model.finalize()


def play(**what: Any) -> str:
    """A request that tells the LLM what to do."""
    members = what.pop("members", {})
    return json.dumps({"messages": [{"role": "user", "content": json.dumps(what)}], **members})


def eventually(look: Callable[[], Value], seconds: float = 10.0) -> Value:
    """What `look` says once it says something."""
    end = time.monotonic() + seconds
    while not (seen := look()) and time.monotonic() < end:
        time.sleep(0.01)
    assert seen
    return seen


def ask(pb: Any, model: ChatDirectModel, text: str, seconds: float = 10.0) -> list[Any]:
    """Send one request and wait for FINAL."""
    request = pb.request({"request": text})
    model.execute([request])
    eventually(lambda: request.sender.finals, seconds)
    assert request.sender.finals == 1
    responses: list[Any] = request.sender.responses
    return responses


def joined(responses: list[Any], name: str) -> str:
    return "".join(text for response in responses for text in response.values().get(name, []))


def test_a_stream_from_request_to_final(pb: Any, loader: Loader, server: LlmServer) -> None:
    model = loader()
    responses = ask(pb, model, play(members={"temperature": 0.5, "max_tokens": 77}))
    assert joined(responses, "reasoning") == "plan"
    assert joined(responses, "content") == "Hello there, my friend."
    assert joined(responses, "finish_reason") == "stop"
    usage = json.loads(joined(responses, "usage"))
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 1}
    (asked,) = server.llm.requests
    assert asked["model"] == "llm"
    assert asked["id"] == asked["stream_id"]  # so that any backend's `stop` can name it
    assert len(asked["stream_id"]) == 32
    assert (asked["temperature"], asked["max_tokens"]) == (0.5, 77)
    assert server.llm.stopped == []


def test_many_streams_at_once_do_not_mix(pb: Any, loader: Loader) -> None:
    model = loader()
    requests = [pb.request({"request": play(text=f"p{i}</think>\n\n" + f" {i}" * 40, delay=0.001)}) for i in range(200)]
    model.execute(requests)
    eventually(lambda: all(request.sender.finals for request in requests), 60)
    for number, request in enumerate(requests):
        assert joined(request.sender.responses, "reasoning") == f"p{number}"
        assert joined(request.sender.responses, "content").split() == [str(number)] * 40
        assert request.sender.finals == 1


def test_what_comes_together_goes_out_together(pb: Any, loader: Loader) -> None:
    responses = ask(pb, loader(), play(text="plan</think>\n\n" + " Hello" * 400, together=50))
    assert joined(responses, "content").split() == ["Hello"] * 400
    assert len(responses) <= 10


@pytest.mark.parametrize("times", [1, 30])
def test_a_client_that_goes_stops_the_llm(pb: Any, loader: Loader, server: LlmServer, times: int) -> None:
    model = loader()
    request = pb.request({"request": play(times=400, delay=0.01, prefill=0 if times > 1 else 5)})
    model.execute([request])
    eventually(lambda: server.llm.requests)
    if times > 1:
        eventually(lambda: len(request.sender.responses) > times)
    stream_id = server.llm.requests[0]["stream_id"]
    before = server.llm.sent.get(stream_id, 0)
    request.sender.cancelled = True
    eventually(lambda: server.llm.cancelled and server.llm.stopped)
    assert server.llm.cancelled == server.llm.stopped == [stream_id]
    assert server.llm.sent.get(stream_id, 0) - before <= 32
    eventually(lambda: request.sender.finals)


def test_an_llm_without_stop_is_only_cancelled(pb: Any, loader: Loader, server: LlmServer) -> None:
    request = pb.request({"request": play(times=400, delay=0.01)})
    loader(llm_takes_stop="false").execute([request])
    eventually(lambda: request.sender.responses)
    request.sender.cancelled = True
    eventually(lambda: server.llm.cancelled)
    eventually(lambda: request.sender.finals)
    assert server.llm.stopped == []


@pytest.mark.parametrize("where", ["abort", "error_at", "drop", "hang", "fail"])
def test_an_llm_that_fails_mid_stream_ends_the_message(pb: Any, loader: Loader, server: LlmServer, where: str) -> None:
    responses = ask(pb, loader(token_timeout_s="0.3"), play(**{where: 10}))
    assert not any(response.has_error() for response in responses)
    assert joined(responses, "reasoning") == "plan"
    assert joined(responses, "content").startswith("Hello")
    assert joined(responses, "finish_reason") == "error"
    assert [notice["code"] for notice in json.loads(joined(responses, "notices"))] == ["stream_lost"]
    assert "kaputt" not in str([response.values() for response in responses])
    if where != "fail":
        eventually(lambda: server.llm.stopped)


def test_hidden_reasoning_stays_hidden_when_the_llm_fails(pb: Any, loader: Loader) -> None:
    members = {"include_reasoning": False, "return_token_ids": True}
    responses = ask(pb, loader(), play(text="secret thoughts " * 20, abort=30, members=members))
    # nothing was sent, so the error can still be one
    assert [response.has_error() for response in responses] == [True]
    assert "secret" not in responses[0].error().message()


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ({"error": "constraint: found no grammar; allowed: a grammar"}, "INVALID_ARG", "constraint: found no grammar"),
        ({"error": "in llm, server busy: limit max_live reached"}, "UNAVAILABLE", "server busy: limit max_live"),
        ({"error": "kaputt\nTraceback: x"}, "UNAVAILABLE", "the LLM failed before its first token: kaputt"),
        ({"abort": 0}, "UNAVAILABLE", "the LLM failed before its first token: INTERNAL: out of memory"),
        ({"drop": 0}, "UNAVAILABLE", "its stream ended without a finish_reason"),
        ({"prefill": 30}, "UNAVAILABLE", "no token within 0.3 s (first_token_timeout_s)"),
        ({"fail": 0}, "UNAVAILABLE", "the LLM failed before its first token: boom"),
        ({"fail": 0, "says": "a.b: found c; allowed: d"}, "INVALID_ARG", "a.b: found c; allowed: d"),
    ],
)
def test_an_llm_that_fails_before_its_first_token_is_an_error(
    pb: Any, loader: Loader, what: dict[str, Any], code: str, message: str
) -> None:
    (response,) = ask(pb, loader(first_token_timeout_s="0.3"), play(**what))
    assert message in response.error().message()
    assert "Traceback" not in response.error().message()
    assert response.error().code() == getattr(pb.TritonError, code)


def test_a_server_that_is_not_there(pb: Any, loader: Loader, server: LlmServer) -> None:
    model = loader(connect_timeout_s="0.5")
    assert ask(pb, model, play())[-1].values()["finish_reason"] == ["stop"]
    server.kill()
    (response,) = ask(pb, model, play())
    assert response.error().code() == pb.TritonError.UNAVAILABLE
    assert "does not answer within 0.5 s (connect_timeout_s)" in response.error().message()
    assert server.url not in response.error().message()  # where the LLM is, is nobody's business
    assert any(server.url in line for line in pb.Logger.lines)


def test_a_server_that_dies_mid_stream(pb: Any, loader: Loader, server: LlmServer) -> None:
    request = pb.request({"request": play(times=400, delay=0.01)})
    loader().execute([request])
    eventually(lambda: request.sender.responses)
    server.kill()
    eventually(lambda: request.sender.finals)
    assert joined(request.sender.responses, "finish_reason") == "error"


def test_more_streams_than_allowed_are_refused_and_places_come_free(pb: Any, loader: Loader) -> None:
    model = loader(max_streams="2")
    live = [pb.request({"request": play(times=400, delay=0.01)}) for _ in range(2)]
    model.execute(live)
    (response,) = ask(pb, model, play())
    assert response.error().code() == pb.TritonError.UNAVAILABLE
    assert "limit max_streams reached: 2 streams are live" in response.error().message()
    for request in live:
        request.sender.cancelled = True
    eventually(lambda: all(request.sender.finals for request in live))
    eventually(lambda: not ask(pb, model, play())[0].has_error())


def test_bad_requests_take_no_place(pb: Any, loader: Loader, server: LlmServer) -> None:
    model = loader(max_streams="1")
    for _ in range(3):
        (response,) = ask(pb, model, "{}")
        assert response.error().message().startswith("messages: found nothing")
        assert response.error().code() == pb.TritonError.INVALID_ARG
    assert not ask(pb, model, play())[0].has_error()
    assert len(server.llm.requests) == 1


def test_after_final_nobody_asks_for_the_client(pb: Any, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 2.51 dies of `is_cancelled` after FINAL."""
    asked: list[int] = []
    request = pb.request({"request": play(times=4)})

    def is_cancelled() -> bool:
        asked.append(request.sender.finals)
        return False

    monkeypatch.setattr(request.sender, "is_cancelled", is_cancelled)
    model = loader(cancel_check_ms="10")
    model.execute([request])
    eventually(lambda: request.sender.finals)
    time.sleep(0.1)
    assert asked
    assert not any(asked)


def test_unloading_ends_what_runs(pb: Any, demo_model: Path, project: Path, server: LlmServer) -> None:
    model = load(pb, demo_model, project, server.url)
    begun = pb.request({"request": play(times=400, delay=0.01)})
    waiting = pb.request({"request": play(prefill=30)})
    model.execute([begun, waiting])
    eventually(lambda: begun.sender.responses and len(server.llm.requests) == 2)
    model.finalize()
    assert begun.sender.finals == waiting.sender.finals == 1
    assert joined(begun.sender.responses, "finish_reason") == "error"
    assert "shutting down" in waiting.sender.responses[0].error().message()
    # The channel is closed by then; the LLM's side learns of it a moment later.
    eventually(lambda: len(server.llm.cancelled) == 2)


def test_a_send_that_fails_ends_its_stream_and_the_llms(
    pb: Any, loader: Loader, server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(response: Any = None, flags: int = 0) -> None:
        raise OSError("no shared memory")

    request = pb.request({"request": play(times=400, delay=0.01)})
    monkeypatch.setattr(request.sender, "send", broken)
    model = loader()
    model.execute([request])
    eventually(lambda: server.llm.cancelled)
    assert any("no shared memory" in line for line in pb.Logger.lines)
    assert not ask(pb, model, play())[0].has_error()


def test_it_refuses_to_run_without_decoupling(pb: Any) -> None:
    arguments = {"model_name": "chat_direct", "model_repository": "x", "model_config": "{}"}
    with pytest.raises(SettingsError, match="decoupled"):
        ChatDirectModel(pb).initialize(arguments)


def test_where_the_llm_is(pb: Any, demo_model: Path, project: Path, server: LlmServer, monkeypatch: Any) -> None:
    monkeypatch.setenv("TRISTREAM_LLM_URL", server.url)
    model = load(pb, demo_model, project, "")
    assert ask(pb, model, play())[-1].values()["finish_reason"] == ["stop"]
    model.finalize()
