"""`make bench`: what the parser costs per delta, how that grows, and what a live stream holds (PERFORMANCE.md).

One delta is four characters with one token id, made beforehand; tools are declared, usage is counted, the garbage
collector runs as it does in a server. Times are medians of several runs, in CPU time of this process: machines are
noisy, so ratios count. Results go to build/bench/parser.json.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import random
import statistics as stats
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tristream.parsers import ChatOptions, ChatStream, Delta, format_names

RESULTS: Final = Path(__file__).parents[2] / "build" / "bench" / "parser.json"
DELTA_CHARS: Final = 4
SIZES: Final = (1_000, 16_000, 64_000)
"""Tokens of one measured text."""
PARAMETERS: Final = (100, 800)
CALLS: Final = (10, 320)
MAX_GROWTH: Final = 1.15
MAX_BYTES: Final = 3 * 1024
STREAMS: Final = 300

WORDS: Final = (
    "the quick brown fox jumps over a lazy dog while streams of tokens keep flowing,\nand nobody minds.".split(" ")
)
CODE: Final = (
    'if (a < b) { return "x<y"; }\n',
    "x = [1, 2, 3]\n",
    '<div class="a">text</div>\n',
    '    print(f"{x}")\n',
    "for (i = 0; i < n; i++) y[i] <<= 2;\n",
)

OPTIONS: Final = ChatOptions.from_openai(
    {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "write_file",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "path": {"type": "string"},
                            "content": {"type": "string"},
                            "data": {"type": "array"},
                            **{f"p{number}": {"type": "string"} for number in range(max(PARAMETERS))},
                        },
                    },
                },
            }
        ]
    }
)


def prose(tokens: int) -> str:
    """Words of English, about one per delta."""
    chance = random.Random(1)
    text = " ".join(chance.choice(WORDS) for _ in range(tokens * DELTA_CHARS // 4 + 8))
    return text[: tokens * DELTA_CHARS]


def code(tokens: int) -> str:
    """Lines of programs: quotes, brackets, and a `<` in most of them."""
    chance = random.Random(2)
    lines: list[str] = []
    size = 0
    while size < tokens * DELTA_CHARS:
        lines.append(chance.choice(CODE))
        size += len(lines[-1])
    return "".join(lines)[: tokens * DELTA_CHARS]


def as_json(text: Callable[[int], str]) -> Callable[[int], str]:
    """The same text as a JSON string has it, without its quotes."""

    def escaped(tokens: int) -> str:
        whole = json.dumps(text(tokens), ensure_ascii=False)[1:-1][: tokens * DELTA_CHARS]
        return whole.rstrip("\\")

    return escaped


def dense(tokens: int) -> str:
    """Numbers, words and nesting, without a string worth the name."""
    chance = random.Random(3)
    rows: list[Any] = [[chance.randrange(1000), chance.random(), {"a": [True, None]}] for _ in range(tokens // 8)]
    return json.dumps(rows)[: tokens * DELTA_CHARS]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured text.

    Args:
        what: in words.
        format: the format that reads it.
        before: output that leads up to it; not measured.
        text: the text itself, of so many tokens (or parameters, or calls).
        sizes: how many.
        target: most µs per delta; None where PERFORMANCE.md names none.
        prompt_tail: end of the prompt.
    """

    what: str
    format: str
    before: str
    text: Callable[[int], str]
    sizes: tuple[int, ...] = SIZES
    target: float | None = None
    prompt_tail: str | None = None


JSON_CALL: Final = '<tool_call>\n{"name": "write_file", "arguments": {'
TAGGED_CALL: Final = "<tool_call>\n<function=write_file>\n"
R1_CALL: Final = "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file\n```json\n{"

ROWS: Final = (
    Row("content", "qwen3+hermes", "Hello there. ", prose, target=0.5),
    Row("reasoning", "qwen3", "<think>Hello there. ", prose, target=0.5),
    Row("content, `<`-heavy", "qwen3", "Hello there. ", code),
    Row("JSON string argument", "hermes", JSON_CALL + '"content": "', as_json(prose), target=0.5),
    Row("JSON string argument, code", "hermes", JSON_CALL + '"content": "', as_json(code), target=1.0),
    Row(
        "JSON string argument, name in the header", "deepseek_r1", R1_CALL + '"content": "', as_json(prose), target=0.5
    ),
    Row("dense JSON, checked", "hermes", JSON_CALL + '"data": ', dense, target=1.2),
    Row("tagged string argument", "qwen3", TAGGED_CALL + "<parameter=content>\nfoo bar ", prose, target=0.8),
    Row("tagged string argument, `<`-heavy", "qwen3", TAGGED_CALL + "<parameter=content>\nfoo bar ", code, target=1.5),
)

