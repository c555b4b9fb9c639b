"""`make bench`: what the parser costs per delta, how that grows, and what a live stream holds (PERFORMANCE.md).

One delta is four characters with one token id, made beforehand; tools are declared, usage is counted, the garbage
collector runs as it does in a server. Times are medians of several runs, in CPU time of this process: machines are
noisy, so ratios count. Results go to build/bench/parser.json, with the best of the runs beside the medians.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import statistics as stats
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.texts import ROWS, SIZES, Row
from tristream.parsers import ChatStream, Delta

RESULTS: Final = Path(__file__).parents[2] / "build" / "bench" / "parser.json"
MAX_GROWTH: Final = 1.15
MAX_BYTES: Final = 3 * 1024
STREAMS: Final = 300


def once(row: Row, deltas: Sequence[Delta]) -> float:
    """µs per delta of one run."""
    feed = row.started().feed
    begin = time.process_time_ns()
    for delta in deltas:
        feed(delta)
    return (time.process_time_ns() - begin) / len(deltas) / 1000


def measure(row: Row, seconds: float) -> list[list[float]]:
    """µs per delta of several runs at each of the row's sizes; the sizes take turns, so that noise hits all alike."""
    texts = [row.deltas(row.text(size)) for size in row.sizes]
    for deltas in texts:
        once(row, deltas[:2000])
    gc.collect()
    samples: list[list[float]] = [[] for _ in texts]
    begin = time.process_time()
    for turn in itertools.count():
        if turn >= 3 and time.process_time() - begin > seconds:
            return samples
        for deltas, times in zip(texts, samples, strict=True):
            # A short text is run as often as makes a measurable time.
            for _ in range(max(1, 4_000 // len(deltas))):
                times.append(once(row, deltas))
    raise AssertionError


def bytes_per_stream(row: Row) -> float:
    """Bytes one stream holds in the middle of the row's text."""
    deltas = row.deltas(row.text(200))[:100]

    def alive() -> ChatStream:
        stream = row.started()
        for delta in deltas:
            stream.feed(delta)
        return stream

    kept = [alive() for _ in range(10)]
    gc.collect()
    tracemalloc.start()
    kept = [alive() for _ in range(STREAMS)]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(kept)


def verdict(met: bool) -> str:
    """In colour."""
    return "[green]met[/]" if met else "[red]missed[/]"


def main() -> int:
    """Measure, print, write. The exit status says whether all targets were met, where --strict asks for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="CPU seconds per row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--strict", action="store_true", help="fail where a target is missed")
    arguments = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    results: list[dict[str, Any]] = []
    for row in track([row for row in ROWS if arguments.only in row.what], "measuring", console=console, transient=True):
        samples = measure(row, arguments.seconds)
        times = [stats.median(runs) for runs in samples]
        growth = times[-1] / times[0]
        memory = bytes_per_stream(row) if row.sizes == SIZES else None
        met = {
            "time": row.target is None or max(times) <= row.target,
            "growth": growth <= MAX_GROWTH,
            "memory": memory is None or memory <= MAX_BYTES,
        }
        results.append(
            {
                "what": row.what,
                "format": row.format,
                "sizes": row.sizes,
                "us_per_delta": [round(value, 4) for value in times],
                "best_us": [round(min(runs), 4) for runs in samples],
                "target_us": row.target,
                "growth": round(growth, 3),
                "bytes_per_stream": memory and round(memory),
                "met": met,
            }
        )
    show(console, results)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    where = {"python": platform.python_version(), "cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    RESULTS.write_text(json.dumps({**where, "rows": results}, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {RESULTS.relative_to(RESULTS.parents[2])}")
    return int(arguments.strict and not all(all(row["met"].values()) for row in results))


def show(console: Console, results: Sequence[dict[str, Any]]) -> None:
    """The table."""
    table = Table(title="parser: µs per delta (a delta is four characters, one token)")
    table.add_column("text")
    for heading in ("smallest", "middle", "largest", "target", "growth", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for row in results:
        times = [f"{value:.2f}" for value in row["us_per_delta"]]
        missed = [f"{name} {verdict(met)}" for name, met in row["met"].items() if not met]
        table.add_row(
            f"{row['what']} [dim]{row['format']}, {row['sizes'][0]:,} to {row['sizes'][-1]:,}[/]",
            times[0],
            times[1] if len(times) == len(SIZES) else "",
            times[-1],
            f"{row['target_us']:.1f}" if row["target_us"] else "",
            f"{row['growth']:.2f}",
            f"{row['bytes_per_stream']:,}" if row["bytes_per_stream"] else "",
            ", ".join(missed) or verdict(True),
        )
    console.print(table)
    console.print(
        f"growth: largest over smallest, at most {MAX_GROWTH}; bytes: of one live stream, at most {MAX_BYTES:,}; "
        f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    )


if __name__ == "__main__":
    sys.exit(main())
