"""The way to the server: addresses, channel options, and the request as Triton's protobuf message.

Built on the protobuf stubs of `tritonclient.grpc`, not on its `InferenceServerClient`: the asyncio
one cannot ask for empty final responses (tritonclient 2.73 refuses the parameter's reserved name),
and both hide the status code of a failed call behind text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from tritonclient.grpc import service_pb2

from tristream.backend.contract import CHAT
from tristream.parsers import RequestError, UsageError

from .decode import pack_strings

__all__ = ["DEFAULT_URL", "Endpoint", "encode_body", "infer_request", "live_request", "ready_request"]

DEFAULT_URL: Final = "localhost:8001"
"""Triton's default gRPC port."""

_SCHEMES: Final[Mapping[str, bool]] = {"grpc": False, "grpcs": True}

_CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_send_message_length", 2**31 - 1),
    ("grpc.max_receive_message_length", 2**31 - 1),
    # Our own retries decide when to try again; gRPC's first reconnect would wait a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

_LOOPBACK: Final = re.compile(r"(localhost|127\.[\d.]+|\[::1\])(:|$)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, and how to talk to it.

    Args:
        url: `host:port`, `grpc://host:port` or `grpcs://host:port` (TLS) of the gRPC port.
        credentials: gRPC channel credentials; None with `grpcs://` takes the system's roots.
        headers: gRPC metadata for every call, e.g. {"authorization": "Bearer ..."}.
        channel_options: gRPC channel arguments, added to ours.

    Raises:
        UsageError: an address that gRPC cannot use.
    """

    url: str = DEFAULT_URL
    credentials: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    channel_options: Sequence[tuple[str, int | str]] = ()

    def __post_init__(self) -> None:
        if "://" in self.url and urlsplit(self.url).scheme not in _SCHEMES:
            raise UsageError(
                f"address {self.url!r}: the client speaks gRPC; give host:port of the gRPC port "
                "(8001 by default), or grpc://host:port, or grpcs://host:port for TLS"
            )
        if not self.target.strip() or any(character.isspace() for character in self.target):
            raise UsageError(f"address {self.url!r}: expected host:port of the server's gRPC port")

    @property
    def target(self) -> str:
        """What gRPC connects to."""
        return self.url.partition("://")[2].rstrip("/") if "://" in self.url else self.url

    def connect(self, grpc_or_aio: Any) -> Any:
        """A new channel, of the module `grpc` or `grpc.aio`; nothing is sent yet."""
        options = [*_CHANNEL_OPTIONS, *self.channel_options]
        if _LOOPBACK.match(self.target):
            options.append(("grpc.enable_http_proxy", 0))  # a proxy of the environment cannot reach this machine
        credentials = self.credentials
        if credentials is None and _SCHEMES.get(urlsplit(self.url).scheme, False):
            credentials = grpc.ssl_channel_credentials()
        if credentials is None:
            return grpc_or_aio.insecure_channel(self.target, options=options)
        return grpc_or_aio.secure_channel(self.target, credentials, options=options)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of every call; gRPC demands lower-case names.

        `triton_grpc_error`, which makes Triton end a failed stream with a status code, is not among
        them: with it Triton 2.51 crashes when a model sends anything after an error (seen here).
        """
        return tuple((name.lower(), value) for name, value in self.headers.items())


def encode_body(body: Mapping[str, Any]) -> bytes:
    """An OpenAI chat.completions body as the bytes of the tensor `request`.

    Raises:
        RequestError: the body is no JSON value.
    """
    if not isinstance(body, Mapping):
        raise RequestError("request", type(body).__name__, "an OpenAI chat.completions body, as a mapping")
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError("request", f"a lone surrogate ({error.reason})", "text that UTF-8 can express") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError("request", f"what JSON cannot express ({error})", "JSON values") from None


def infer_request(model: str, payload: bytes, request_id: str) -> Any:
    """The `ModelInferRequest` of one try.

    Args:
        model: name of the chat model.
        payload: what `encode_body` made.
        request_id: fresh for this try; Triton hands it to every composing model.
    """
    tensor = CHAT.inputs[0]
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    message.inputs.add(name=tensor.name, datatype="BYTES", shape=tensor.dims)
    message.raw_input_contents.append(pack_strings((payload,)))
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return message


def ready_request(model: str) -> Any:
    """The `ModelReadyRequest` for a model."""
    return service_pb2.ModelReadyRequest(name=model)


def live_request() -> Any:
    """The `ServerLiveRequest`."""
    return service_pb2.ServerLiveRequest()
