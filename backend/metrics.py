"""Counters in Triton's metrics (port 8002), added up here and handed over about once a second.

Each update of a metric is an IPC round trip, so none happens per token. Labels take values of closed sets
only, so that no client can make new time series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tristream.parsers.message import MessageDelta

from .pb import PbModule

__all__ = ["COUNTERS", "GAUGE_LIVE", "Metrics"]

GAUGE_LIVE: Final = "tristream_streams_live"

COUNTERS: Final[dict[str, tuple[str | None, str]]] = {
    "tristream_streams_opened_total": (None, "Streams whose options were accepted"),
    "tristream_opens_refused_total": (
        "reason",
        "Streams refused before their first token, by reason",
    ),
    "tristream_open_wait_seconds_total": (None, "Seconds that accepted opens waited in the queue of the post model"),
    "tristream_streams_ended_total": ("finish_reason", "Answers that ended, by finish_reason"),
    "tristream_streams_expired_total": (None, "Streams dropped after their idle limit: client gone, or LLM hung"),
    "tristream_streams_lost_total": (None, "Streams of which tokens came although they were not, or no longer, open"),
    "tristream_streams_failed_total": (None, "Streams ended by a fault in tristream itself; the log has the traceback"),
    "tristream_tokens_total": (None, "Tokens received from the LLM"),
    "tristream_deltas_total": (None, "Responses with data sent"),
    "tristream_tool_calls_total": ("status", "Tool calls that ended, by status"),
    "tristream_notices_total": ("code", "Odd model output, by notice code"),
}
"""Name -> its label besides `model`, and its help text."""


class Metrics:
    """Adds up counts of one model.

    Args:
        pb: `triton_python_backend_utils`; without `MetricFamily` (older, or metrics switched off) nothing is counted.
        model: the label `model`.
        enabled: the setting `metrics`.
    """

    __slots__ = ("_families", "_known", "_live", "_live_sent", "_model", "_pb", "_pending", "enabled")

    def __init__(self, pb: PbModule, model: str, *, enabled: bool = True) -> None:
        self._pb = pb
        self._model = model
        self._pending: Counter[tuple[str, str]] = Counter()
        self._families: dict[str, Any] = {}
        self._known: dict[tuple[str, str], Any] = {}
        self._live = 0
        self._live_sent = -1
        self.enabled = enabled and hasattr(pb, "MetricFamily")
        if self.enabled:
            self._make_families()

    def count(self, name: str, label: str = "", amount: float = 1) -> None:
        """Add to a counter of COUNTERS; nothing is sent yet."""
        if self.enabled:
            self._pending[name, label] += amount  # type: ignore[assignment]

    def count_deltas(self, deltas: Sequence[MessageDelta]) -> None:
        """Count what was sent: deltas, ended calls, ended answers, notices."""
        if not self.enabled:
            return
        self._pending["tristream_deltas_total", ""] += len(deltas)
        for delta in deltas:
            for call in delta.tool_calls:
                if call.status is not None:
                    self._pending["tristream_tool_calls_total", call.status] += 1
            if delta.finish_reason is not None:
                self._pending["tristream_streams_ended_total", delta.finish_reason] += 1
            for notice in delta.notices:
                self._pending["tristream_notices_total", notice.code] += notice.count

    def set_live(self, number: int) -> None:
        """How many streams are open."""
        self._live = number

    def take(self) -> dict[tuple[str, str], float]:
        """What is to be handed over now; the sums start anew. Cheap: call it under the lock of the counting thread."""
        taken: dict[tuple[str, str], float] = dict(self._pending)
        self._pending.clear()
        if self.enabled and self._live != self._live_sent:
            self._live_sent = self._live
            taken[GAUGE_LIVE, ""] = self._live
        return taken

    def send(self, taken: dict[tuple[str, str], float]) -> None:
        """Hand over; one IPC round trip for each entry."""
        try:
            for (name, label), amount in taken.items():
                metric = self._metric(name, label)
                if name == GAUGE_LIVE:
                    metric.set(amount)
                else:
                    metric.increment(amount)
        except Exception as error:  # noqa: BLE001 - counting must never stop a stream
            self._give_up(error)

    def _make_families(self) -> None:
        kinds = self._pb.MetricFamily  # type: ignore[attr-defined]
        try:
            for name, (_, description) in COUNTERS.items():
                self._families[name] = kinds(name=name, description=description, kind=kinds.COUNTER)
            self._families[GAUGE_LIVE] = kinds(name=GAUGE_LIVE, description="Streams that are open", kind=kinds.GAUGE)
        except Exception as error:  # noqa: BLE001 - pb_utils raises a bare TritonModelException where metrics are off
            self._give_up(error)

    def _metric(self, name: str, label: str) -> Any:
        metric = self._known.get((name, label))
        if metric is None:
            labels = {"model": self._model}
            label_name = COUNTERS[name][0] if name in COUNTERS else None
            if label_name is not None:
                labels[label_name] = label
            metric = self._known[name, label] = self._families[name].Metric(labels=labels)
        return metric

    def _give_up(self, error: Exception) -> None:
        self.enabled = False
        self._pending.clear()
        self._pb.Logger.log_warn(f"tristream: no metrics of model {self._model}: {error}")
