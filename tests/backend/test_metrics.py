from __future__ import annotations

from typing import Any, get_args

import pytest

from tristream.backend.metrics import COUNTERS, GAUGE_LIVE, Metrics
from tristream.parsers import MessageDelta, Notice, ToolCallDelta
from tristream.parsers.events import NoticeCode


def totals(pb: Any) -> dict[tuple[str, ...], float]:
    """(metric, label values without the model's) -> value."""
    found = {}
    for name, family in pb.MetricFamily.made.items():
        for labels, metric in family.metrics.items():
            assert ("model", "post") in labels
            found[name, *(value for label, value in labels if label != "model")] = metric.total
    return found


def test_counts_are_added_up_and_handed_over(pb: Any) -> None:
    metrics = Metrics(pb, "post")
    metrics.count("tristream_streams_opened_total")
    metrics.count("tristream_streams_opened_total")
    metrics.count("tristream_opens_refused_total", "max_streams")
    metrics.set_live(2)
    assert totals(pb) == {}
    metrics.send(metrics.take())
    expected: dict[tuple[str, ...], float] = {
        ("tristream_streams_opened_total",): 2,
        ("tristream_opens_refused_total", "max_streams"): 1,
        (GAUGE_LIVE,): 2,
    }
    assert totals(pb) == expected
    assert metrics.take() == {}
    metrics.count("tristream_streams_opened_total", amount=0.5)
    metrics.set_live(1)
    metrics.send(metrics.take())
    expected["tristream_streams_opened_total",] = 2.5
    expected[GAUGE_LIVE,] = 1
    assert totals(pb) == expected


def test_deltas(pb: Any) -> None:
    metrics = Metrics(pb, "post")
    metrics.count_deltas(
        [
            MessageDelta(tool_calls=(ToolCallDelta(0, "i", "f"),)),
            MessageDelta(
                tool_calls=(ToolCallDelta(0, status="complete"), ToolCallDelta(1, "j", "g", status="invalid")),
                finish_reason="tool_calls",
                notices=(Notice("stray_marker", 3, 0),),
            ),
        ]
    )
    metrics.send(metrics.take())
    assert totals(pb) == {
        ("tristream_deltas_total",): 2,
        ("tristream_tool_calls_total", "complete"): 1,
        ("tristream_tool_calls_total", "invalid"): 1,
        ("tristream_streams_ended_total", "tool_calls"): 1,
        ("tristream_notices_total", "stray_marker"): 3,
        (GAUGE_LIVE,): 0,
    }


def test_off_by_setting_or_by_server(pb: Any) -> None:
    for metrics in (Metrics(pb, "post", enabled=False), Metrics(without_metrics(pb), "post")):
        metrics.count("tristream_streams_opened_total")
        metrics.count_deltas([MessageDelta(content="a")])
        metrics.set_live(3)
        assert metrics.take() == {}
    assert pb.MetricFamily.made == {}


def without_metrics(pb: Any) -> Any:
    class OldModule:
        Logger = pb.Logger

    return OldModule()


@pytest.mark.parametrize("when", ["made", "sent"])
def test_a_server_that_has_them_off_loses_them_once(pb: Any, when: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("metrics are disabled")

    if when == "made":
        pb.MetricFamily.__init__ = fail
    else:
        pb.MetricFamily.Metric = fail
    metrics = Metrics(pb, "post")
    for _ in range(2):
        metrics.count("tristream_streams_opened_total")
        metrics.send(metrics.take())
    assert pb.Logger.lines == ["tristream: no metrics of model post: metrics are disabled"]


def test_names_are_prometheus_names() -> None:
    for name, (label, description) in COUNTERS.items():
        assert name.startswith("tristream_")
        assert name.endswith("_total")
        assert description
        assert label in (None, "reason", "finish_reason", "status", "code")
    assert len(get_args(NoticeCode)) == 13  # label values are of a closed set
