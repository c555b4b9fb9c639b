"""Every config.pbtxt against `backend/contract.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tristream.backend.contract import MODELS, ModelContract, TensorSpec

REPOSITORY = Path(__file__).parents[2] / "model_repository"

each_model = pytest.mark.parametrize("contract", MODELS, ids=lambda contract: contract.name)


def config_of(name: str) -> Any:
    text = (REPOSITORY / name / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def tensors(rows: Any) -> list[tuple[str, str, tuple[int, ...], bool]]:
    return [
        (
            row.name,
            model_config_pb2.DataType.Name(row.data_type),
            tuple(row.dims),
            bool(getattr(row, "optional", False)),
        )
        for row in rows
    ]


def specified(specs: tuple[TensorSpec, ...], inputs: bool) -> list[tuple[str, str, tuple[int, ...], bool]]:
    return [(spec.name, f"TYPE_{spec.dtype}", spec.dims, inputs and spec.optional) for spec in specs]


@each_model
def test_tensors(contract: ModelContract) -> None:
    config = config_of(contract.name)
    assert config.name == contract.name
    assert tensors(config.input) == specified(contract.inputs, inputs=True)
    assert tensors(config.output) == specified(contract.outputs, inputs=False)
    assert config.max_batch_size == contract.max_batch_size
    if config.platform != "ensemble":
        assert config.model_transaction_policy.decoupled == contract.decoupled


def test_every_model_has_a_contract() -> None:
    folders = {path.parent.name for path in REPOSITORY.glob("*/config.pbtxt")}
    assert folders == {contract.name for contract in MODELS}


def test_postprocess_is_one_batched_instance() -> None:
    config = config_of("postprocess")
    assert [(group.count, group.kind) for group in config.instance_group] == [
        (1, model_config_pb2.ModelInstanceGroup.KIND_CPU)
    ]
    assert config.HasField("dynamic_batching")
    assert config.dynamic_batching.max_queue_delay_microseconds == 0
    assert all(tensor.allow_ragged_batch for tensor in config.input)


def test_the_ensemble_passes_every_tensor_on() -> None:
    config = config_of("chat")
    by_name = {contract.name: contract for contract in MODELS}
    known = {spec.name: (spec.dtype, spec.dims) for spec in by_name["chat"].inputs}
    for step in config.ensemble_scheduling.step:
        contract = by_name[step.model_name]
        taken = {spec.name for spec in contract.inputs if not spec.optional or spec.name in step.input_map}
        assert set(step.input_map) == taken, step.model_name
        assert set(step.output_map) == {spec.name for spec in contract.outputs}, step.model_name
        for name, tensor in step.input_map.items():
            assert known[tensor] == (contract.input(name).dtype, seen_from_outside(contract, name)), (
                step.model_name,
                name,
            )
        for name, tensor in step.output_map.items():
            spec = contract.output(name)
            known[tensor] = (spec.dtype, (1, *spec.dims) if contract.max_batch_size else spec.dims)
    for spec in by_name["chat"].outputs:
        assert known[spec.name] == (spec.dtype, spec.dims)


def seen_from_outside(contract: ModelContract, name: str) -> tuple[int, ...]:
    """Around a batched model an unbatched ensemble sees the batch dimension (TRITON.md, ensembles, 6)."""
    dims = contract.input(name).dims
    return (1, *dims) if contract.max_batch_size else dims


def test_a_step_behind_the_llm_takes_nothing_else() -> None:
    config = config_of("chat")
    _, llm, postprocess = config.ensemble_scheduling.step
    assert set(postprocess.input_map.values()) <= set(llm.output_map.values())
