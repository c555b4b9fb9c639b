"""What a post model costs that does nothing: it answers each step with a text for its tokens (tests/bench/server.py).

It has the config.pbtxt of `postprocess`, takes the same inputs and sends the outputs that a plain answer needs.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
WORD = b" the"


class TritonPythonModel:
    """Tokens in, as many words out."""

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            if "open" in inputs:
                sender.send(flags=FINAL)
                continue
            tensors = [text("content", WORD * inputs["token_ids"].size)]
            meta = inputs["meta"].item()
            reason = json.loads(meta).get("finish_reason") if meta else None
            if reason:
                tensors.append(text("finish_reason", reason.encode()))
            sender.send(pb_utils.InferenceResponse(tensors), flags=FINAL)


def text(name: str, value: bytes) -> Any:
    return pb_utils.Tensor(name, np.array([[value]], np.object_))
