"""The model `preprocess`: outputs, the `open` it sends, and what becomes of refusals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tristream.backend.models.preprocess import PreprocessModel


class FakeBls:
    """`pb_utils.InferenceRequest`: answers an `open` as `postprocess` would."""

    sent: list[dict[str, Any]]
    answer: Any  # called with the open; returns responses

    def __init__(self, model_name: str, requested_output_names: list[str], inputs: list[Any]) -> None:
        assert requested_output_names
        (tensor,) = inputs
        assert tensor.name() == "open"
        assert tensor.as_numpy().shape == (1, 1)
        self._model = model_name
        self._open = json.loads(tensor.as_numpy()[0, 0])

    def exec(self, *, decoupled: bool) -> Iterator[Any]:
        assert decoupled
        type(self).sent.append({"model": self._model, **self._open})
        return iter(type(self).answer(self._open))


@pytest.fixture
def bls(pb: Any) -> type[FakeBls]:
    pb.InferenceRequest = type("InferenceRequest", (FakeBls,), {"sent": [], "answer": lambda self, _: []})
    pb.InferenceRequest.answer = staticmethod(lambda _: [pb.InferenceResponse()])
    kind: type[FakeBls] = pb.InferenceRequest
    return kind


def load(pb: Any, demo_model: Path, project: Path, **parameters: str) -> PreprocessModel:
    values = {
        "tokenizer": str(demo_model),
        "chat_template": "$$TRITON_MODEL_DIRECTORY/chat_template.jinja",
        **parameters,
    }
    config = {"parameters": {name: {"string_value": value} for name, value in values.items()}}
    model = PreprocessModel(pb, clock=lambda: 12.5)
    folder = project / "model_repository" / "preprocess"
    model.initialize({"model_name": "preprocess", "model_repository": str(folder), "model_config": json.dumps(config)})
    return model


@pytest.fixture
def model(pb: Any, bls: type[FakeBls], demo_model: Path, project: Path) -> Iterator[PreprocessModel]:
    loaded = load(pb, demo_model, project)
    yield loaded
    loaded.finalize()


def body(**members: Any) -> str:
    return json.dumps({"messages": [{"role": "user", "content": "Hello"}], **members})


def tensors(response: Any) -> dict[str, Any]:
    assert not response.has_error(), response.error().message()
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def test_a_request_becomes_the_llms_inputs_and_an_open(pb: Any, bls: type[FakeBls], model: PreprocessModel) -> None:
    (response,) = model.execute([pb.request({"request": body(format="hermes")})])
    outputs = tensors(response)
    assert {name: array.shape for name, array in outputs.items()} == {
        "stream_id": (1,),
        "input_ids": (len(outputs["input_ids"]),),
        "sampling": (1,),
        "constraint": (1,),
    }
    assert str(outputs["input_ids"].dtype) == "int32"
    stream_id = outputs["stream_id"][0].decode()
    assert len(stream_id) == 32
    (opened,) = bls.sent
    assert opened["model"] == "postprocess"
    assert opened["stream_id"] == stream_id
    assert opened["format"] == "hermes"
    assert opened["sent_at"] == 12.5
    assert opened["prompt_tokens"] == len(outputs["input_ids"])


def test_each_request_of_an_execution_has_its_own_answer(pb: Any, bls: type[FakeBls], model: PreprocessModel) -> None:
    requests = [body(), "{", body(n=99), body()]
    responses = model.execute([pb.request({"request": text}) for text in requests])
    errors = [response.error().message() if response.has_error() else "" for response in responses]
    assert errors[0] == errors[3] == ""
    assert errors[1].startswith("request: found no JSON")
    assert errors[2] == "n: found 99; allowed: 1 to 16 (max_choices)"
    assert all(response.error().code() == pb.TritonError.INVALID_ARG for response in responses[1:3])
    ids = [tensors(response)["stream_id"][0] for response in (responses[0], responses[3])]
    assert ids[0] != ids[1]
    assert [opened["stream_id"].encode() for opened in bls.sent] == ids


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("server busy: limit max_streams reached: 4096 live streams; try again later", "UNAVAILABLE"),
        ("open: found 5000000 bytes; allowed: at most 4194304 (max_open_bytes)", "INVALID_ARG"),
        ("Model postprocess is not ready", "INTERNAL"),
    ],
)
def test_what_postprocess_refuses_is_passed_on(
    pb: Any, bls: type[FakeBls], model: PreprocessModel, text: str, code: str
) -> None:
    # BLS of 2.51 loses the code: all arrive as INTERNAL
    bls.answer = staticmethod(lambda _: [pb.InferenceResponse(error=pb.TritonError(text))])
    (response,) = model.execute([pb.request({"request": body()})])
    assert response.error().message() == text
    assert response.error().code() == getattr(pb.TritonError, code)
    assert not response.output_tensors()


def test_a_postprocess_that_hangs_is_not_waited_for(
    pb: Any, bls: type[FakeBls], demo_model: Path, project: Path
) -> None:
    released = threading.Event()
    bls.answer = staticmethod(lambda _: [released.wait(30)][:0])
    model = load(pb, demo_model, project, open_timeout_s="0.2")
    begun = time.monotonic()
    (response,) = model.execute([pb.request({"request": body()})])
    assert time.monotonic() - begun < 5
    assert response.error().code() == pb.TritonError.UNAVAILABLE
    assert "postprocess has not taken the stream for 0.2 s" in response.error().message()
    released.set()
    model.finalize()


def test_what_nobody_expected_is_logged_and_not_shown(pb: Any, bls: type[FakeBls], model: PreprocessModel) -> None:
    def broken(_: Any) -> Any:
        raise OSError("secret path")

    bls.answer = staticmethod(broken)
    (response,) = model.execute([pb.request({"request": body()})])
    assert response.error().code() == pb.TritonError.INTERNAL
    assert "secret" not in response.error().message()
    assert any("secret path" in line for line in pb.Logger.lines)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "request: found no such input"),
        ({"request": b"\xff"}, "request: found a byte that is not UTF-8"),
    ],
)
def test_inputs_that_cannot_be_read(pb: Any, model: PreprocessModel, inputs: Any, message: str) -> None:
    (response,) = model.execute([pb.request(inputs)])
    assert response.error().message().startswith(message)
    assert response.error().code() == pb.TritonError.INVALID_ARG


VLLM = {"llm_backend": "vllm", "match": "text"}


def test_an_unchanged_llm_gets_its_own_inputs(pb: Any, bls: type[FakeBls], demo_model: Path, project: Path) -> None:
    """On a server without response parameters the client's own ids tell the streams apart."""
    model = load(pb, demo_model, project, **VLLM)
    requests = [pb.request({"request": body()}, request_id="mine"), pb.request({"request": body()}, correlation_id=77)]
    for response, key in zip(model.execute(requests), ("mine", "77"), strict=True):
        outputs = tensors(response)
        assert outputs["text_input"][0].decode().endswith("assistant\n<think>\n")
        assert outputs["return_finish_reason"].tolist() == [True]
        assert json.loads(outputs["sampling_parameters"][0])["skip_special_tokens"] is False
        assert bls.sent.pop(0)["stream_id"] == key
    (refused,) = model.execute([pb.request({"request": body()})])
    assert refused.error().message().startswith("id: found neither a request id nor a correlation id; allowed: ")
    assert refused.error().code() == pb.TritonError.INVALID_ARG
    assert not bls.sent
    model.finalize()


