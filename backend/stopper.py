"""Tells the LLM that nobody listens to a stream any more.

Triton does not stop the LLM step of an ensemble when the client goes (server issue 6739). Once a stream was idle
too long, its LLM is asked to end it, where it takes a `stop` by `stream_id`, as ours does; else it would run to its
last token.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Final

from .pb import PbModule
from .tensors import flag_array, text_array

__all__ = ["Stopper"]

MAX_WAITING: Final = 10_000
"""Most stops that wait to be sent; one that finds no room is left out, and its stream runs to its end."""


class Stopper:
    """Sends stops from a thread of its own, one at a time: a slow or dead LLM must not hold up the tokens of others.

    Args:
        pb: `triton_python_backend_utils`.
        model: the LLM's name; "" sends nothing.
    """

    def __init__(self, pb: PbModule, model: str) -> None:
        self._pb = pb
        self._model = model
        self._waiting: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    def stop(self, stream_ids: Sequence[str]) -> None:
        """Ask the LLM to end these streams; returns at once. It ignores those it does not run."""
        if not self._model or not stream_ids:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stopper", daemon=True)
            self._thread.start()
        for stream_id in stream_ids:
            try:
                self._waiting.put_nowait(stream_id)
            except queue.Full:
                return

    def close(self, timeout_s: float = 2.0) -> None:
        """Send what waits, for so many seconds at most."""
        if self._thread is not None:
            try:
                self._waiting.put(None, timeout=timeout_s)
            except queue.Full:
                return
            self._thread.join(timeout_s)

    def _run(self) -> None:
        told = False
        while (stream_id := self._waiting.get()) is not None:
            try:
                self._send(stream_id)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the LLM, it is not this model's end
                if not told:
                    self._pb.Logger.log_warn(f"tristream: model {self._model} takes no stop: {error}")
                told = True

    def _send(self, stream_id: str) -> None:
        request = self._pb.InferenceRequest(
            model_name=self._model,
            requested_output_names=["token_ids"],
            inputs=[
                self._pb.Tensor("stream_id", text_array(stream_id)),
                self._pb.Tensor("stop", flag_array(True)),
            ],
        )
        for response in request.exec(decoupled=True):
            if response.has_error():
                raise RuntimeError(response.error().message())
