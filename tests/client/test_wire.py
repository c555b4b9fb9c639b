"""Addresses and requests."""

from __future__ import annotations

import json
import struct

import pytest

from tristream.backend.contract import CHAT
from tristream.client import Endpoint
from tristream.client.wire import encode_body, infer_request
from tristream.parsers import UsageError


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("host:8001", "host:8001"),
        ("grpc://host:8001", "host:8001"),
        ("grpcs://host:443/", "host:443"),
        ("[::1]:8001", "[::1]:8001"),
        ("unix:/run/triton.sock", "unix:/run/triton.sock"),
    ],
)
def test_addresses(url: str, target: str) -> None:
    assert Endpoint(url).target == target


@pytest.mark.parametrize("url", ["http://host:8000", "https://host", "", "  ", "grpc://", "two words:1"])
def test_addresses_that_grpc_cannot_use(url: str) -> None:
    with pytest.raises(UsageError, match="gRPC"):
        Endpoint(url)


def test_metadata_names_are_lower_case() -> None:
    assert Endpoint(headers={"Authorization": "Bearer x"}).metadata == (("authorization", "Bearer x"),)


def test_the_crashing_header_is_never_sent() -> None:
    assert "triton_grpc_error" not in dict(Endpoint().metadata)


def test_a_request_is_what_the_contract_says() -> None:
    body = {"messages": [{"role": "user", "content": "Grüße 日本"}]}
    message = infer_request("chat", encode_body(body), "id")
    (tensor,) = message.inputs
    (spec,) = CHAT.inputs
    assert (tensor.name, tensor.datatype, tuple(tensor.shape)) == (spec.name, "BYTES", spec.dims)
    raw = message.raw_input_contents[0]
    assert struct.unpack_from("<I", raw) == (len(raw) - 4,)
    assert json.loads(raw[4:].decode("utf-8")) == body
