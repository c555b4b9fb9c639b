"""What goes into an engine and comes out: parsing, refusals, `meta`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tristream.backend.engines.base import Constraint, Sampling, Step, merge_steps, step_meta
from tristream.parsers.errors import RequestError


def test_sampling_defaults() -> None:
    assert Sampling.from_json("") == Sampling.from_json("{}") == Sampling()
    assert Sampling.from_json('{"max_tokens": null, "seed": null}') == Sampling()


def test_sampling_reads_every_field() -> None:
    body = {
        "max_tokens": 7,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "seed": 42,
        "stop": ["a", "b"],
        "n": 2,
        "logprobs": True,
        "top_logprobs": 5,
        "presence_penalty": 1,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "ignore_eos": True,
    }
    sampling = Sampling.from_json(json.dumps(body))
    assert {name: getattr(sampling, name) for name in body} == {**body, "stop": ("a", "b")}
    assert Sampling.from_json('{"stop": "x"}').stop == ("x",)
    assert Sampling.from_json('{"max_tokens": 3.0}').max_tokens == 3


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("[]", "sampling"),
        ("{", "sampling"),
        ("[" * 100_000, "sampling"),
        ('{"beams": 2}', "sampling.beams"),
        ('{"max_tokens": 0}', "sampling.max_tokens"),
        ('{"max_tokens": 1.5}', "sampling.max_tokens"),
        ('{"max_tokens": NaN}', "sampling.max_tokens"),
        ('{"max_tokens": true}', "sampling.max_tokens"),
        ('{"temperature": -1}', "sampling.temperature"),
        ('{"temperature": NaN}', "sampling.temperature"),
        ('{"temperature": "hot"}', "sampling.temperature"),
        ('{"top_p": 0}', "sampling.top_p"),
        ('{"top_p": 1.1}', "sampling.top_p"),
        ('{"repetition_penalty": 0}', "sampling.repetition_penalty"),
        ('{"logprobs": 1}', "sampling.logprobs"),
        ('{"top_logprobs": 21}', "sampling.top_logprobs"),
        ('{"stop": 5}', "sampling.stop"),
        ('{"stop": [1]}', "sampling.stop"),
        ('{"stop": [""]}', "sampling.stop"),
        (json.dumps({"stop": ["x"] * 65}), "sampling.stop"),
        (json.dumps({"seed": 2**65}), "sampling.seed"),
    ],
)
def test_sampling_refusals(body: str, field: str) -> None:
    with pytest.raises(RequestError) as refusal:
        Sampling.from_json(body)
    assert refusal.value.field == field


def test_constraint() -> None:
    assert Constraint.from_json("") is None
    regex = Constraint.from_json('{"regex": "a+", "after_ids": [[1, 2], [3]]}')
    assert regex == Constraint("regex", '"a+"', ((1, 2), (3,)))
    spaced = Constraint.from_json('{"json_schema":   {"type":  "string"}}')
    assert spaced == Constraint("json_schema", '{"type":"string"}')
    assert Constraint.from_json('{"json_schema": true}') is not None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("7", "constraint"),
        ("{}", "constraint"),
        ('{"grammar": "x"}', "constraint"),
        ('{"regex": "a", "json_schema": {}}', "constraint"),
        ('{"regex": "a", "more": 1}', "constraint"),
        ('{"regex": 5}', "constraint.regex"),
        ('{"json_schema": []}', "constraint.json_schema"),
        ('{"structural_tag": "x"}', "constraint.structural_tag"),
        ('{"regex": "a", "after_ids": [[]]}', "constraint.after_ids"),
        ('{"regex": "a", "after_ids": [["x"]]}', "constraint.after_ids"),
        ('{"regex": "a", "after_ids": 7}', "constraint.after_ids"),
    ],
)
def test_constraint_refusals(body: str, field: str) -> None:
    with pytest.raises(RequestError) as refusal:
        Constraint.from_json(body)
    assert refusal.value.field == field


def test_constraint_is_bounded() -> None:
    with pytest.raises(RequestError, match="max_constraint_bytes"):
        Constraint.from_json(json.dumps({"regex": "a" * 100}), max_bytes=50)


@pytest.mark.parametrize(
    ("step", "meta"),
    [
        (Step((1, 2)), None),
        (Step((1,), choice_index=1), {"choice_index": 1}),
        (Step((1,), logprobs=({"token": "é"},)), {"logprobs": [{"token": "é"}]}),
        (
            Step((), "stop", prompt_tokens=3, completion_tokens=4, last=True),
            {"finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": 4, "last": True},
        ),
        (
            Step((), "error", "it broke", last=True),
            {"finish_reason": "error", "error": "it broke", "prompt_tokens": 0, "completion_tokens": 0, "last": True},
        ),
    ],
)
def test_step_meta(step: Step, meta: Any) -> None:
    text = step_meta(step)
    assert (json.loads(text) if text else None) == meta


def test_merge_steps_joins_neighbours_of_one_choice() -> None:
    a, b, end = Step((1,), logprobs=({"x": 1},)), Step((2,), logprobs=({"x": 2},)), Step((3,), "stop", last=True)
    assert merge_steps([a, b, end]) == [Step((1, 2, 3), "stop", logprobs=({"x": 1}, {"x": 2}), last=True)]
    other = Step((9,), choice_index=1)
    assert merge_steps([Step((1,)), other, Step((2,))]) == [Step((1,)), other, Step((2,))]
    ended = Step((5,), "length")
    assert merge_steps([ended, Step((), "stop", choice_index=1, last=True)]) == [
        ended,
        Step((), "stop", choice_index=1, last=True),
    ]
    assert merge_steps([]) == []
