from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tristream.backend.errors import SettingsError
from tristream.backend.settings import ModelArguments, PostprocessSettings, limited, read_settings


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    count: int = limited(3, low=1, high=9)
    share: float = 0.5
    fast: bool = False
    kind: Literal["a", "b"] = "a"
    folder: Path | None = None
    label: str | None = None


def test_defaults_and_values() -> None:
    assert read_settings(Example, {"name": "x", "count": ""}) == Example("x")
    read = read_settings(
        Example,
        {"name": "x", "count": "7", "share": "1e-3", "fast": "TRUE", "kind": "b", "folder": "sub/../t", "label": "l"},
        Path("/models/post"),
    )
    assert read == Example("x", 7, 0.001, True, "b", Path("/models/post/t"), "l")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "'name': found nothing; allowed: a value"),
        ({"name": "x", "cuont": "1"}, r"'cuont': found '1'; allowed: the parameters count, fast"),
        ({"name": "x", "count": "2.5"}, r"'count': found '2.5'; allowed: a whole number"),
        ({"name": "x", "count": "0"}, "'count': found 0; allowed: at least 1"),
        ({"name": "x", "count": "10"}, "'count': found 10; allowed: at most 9"),
        ({"name": "x", "share": "nan"}, "'share': found 'nan'; allowed: a number"),
        ({"name": "x", "share": "inf"}, "'share': found 'inf'; allowed: a number"),
        ({"name": "x", "fast": "yes"}, "'fast': found 'yes'; allowed: 'true' or 'false'"),
        ({"name": "x", "kind": "c"}, "'kind': found 'c'; allowed: 'a' or 'b'"),
        ({"name": "${TRISTREAM_NO_SUCH}"}, "TRISTREAM_NO_SUCH}, which is not set"),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings(Example, parameters)


def test_places_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISTREAM_TEST_MODEL", "/big/model")
    read = read_settings(
        Example,
        {"name": "$$TRITON_MODEL_DIRECTORY/x", "folder": "${TRISTREAM_TEST_MODEL}/tokenizer.json"},
        Path("/models/post"),
    )
    assert read.name == "/models/post/x"
    assert read.folder == Path("/big/model/tokenizer.json")


def test_parameters_of_triton_are_passed_over() -> None:
    assert read_settings(Example, {"name": "x", "EXECUTION_ENV_PATH": "/env.tar.gz"}) == Example("x")


def test_arguments_of_initialize() -> None:
    config = {
        "name": "post",
        "parameters": {"format": {"string_value": "qwen3"}},
        "instance_group": [{"count": 2}, {"kind": "KIND_CPU"}],
    }
    arguments = ModelArguments.from_triton(
        {"model_name": "post", "model_repository": "/models/post", "model_config": json.dumps(config)}
    )
    assert arguments.parameters == {"format": "qwen3"}
    assert arguments.directory == Path("/models/post")
    assert arguments.instance_count == 3
    assert ModelArguments("post", Path(), {}, {}).instance_count == 1


def test_bounds_of_postprocess() -> None:
    for parameters in ({"max_streams": "0"}, {"idle_ttl_s": "0"}, {"match": "regex"}, {"input": "vllm"}):
        with pytest.raises(SettingsError, match=next(iter(parameters))):
            read_settings(PostprocessSettings, parameters)
