"""Triton's entry point of `postprocess`; the logic is in `tristream.backend.models.postprocess`."""

import triton_python_backend_utils as pb_utils

from tristream.backend.models.postprocess import PostprocessModel


class TritonPythonModel(PostprocessModel):
    """Tokens of many LLM streams in, message deltas out."""

    def __init__(self) -> None:
        super().__init__(pb_utils)
