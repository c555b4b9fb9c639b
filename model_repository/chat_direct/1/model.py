"""Triton's entry point of `chat_direct`; the logic is in `tristream.backend.models.chat_direct`."""

import triton_python_backend_utils as pb_utils

from tristream.backend.models.chat_direct import ChatDirectModel


class TritonPythonModel(ChatDirectModel):
    """Request in, message deltas out; the LLM called by gRPC."""

    def __init__(self) -> None:
        super().__init__(pb_utils)
