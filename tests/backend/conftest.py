"""A small typed stand-in for `triton_python_backend_utils`, handed to the models under test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


class FakeTensor:
    def __init__(self, name: str, array: NDArray[Any]) -> None:
        self._name = name
        self._array = array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> NDArray[Any]:
        return self._array


class FakeError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = message
        self._code = code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class FakeResponse:
    def __init__(self, output_tensors: Sequence[FakeTensor] = (), error: FakeError | None = None) -> None:
        self._tensors = list(output_tensors)
        self._error = error

    def output_tensors(self) -> list[FakeTensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> FakeError | None:
        return self._error

    def values(self) -> dict[str, list[Any]]:
        """name -> the k values of a [1, k] output, texts decoded."""
        values = {}
        for tensor in self._tensors:
            array = tensor.as_numpy()
            assert array.shape[:-1] == (1,), (tensor.name(), array.shape)
            values[tensor.name()] = [v.decode() if isinstance(v, bytes) else v for v in array[0].tolist()]
        return values


class FakeSender:
    """Records what is sent, and fails on anything after FINAL."""

    def __init__(self) -> None:
        self.responses: list[FakeResponse] = []
        self.finals = 0
        self.sends = 0
        self.cancelled = False

    def send(self, response: FakeResponse | None = None, flags: int = 0) -> None:
        assert self.finals == 0, "sent after FINAL"
        self.sends += 1
        if response is not None:
            self.responses.append(response)
        self.finals += flags

    def is_cancelled(self) -> bool:
        return self.cancelled


class FakeRequest:
    """A request; its inputs as name -> text, list of ints, bool or ready array."""

    def __init__(
        self,
        inputs: Mapping[str, Any],
        request_id: str = "",
        parameters: Mapping[str, Any] | None = None,
        correlation_id: int | str = 0,
    ) -> None:
        self._inputs = [FakeTensor(name, as_array(value)) for name, value in inputs.items()]
        self._request_id = request_id
        self._correlation_id = correlation_id
        self._parameters = json.dumps(parameters) if parameters is not None else ""
        self.sender = FakeSender()

    def inputs(self) -> list[FakeTensor]:
        return self._inputs

    def correlation_id(self) -> int | str:
        return self._correlation_id

    def request_id(self) -> str:
        return self._request_id

    def parameters(self) -> str:
        return self._parameters

    def get_response_sender(self) -> FakeSender:
        return self.sender


class FakeLogger:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log_info(self, message: str) -> None:
        self.lines.append(message)

    log_warn = log_error = log_verbose = log_info


class FakeMetric:
    def __init__(self) -> None:
        self.total = 0.0

    def increment(self, value: float) -> None:
        self.total += value

    def set(self, value: float) -> None:
        self.total = value


class FakeMetricFamily:
    COUNTER, GAUGE = "counter", "gauge"
    made: dict[str, FakeMetricFamily]

    def __init__(self, name: str, description: str, kind: str) -> None:
        self.kind = kind
        self.metrics: dict[tuple[tuple[str, str], ...], FakeMetric] = {}
        type(self).made[name] = self

    def Metric(self, labels: Mapping[str, str] | None = None) -> FakeMetric:  # noqa: N802 - Triton's spelling
        return self.metrics.setdefault(tuple(sorted((labels or {}).items())), FakeMetric())


class FakePb:
    """The module: hand it to a model in place of `triton_python_backend_utils`."""

    TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
    Tensor = FakeTensor
    InferenceResponse = FakeResponse
    TritonError = FakeError

    def __init__(self) -> None:
        self.Logger = FakeLogger()
        self.MetricFamily = type("MetricFamily", (FakeMetricFamily,), {"made": {}})

    def request(self, inputs: Mapping[str, Any], **rest: Any) -> FakeRequest:
        """Make a request."""
        return FakeRequest(inputs, **rest)


def as_array(value: Any) -> NDArray[Any]:
    """Text, ints or a flag as a model with a batch dimension gets them."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, str):
        return np.array([[value.encode()]], np.object_)
    if isinstance(value, bytes):
        return np.array([[value]], np.object_)
    if isinstance(value, bool):
        return np.array([[value]], np.bool_)
    return np.array([value], np.int32)


@pytest.fixture
def pb() -> FakePb:
    return FakePb()
