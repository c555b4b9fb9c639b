"""What this library uses of `triton_python_backend_utils`, as types.

The real module exists inside the server's stub process only. A model gets it handed in, so that
tests can hand in a small typed class instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

__all__ = ["Array", "PbModule", "PbRequest", "PbResponse", "PbSender", "PbTensor"]

Array: TypeAlias = NDArray[Any]


class PbTensor(Protocol):
    """`pb_utils.Tensor`."""

    def name(self) -> str:
        """The tensor's name on the wire."""
        ...

    def as_numpy(self) -> Array:
        """The values; STRING as an object array of bytes."""
        ...


class PbResponse(Protocol):
    """`pb_utils.InferenceResponse`."""

    def output_tensors(self) -> list[Any]:
        """The tensors of the response."""
        ...

    def has_error(self) -> bool:
        """Is it an error?"""
        ...

    def error(self) -> Any:
        """The `TritonError`, if it is one."""
        ...


class PbSender(Protocol):
    """`pb_utils.InferenceResponseSender`: the way back of one request of a decoupled model."""

    def send(self, response: Any = None, flags: int = 0) -> None:
        """Send a response, or the flags alone. One IPC round trip."""
        ...

    def is_cancelled(self) -> bool:
        """Has the client gone? One IPC round trip."""
        ...


class PbRequest(Protocol):
    """`pb_utils.InferenceRequest` as `execute` gets it."""

    def inputs(self) -> Sequence[PbTensor]:
        """The input tensors that are present."""
        ...

    def request_id(self) -> str:
        """The client's request id, or ""."""
        ...

    def correlation_id(self) -> int | str:
        """The sequence's id: a number, or text; 0 or "" where the client set none."""
        ...

    def parameters(self) -> str:
        """The request parameters as a JSON object, or ""."""
        ...

    def get_response_sender(self) -> PbSender:
        """The sender of a decoupled model's responses."""
        ...


class PbModule(Protocol):
    """The module itself. Members that a server may lack (MetricFamily) are feature-tested, not listed."""

    @property
    def TRITONSERVER_RESPONSE_COMPLETE_FINAL(self) -> int:  # noqa: N802 - Triton's spelling
        """The flag that ends a request's responses."""
        ...

    @property
    def Tensor(self) -> Any:  # noqa: N802 - Triton's spelling
        """Class `Tensor(name, array)`."""
        ...

    @property
    def InferenceResponse(self) -> Any:  # noqa: N802 - Triton's spelling
        """Class `InferenceResponse(output_tensors=[], error=None)`."""
        ...

    @property
    def InferenceRequest(self) -> Any:  # noqa: N802 - Triton's spelling
        """Class `InferenceRequest(model_name, requested_output_names, inputs, ...)`, for BLS."""
        ...

    @property
    def TritonError(self) -> Any:  # noqa: N802 - Triton's spelling
        """Class `TritonError(message, code)`, with the codes as members."""
        ...

    @property
    def Logger(self) -> Any:  # noqa: N802 - Triton's spelling
        """`Logger.log_info(text)`, `log_warn`, `log_error`, `log_verbose`."""
        ...