OTHER_SYNTAXES: Final = (
    Row("Python call's string", "pythonic", '[write_file(content="foo bar ', as_json(prose), target=0.8),
    Row(
        "nested element's string",
        "minimax_m3",
        ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="write_file">]<]minimax[>[<content>foo bar ',
        prose,
        target=0.8,
    ),
)
"""Argument syntaxes of families that a checkout may not have yet."""


def parameters(count: int) -> str:
    """So many parameters of one call."""
    return "".join(f"<parameter=p{number}>\nvalue {number} here\n</parameter>\n" for number in range(count))


def json_calls(count: int) -> str:
    """So many calls, as Hermes writes them."""
    call = '<tool_call>\n{{"name": "write_file", "arguments": {{"path": "a{}", "content": "x y z"}}}}\n</tool_call>\n'
    return "".join(call.format(number) for number in range(count))


def tagged_calls(count: int) -> str:
    """So many calls, as Qwen3-Coder writes them."""
    call = "<tool_call>\n<function=write_file>\n<parameter=path>\na{}\n</parameter>\n</function>\n</tool_call>\n"
    return "".join(call.format(number) for number in range(count))


MANY: Final = (
    Row("parameters of one call", "qwen3", TAGGED_CALL, parameters, PARAMETERS, 4.0),
    Row("parallel calls, JSON", "hermes", "", json_calls, CALLS, 4.0),
    Row("parallel calls, tagged", "qwen3", "", tagged_calls, CALLS, 4.0),
)


def deltas_of(text: str) -> list[Delta]:
    """One token per four characters."""
    pieces = (text[at : at + DELTA_CHARS] for at in range(0, len(text), DELTA_CHARS))
    return [Delta(piece, (number,)) for number, piece in enumerate(pieces)]


def started(row: Row) -> ChatStream:
    """A stream that has come to the measured text."""
    stream = ChatStream(row.format, OPTIONS, row.prompt_tail)
    for delta in deltas_of(row.before):
        stream.feed(delta)
    return stream


def once(row: Row, deltas: Sequence[Delta]) -> float:
    """µs per delta of one run."""
    feed = started(row).feed
    begin = time.process_time_ns()
    for delta in deltas:
        feed(delta)
    return (time.process_time_ns() - begin) / len(deltas) / 1000


def measure(row: Row, seconds: float) -> list[float]:
    """Median µs per delta at each of the row's sizes; the sizes take turns, so that noise hits all alike."""
    texts = [deltas_of(row.text(size)) for size in row.sizes]
    for deltas in texts:
        once(row, deltas[:2000])
    gc.collect()
    samples: list[list[float]] = [[] for _ in texts]
    begin = time.process_time()
    for turn in itertools.count():
        if turn >= 3 and time.process_time() - begin > seconds:
            return [stats.median(times) for times in samples]
        for deltas, times in zip(texts, samples, strict=True):
            # A short text is run as often as makes a measurable time.
            for _ in range(max(1, 4_000 // len(deltas))):
                times.append(once(row, deltas))
    raise AssertionError


def bytes_per_stream(row: Row) -> float:
    """Bytes one stream holds in the middle of the row's text."""
    deltas = deltas_of(row.text(200))[:100]

    def alive() -> ChatStream:
        stream = started(row)
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


@cache
def _formats() -> frozenset[str]:
    return frozenset(format_names())


def rows() -> Iterator[Row]:
    """All rows whose format is there."""
    return (row for row in (*ROWS, *OTHER_SYNTAXES, *MANY) if set(row.format.split("+")) <= _formats())


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
    for row in track(
        [row for row in rows() if arguments.only in row.what], "measuring", console=console, transient=True
    ):
        times = measure(row, arguments.seconds)
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