def test_where_responses_have_parameters_the_later_steps_get_a_correlation_id_of_ours(
    pb: Any, bls: type[FakeBls], demo_model: Path, project: Path
) -> None:
    class Response(type(pb).InferenceResponse):  # type: ignore[misc]
        def __init__(self, output_tensors: Any = (), error: Any = None, parameters: Any = None) -> None:
            super().__init__(output_tensors, error)
            self.said = parameters

    pb.InferenceResponse = Response
    model = load(pb, demo_model, project, **VLLM)
    said = [model.execute([pb.request({"request": body()}, request_id="mine")])[0].said for _ in range(2)]
    numbers = [each["sequence_id"] for each in said]
    assert numbers[0] != numbers[1]
    assert all(0 < number < 2**63 for number in numbers)
    assert [opened["stream_id"] for opened in bls.sent] == [str(number) for number in numbers]
    model.finalize()
    ours = load(pb, demo_model, project)
    assert ours.execute([pb.request({"request": body()})])[0].said is None, "our llm echoes its stream_id"
    ours.finalize()


def test_where_the_end_is_not_named_the_open_says_how_it_is_seen(
    pb: Any, bls: type[FakeBls], demo_model: Path, project: Path
) -> None:
    model = load(pb, demo_model, project, llm_backend="tensorrtllm", constraints="false", auto_tools="model")
    requests = [body(max_tokens=5), body(ignore_eos=True)]
    for response in model.execute([pb.request({"request": text}, request_id="a") for text in requests]):
        assert tensors(response)["input_ids"].ndim == 2
    room = 8192 - bls.sent[1]["prompt_tokens"]
    assert [(opened["end_ids"], opened["max_tokens"]) for opened in bls.sent] == [([2], 5), ([], room)]
    model.finalize()
