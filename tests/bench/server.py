"""`make bench-server`: what the post model costs on a real Triton, against one that only echoes (PERFORMANCE.md).

Everything runs on this machine, over loopback, load generator included: ratios count, not rates. The LLM is
`replay_llm`, which runs as fast as it can; its streams start together, so that opening them is not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics as stats
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from tritonclient.grpc import service_pb2, service_pb2_grpc

from support.probing import executions
from support.serving import ROOT, ReplayServer, Set, free_settings, replay_server
from support.vectors import chat_body
from tristream.backend.prompt import PromptBuilder, PromptSettings

RESULTS: Final = ROOT / "build" / "bench" / "server.json"
TOKENIZER: Final = ROOT / "build" / "tokenizers" / "qwen3"
STREAMS: Final = (1, 8, 32, 128)
TOKENS: Final = {1: 3000, 8: 10_000, 32: 12_000, 128: 12_800}
"""Tokens of one run, over all its streams: about 3 s each."""
RUN_DEADLINE_S: Final = 90.0
WORD: Final = b" the"

MIN_RATIO: Final = 0.9
MAX_EXECUTIONS: Final = 1.3
MAX_FIRST_MS: Final = 2.0
MAX_FIRST_LOADED_MS: Final = 50.0
LOAD: Final = 0.8
LOAD_STREAMS: Final = 32
SAMPLES: Final = 60

TOOL: Final = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result.

    Args:
        what: in words.
        ours: measured.
        reference: what it is held against.
        value: what the target speaks of.
        target: its bound, in words.
        met: is it kept? None where it is for information.
    """

    what: str
    ours: str
    reference: str
    value: str
    target: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run at saturation.

    Args:
        rate: tokens per second, from the first to the last that arrived.
        executions: of the post model.
        responses: that reached the clients.
    """

    rate: float
    executions: int
    responses: int


class Load:
    """Clients of one server, on one asyncio loop.

    Args:
        replay: the server.
        stub: its gRPC.
    """

    def __init__(self, replay: ReplayServer, stub: Any) -> None:
        self._replay = replay
        self._stub = stub
        self._gates = 0

    async def chat(self, model: str, body: Mapping[str, Any]) -> tuple[float, float, int, int]:
        """One chat: when its first and its last response came, how many, and how many tokens were in them."""
        first, responses, size = 0.0, 0, 0
        async for message in self._call(model, {"request": json.dumps(body)}):
            if message.error_message:
                raise RuntimeError(f"{model}: {message.error_message}")
            first = first or time.perf_counter()
            responses += 1
            response = message.infer_response
            for place, output in enumerate(response.outputs):
                if output.name == "content":
                    size += len(response.raw_output_contents[place]) - 4
        return first, time.perf_counter(), responses, size // len(WORD)

    async def first_ms(self, model: str, inputs: Mapping[str, Any]) -> float:
        """Milliseconds until the first response of a request."""
        started, first = time.perf_counter(), 0.0
        async for message in self._call(model, inputs):
            if message.error_message:
                raise RuntimeError(f"{model}: {message.error_message}")
            first = first or time.perf_counter()
        return (first - started) * 1000

    async def saturate(self, model: str, streams: int, tokens: int, logprobs: int = 0) -> Run:
        """Let the LLM run free on so many streams.

        Args:
            model: the ensemble.
            streams: how many at once.
            tokens: over all streams.
            logprobs: how many of the streams ask for log probabilities.
        """
        self._gates += 1
        each = tokens // streams
        before = executions(self._replay.server, _post_model(model))
        directive = {"words": each, "gate": [f"bench {self._gates}", streams]}
        bodies = [
            chat_body(directive, tools=[TOOL], logprobs=index % streams < logprobs or None) for index in range(streams)
        ]
        async with asyncio.timeout(RUN_DEADLINE_S):
            done = await asyncio.gather(*(self.chat(model, body) for body in bodies))
        wrong = [came for *_, came in done if came != each]
        if wrong:
            raise RuntimeError(f"{model}: {wrong[0]} tokens arrived where {each} were sent")
        seconds = max(last for _, last, _, _ in done) - min(first for first, *_ in done)
        after = executions(self._replay.server, _post_model(model))
        return Run(streams * each / seconds, after - before, sum(responses for _, _, responses, _ in done))

    async def _call(self, model: str, inputs: Mapping[str, Any]) -> AsyncIterator[Any]:
        request = service_pb2.ModelInferRequest(model_name=model)
        for name, value in inputs.items():
            if isinstance(value, str):
                data = value.encode()
                request.inputs.add(name=name, datatype="BYTES", shape=[1])
                request.raw_input_contents.append(struct.pack("<I", len(data)) + data)
            else:
                request.inputs.add(name=name, datatype="INT32", shape=[len(value)])
                request.raw_input_contents.append(struct.pack(f"<{len(value)}i", *value))
        async for message in self._stub.ModelStreamInfer(_once(request), timeout=RUN_DEADLINE_S):
            yield message


async def _once(request: Any) -> AsyncIterator[Any]:
    yield request


def _post_model(model: str) -> str:
    return model.replace("chat", "postprocess")


async def token_rates(load: Load, streams: Sequence[int], runs: int, note: Any) -> tuple[list[Row], dict[str, Any]]:
    """Token rate at saturation, ours and the echoing post model taking turns."""
    rows, results = [], {}
    for count in streams:
        ours: list[Run] = []
        echo: list[Run] = []
        for number in range(runs):
            note(f"token rate, {count} streams, run {number + 1} of {runs}")
            # who goes first changes, so that a machine that slows down wrongs nobody
            for model in ("chat", "chat_echo") if number % 2 == 0 else ("chat_echo", "chat"):
                run = await load.saturate(model, count, TOKENS.get(count, 12_000))
                (ours if model == "chat" else echo).append(run)
        mine, theirs = (stats.median(run.rate for run in runs_of) for runs_of in (ours, echo))
        ratio = mine / theirs
        rows.append(
            Row(
                f"token rate, {count} stream{'s' * (count > 1)}",
                f"{mine:,.0f}/s",
                f"{theirs:,.0f}/s (echo)",
                f"{ratio:.2f}",
                f"≥ {MIN_RATIO}",
                ratio >= MIN_RATIO,
            )
        )
        results[str(count)] = {
            "ours": [vars_of(run) for run in ours],
            "echo": [vars_of(run) for run in echo],
            "ratio": ratio,
        }
    return rows, results


async def batching(load: Load, runs: int, note: Any) -> tuple[Row, dict[str, Any]]:
    """Executions of the post model where half of the streams ask for log probabilities, against none of them."""
    uniform: list[Run] = []
    mixed: list[Run] = []
    for number in range(runs):
        note(f"batching, run {number + 1} of {runs}")
        for half in (0, LOAD_STREAMS // 2) if number % 2 == 0 else (LOAD_STREAMS // 2, 0):
            run = await load.saturate("chat", LOAD_STREAMS, TOKENS[32], logprobs=half)
            (mixed if half else uniform).append(run)
    mine, theirs = (stats.median(run.executions for run in runs_of) for runs_of in (mixed, uniform))
    ratio = mine / theirs
    row = Row(
        f"executions, half of {LOAD_STREAMS} streams with logprobs",
        f"{mine:,.0f}",
        f"{theirs:,.0f} (none)",
        f"{ratio:.2f}",
        f"≤ {MAX_EXECUTIONS}",
        ratio <= MAX_EXECUTIONS,
    )
    return row, {"mixed": [vars_of(run) for run in mixed], "uniform": [vars_of(run) for run in uniform], "ratio": ratio}


async def first_tokens(
    load: Load, saturation: Mapping[str, float], samples: int, note: Any
) -> tuple[list[Row], dict[str, Any]]:
    """What a new chat waits for its first token over LLM, rendering and tokenizing; alone, and beside others."""
    note("first token, unloaded")
    body = chat_body({"words": 3}, tools=[TOOL])
    builder = PromptBuilder(PromptSettings(tokenizer=TOKENIZER, **free_settings()))
    text = json.dumps(body)
    prompt = builder.build(text)
    request = {"input_ids": prompt.input_ids, "sampling": json.dumps(prompt.sampling), "constraint": ""}
    alone: dict[str, list[float]] = {"render": [], "llm": [], "chat": [], "chat_echo": []}
    for number in range(samples + 5):
        started = time.perf_counter()
        builder.build(text)
        taken = {"render": (time.perf_counter() - started) * 1000}
        taken["llm"] = await load.first_ms("llm", {**request, "stream_id": f"bench-{number}"})
        taken["chat"] = await load.first_ms("chat", {"request": text})
        taken["chat_echo"] = await load.first_ms("chat_echo", {"request": text})
        if number >= 5:  # the first ones warm up
            for name, value in taken.items():
                alone[name].append(value)
        await asyncio.sleep(0.01)
    medians = {name: stats.median(values) for name, values in alone.items()}
    floor = medians["llm"] + medians["render"]
    added = medians["chat"] - floor
    rows = [
        Row(
            "first token, unloaded",
            f"{medians['chat']:.1f} ms",
            f"{floor:.1f} ms without us, {medians['chat_echo']:.1f} echo",
            f"+{added:.1f} ms",
            f"≤ {MAX_FIRST_MS:g} ms",
            added <= MAX_FIRST_MS,
        )
    ]
    note(f"first token beside {LOAD_STREAMS} streams at {LOAD:.0%} of saturation")
    loaded: dict[str, list[float]] = {}
    for model, rate in saturation.items():
        delay_ms = LOAD_STREAMS / (LOAD * rate) * 1000
        seconds = 0.06 * samples + 6
        words = int(seconds * 1000 / delay_ms)
        others = chat_body(
            {"words": words, "delay_ms": delay_ms, "gate": [f"load {model}", LOAD_STREAMS]}, tools=[TOOL]
        )
        background = [asyncio.create_task(load.chat(model, others)) for _ in range(LOAD_STREAMS)]
        await asyncio.sleep(2)
        loaded[model] = []
        while not any(task.done() for task in background) and len(loaded[model]) < samples * 2:
            loaded[model].append(await load.first_ms(model, {"request": text}))
            await asyncio.sleep(0.02)
        done = await asyncio.gather(*background)
        kept_up = LOAD_STREAMS * words / (max(last for _, last, _, _ in done) - min(first for first, *_ in done))
        loaded[f"{model}_rate"] = [kept_up]
    p99, p99_echo = (quantile(loaded[model], 0.99) - floor for model in ("chat", "chat_echo"))
    rows.append(
        Row(
            f"first token, p99 of {len(loaded['chat'])}, at {LOAD:.0%} load",
            f"{p99 + floor:.0f} ms (p50 {stats.median(loaded['chat']):.0f})",
            f"{floor:.1f} ms without us, {p99_echo + floor:.0f} echo",
            f"+{p99:.0f} ms",
            f"≤ {MAX_FIRST_LOADED_MS:g} ms",
            p99 <= MAX_FIRST_LOADED_MS,
        )
    )
    return rows, {"unloaded_ms": alone, "loaded_ms": loaded, "added_ms": added, "added_p99_loaded_ms": p99}


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which `part` of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def vars_of(run: Run) -> dict[str, float]:
    """A run as JSON."""
    return {"rate": round(run.rate, 1), "executions": run.executions, "responses": run.responses}


async def measure(
    replay: ReplayServer, streams: Sequence[int], runs: int, note: Any
) -> tuple[list[Row], dict[str, Any]]:
    """All rows of the table, and all numbers behind them."""
    async with grpc.aio.insecure_channel(replay.grpc_url) as channel:
        load = Load(replay, service_pb2_grpc.GRPCInferenceServiceStub(channel))
        note("warming up")
        for model in ("chat", "chat_echo"):
            await load.saturate(model, 8, 1600)
        rows, rates = await token_rates(load, streams, runs, note)
        row, executed = await batching(load, runs, note)
        # The batching row's uniform runs are runs at saturation as well.
        ours = stats.median(run["rate"] for run in executed["uniform"])
        ratio = rates[str(LOAD_STREAMS)]["ratio"] if str(LOAD_STREAMS) in rates else 1.0
        saturation = {"chat": ours, "chat_echo": ours / ratio}
        first_rows, first = await first_tokens(load, saturation, SAMPLES, note)
    return [*rows, row, *first_rows], {"token_rate": rates, "batching": executed, "first_token": first}


def table(rows: Sequence[Row]) -> Table:
    """The rows for a terminal."""
    shown = Table(title="post model on a real Triton, against one that only echoes")
    for name in ("", "tristream", "against", "result", "target"):
        shown.add_column(name, justify="left" if not name else "right")
    shown.add_column("verdict")
    for row in rows:
        verdict = "-" if row.met is None else "[green]met[/]" if row.met else "[red]missed[/]"
        shown.add_row(row.what, row.ours, row.reference, row.value, row.target, verdict)
    return shown


def main() -> None:
    """Measure, print the table, write `build/bench/server.json`."""
    parser = argparse.ArgumentParser(description="Measure the models on a server against an echoing one.")
    parser.add_argument("--streams", type=int, nargs="+", default=list(STREAMS), help="numbers of streams at once")
    parser.add_argument("--runs", type=int, default=3, help="runs of each row; their median counts")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    sets = (
        Set(
            TOKENIZER,
            models=("chat", "preprocess", "postprocess", "llm"),
            settings={"llm": {"cancel_check_tokens": "64"}},
        ),
        Set(TOKENIZER, "_echo", models=("chat", "preprocess", "postprocess"), llm="llm", echo=True),
    )
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="tristream-bench-") as folder,
        Progress(*columns, console=console) as progress,
    ):
        task = progress.add_task("starting Triton")

        def note(text: str) -> None:
            progress.update(task, description=text)

        with replay_server(Path(folder), sets) as replay:
            rows, results = asyncio.run(measure(replay, arguments.streams, arguments.runs, note))
        progress.remove_task(task)
    console.print(table(rows))
    results["machine"] = {"cores": os.cpu_count(), "load": os.getloadavg(), "python": platform.python_version()}
    results["rows"] = [
        {
            "what": row.what,
            "ours": row.ours,
            "against": row.reference,
            "result": row.value,
            "target": row.target,
            "met": row.met,
        }
        for row in rows
    ]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1), encoding="utf-8")
    console.print(f"{time.monotonic() - started:.0f} s; all numbers: {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
