"""Triton's entry point of `llm`; the logic is in `tristream.backend.models.llm`."""

import triton_python_backend_utils as pb_utils

from tristream.backend.models.llm import LlmModel


class TritonPythonModel(LlmModel):
    """Token ids of a prompt in, token ids of the answer out."""

    def __init__(self) -> None:
        super().__init__(pb_utils)
