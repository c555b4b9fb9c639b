from __future__ import annotations

import threading
from typing import Any

import pytest

from tristream.backend import stopper as module
from tristream.backend.stopper import Stopper


class Llm:
    """What BLS reaches: notes the stops; may fail, or hang until it is let go."""

    def __init__(self, error: str = "", hold: threading.Event | None = None) -> None:
        self.stopped: list[str] = []
        self.error = error
        self.hold = hold

    def request(self, model_name: str, requested_output_names: list[str], inputs: list[Any]) -> Any:
        values = {tensor.name(): tensor.as_numpy() for tensor in inputs}
        assert model_name == "llm"
        assert requested_output_names == ["token_ids"]
        assert [values[name].shape for name in ("stream_id", "stop")] == [(1,), (1,)]
        assert values["stop"].item() is True
        return Call(self, values["stream_id"].item().decode())


class Call:
    def __init__(self, llm: Llm, stream_id: str) -> None:
        self.llm = llm
        self.stream_id = stream_id

    def exec(self, decoupled: bool) -> list[Any]:
        assert decoupled
        if self.llm.hold is not None:
            self.llm.hold.wait(10)
        self.llm.stopped.append(self.stream_id)
        return [Refusal(self.llm.error)] if self.llm.error else []


class Refusal:
    def __init__(self, text: str) -> None:
        self.text = text

    def has_error(self) -> bool:
        return True

    def error(self) -> Any:
        return self

    def message(self) -> str:
        return self.text


def test_stops_are_sent_in_order(pb: Any) -> None:
    llm = Llm()
    pb.InferenceRequest = llm.request
    stopper = Stopper(pb, "llm")
    stopper.stop(["a", "b"])
    stopper.stop(["c"])
    stopper.stop([])
    stopper.close()
    assert llm.stopped == ["a", "b", "c"]


def test_no_model_no_stops(pb: Any) -> None:
    stopper = Stopper(pb, "")
    stopper.stop(["a"])
    stopper.close()
    assert pb.Logger.lines == []


def test_an_llm_without_stop_is_told_of_once(pb: Any) -> None:
    llm = Llm(error="no model 'llm'")
    pb.InferenceRequest = llm.request
    stopper = Stopper(pb, "llm")
    stopper.stop(["a", "b"])
    stopper.close()
    assert llm.stopped == ["a", "b"]
    assert pb.Logger.lines == ["tristream: model llm takes no stop: no model 'llm'"]


def test_an_llm_that_hangs_holds_nobody_up(pb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    llm = Llm(hold=threading.Event())
    pb.InferenceRequest = llm.request
    stopper = Stopper(pb, "llm")
    stopper.stop([str(number) for number in range(20)])  # more than find room: returns all the same
    stopper.close(timeout_s=0.05)
    assert llm.hold is not None
    assert llm.stopped == []
    llm.hold.set()
