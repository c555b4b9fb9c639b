"""Triton's entry point of `preprocess`; the logic is in `tristream.backend.models.preprocess`."""

import triton_python_backend_utils as pb_utils

from tristream.backend.models.preprocess import PreprocessModel


class TritonPythonModel(PreprocessModel):
    """An OpenAI request in, the LLM's inputs out."""

    def __init__(self) -> None:
        super().__init__(pb_utils)
