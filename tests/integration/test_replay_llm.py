"""The stand-in itself: it must be an `llm` in every respect, or the tests that use it show nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from support.probing import Answer, infer, outputs, responses
from support.serving import ReplayServer
from tristream.backend.contract import LLM, TensorSpec


def specs(rows: Any, inputs: bool) -> list[TensorSpec]:
    found = []
    for row in rows:
        dtype: Any = model_config_pb2.DataType.Name(row.data_type).removeprefix("TYPE_")
        found.append(TensorSpec(row.name, dtype, tuple(row.dims), inputs and row.optional))
    return found


def test_its_tensors_are_the_llm_s(project: Path) -> None:
    text = (project / "tests/model_repository/replay_llm/config.pbtxt").read_text(encoding="utf-8")
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert specs(config.input, True) == [replace(spec, meaning="") for spec in LLM.inputs]
    assert specs(config.output, False) == [replace(spec, meaning="") for spec in LLM.outputs]
    assert config.max_batch_size == LLM.max_batch_size
    assert config.model_transaction_policy.decoupled == LLM.decoupled


def prompt(ids: list[int], stream_id: str) -> dict[str, Any]:
    return {"stream_id": stream_id, "input_ids": ids, "sampling": "{}", "constraint": ""}


def test_it_streams_stops_and_refuses_a_live_id(replay: ReplayServer, qwen3_ids: Any) -> None:
    ids = qwen3_ids('replay:{"words": 1000, "delay_ms": 20, "tag": "stop"}')
    with responses(replay.grpc_url, "llm", prompt(ids, "to-stop")) as messages:
        steps = [outputs(next(messages))]
        again = infer(replay.grpc_url, "llm", prompt(qwen3_ids('replay:{"words": 1}'), "to-stop"))
        assert "stream_id" in again.error
        for stream_id in ("another", "to-stop"):
            assert infer(replay.grpc_url, "llm", {"stream_id": stream_id, "stop": True}) == Answer([])
        steps += [outputs(message) for message in messages if message.infer_response.outputs]
    assert json.loads(steps[-1]["meta"][0])["finish_reason"] == "stop"
    assert all(step["stream_id"] == ["to-stop"] for step in steps)
    (entry,) = replay.ended("stop")
    assert entry["end"] == "stopped"
    assert entry["sent"] < 1000
