"""tristream.client: chats with a Triton server over gRPC. This file is the whole public API.

`AsyncChatClient` and `ChatClient` yield `MessageDelta`s; start reading at `stream.py`.
"""

from __future__ import annotations

from .blocking import ChatClient, DeltaStream
from .errors import (
    ChatError,
    DeadlineExceeded,
    ModelNotReady,
    RequestRefused,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    StreamBroken,
)
from .policy import Deadlines, Retries
from .stream import AsyncChatClient, AsyncDeltaStream
from .wire import Endpoint

__all__ = [
    "AsyncChatClient",
    "AsyncDeltaStream",
    "ChatClient",
    "ChatError",
    "DeadlineExceeded",
    "Deadlines",
    "DeltaStream",
    "Endpoint",
    "ModelNotReady",
    "RequestRefused",
    "Retries",
    "ServerBusy",
    "ServerFailed",
    "ServerUnreachable",
    "StreamBroken",
]
