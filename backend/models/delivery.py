"""Steps of an engine on their way to the server: one thread that does all IPC of `llm`.

The engine's thread only hands over; sending, and asking whether a client has gone, happens here. So a slow server
never slows decoding: tokens that came while a send took its time go together with the next. And since FINAL and the
question are never at once, the server is not asked about a request that it has forgotten (it would crash).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tristream.backend.engines.base import Step, merge_steps, step_meta
from tristream.backend.pb import PbModule
from tristream.backend.responder import Responder, log_unexpected
from tristream.backend.tensors import ints_tensor, text_tensor

__all__ = ["Delivery", "Outlet", "step_tensors"]

ASK_TOKENS: Final = 16
ASK_S: Final = 0.25
"""Whether a client has gone is asked after so many tokens or so many seconds: each time is an IPC round trip."""


class Outlet:
    """One request's way out: a sink for its stream's steps, and when its client was last asked after."""

    __slots__ = ("_put", "asked_at", "ended", "gone", "responder", "since_asked", "steps", "stream_id")

    def __init__(self, stream_id: str, responder: Responder, put: Callable[[Outlet, Step], None]) -> None:
        self.stream_id = stream_id
        self.responder = responder
        self.steps: list[Step] = []
        self.since_asked = 0
        self.asked_at = time.monotonic()
        self.gone = False
        self.ended = False
        self._put = put

    def __call__(self, step: Step) -> None:
        """Take a step; never waits."""
        self._put(self, step)


def step_tensors(pb: PbModule, stream_id: str, step: Step) -> list[Any]:
    """The output tensors of a step: always the same three, since Triton batches only such requests together."""
    return [
        text_tensor(pb, "stream_id", (stream_id,)),
        ints_tensor(pb, "token_ids", step.token_ids),
        text_tensor(pb, "meta", (step_meta(step),)),
    ]


class Delivery:
    """Sends the steps of all streams, on one thread.

    Args:
        pb: `triton_python_backend_utils`.
        stop: told the stream_id of a client that has gone.
    """

    def __init__(self, pb: PbModule, stop: Callable[[str], None]) -> None:
        self._pb = pb
        self._stop = stop
        self._changed = threading.Condition()
        self._watched: set[Outlet] = set()
        self._ready: list[Outlet] = []
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    def open(self, stream_id: str, responder: Responder) -> Outlet:
        """A sink for a stream's steps. From the first step, or from `watch`, the responder is this thread's alone."""
        return Outlet(stream_id, responder, self._put)

    def watch(self, outlet: Outlet) -> None:
        """The stream was accepted: from now on ask whether its client has gone."""
        with self._changed:
            if not outlet.ended:
                self._watched.add(outlet)
                self._changed.notify()

    def close(self) -> None:
        """Send what waits and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _put(self, outlet: Outlet, step: Step) -> None:
        with self._changed:
            if not outlet.steps:
                self._ready.append(outlet)
                self._changed.notify()
            outlet.steps.append(step)

    def _run(self) -> None:
        while self._round():
            pass

    def _round(self) -> bool:
        """Wait, send, ask; False at the end. A frame of its own: while the thread waits, nothing may refer to a
        request that has ended, or the server cannot unload the model."""
        with self._changed:
            if not self._ready and not self._closing:
                self._changed.wait(ASK_S if self._watched else None)
            if self._closing and not self._ready:
                return False
            work = [(outlet, outlet.steps) for outlet in self._ready]
            for outlet in self._ready:
                outlet.steps = []
            self._ready = []
            watched = list(self._watched)
        for outlet, steps in work:
            self._guarded(outlet, lambda outlet=outlet, steps=steps: self._send(outlet, steps))  # type: ignore[misc]
        now = time.monotonic()
        for outlet in watched:
            due = outlet.since_asked >= ASK_TOKENS or now - outlet.asked_at >= ASK_S
            if due and not outlet.gone and not outlet.ended:
                self._guarded(outlet, lambda outlet=outlet: self._ask(outlet))  # type: ignore[misc]
        return True

    def _guarded(self, outlet: Outlet, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - one request's way out is broken; the others go on
            log_unexpected(self._pb, error)
            self._give_up(outlet)

    def _send(self, outlet: Outlet, steps: Sequence[Step]) -> None:
        if steps[-1].last:
            with self._changed:
                outlet.ended = True
                self._watched.discard(outlet)
        if outlet.gone:
            if outlet.ended:
                outlet.responder.close()
            return
        for step in merge_steps(steps):
            outlet.since_asked += len(step.token_ids)
            outlet.responder.send(step_tensors(self._pb, outlet.stream_id, step), final=step.last)

    def _ask(self, outlet: Outlet) -> None:
        outlet.since_asked = 0
        outlet.asked_at = time.monotonic()
        if outlet.responder.is_cancelled():
            self._give_up(outlet)

    def _give_up(self, outlet: Outlet) -> None:
        outlet.gone = True
        self._stop(outlet.stream_id)
