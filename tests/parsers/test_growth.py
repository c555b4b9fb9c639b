"""Work is proportional to the deltas (PERFORMANCE.md): counted, and by one ratio with a wide margin."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from support.parsing import call, tool
from tristream.parsers import ChatOptions, ChatStream, Delta, candidates
from tristream.parsers.arguments import forced, json_calls, json_object, json_value, tagged
from tristream.parsers.engine import Engine
from tristream.parsers.header import Attempt
from tristream.parsers.scanner import compile_format

SIZE: Final = 4
"""Characters of one delta."""

PROPERTIES: Final = {"content": {"type": "string"}, "data": {"type": "array"}, "n": {"type": ["string", "null"]}}
TOOLS: Final = [tool("write", {**PROPERTIES, **{f"p{number}": {"type": "string"} for number in range(800)}})]
OPTIONS: Final = ChatOptions.from_openai({"tools": TOOLS})
OPEN_TAGGED: Final = "<tool_call>\n<function=write>\n"
CODE: Final = 'if (a < b) { return "x<y"; }\n<div class="a">text</div>\n  </p <t <tool_calls> x = [1, 2]\n'


@dataclass(frozen=True)
class Text:
    """An output of any length.

    Args:
        format: what reads it.
        before: what leads up to it.
        make: the text of about so many characters.
        body: members of the request.
    """

    format: str
    before: str
    make: Callable[[int], str]
    body: dict[str, Any] | None = None

    def stream(self) -> ChatStream:
        options = OPTIONS if self.body is None else ChatOptions.from_openai({"tools": TOOLS, **self.body})
        stream = ChatStream(self.format, options, "")
        stream.feed(Delta(self.before))
        return stream


def repeated(text: str) -> Callable[[int], str]:
    return lambda size: text * (size // len(text))


def numbered(text: str, most: int = 1 << 30) -> Callable[[int], str]:
    return lambda size: "".join(text.format(number % most) for number in range(size // len(text)))


PROSE: Final = repeated("the quick brown fox, jumps over\na lazy dog ")

TEXTS: Final = {
    "content": Text("qwen3+hermes", "", PROSE),
    "content, heavy with <": Text("qwen3", "", repeated(CODE)),
    "reasoning": Text("qwen3", "<think>", PROSE),
    "reasoning, heavy with <": Text("deepseek_r1", "", repeated(CODE)),
    "hidden reasoning": Text("qwen3", "<think>", PROSE, {"include_reasoning": False}),
    "JSON string": Text("hermes", '<tool_call>{"name": "write", "arguments": {"content": "', PROSE),
    "JSON string of code": Text(
        "hermes", '<tool_call>{"name": "write", "arguments": {"content": "', repeated(json.dumps(CODE)[1:-1])
    ),
    "dense JSON": Text("hermes", '<tool_call>{"name": "write", "arguments": {"data": [', repeated('[12,{"a":null}],')),
    "encoded JSON": Text(
        "hermes", '<tool_call>{"name": "write", "arguments": "{\\"content\\": \\"', repeated('a \\"b\\" \\\\n c ')
    ),
    "arguments before the name": Text("hermes", '<tool_call>{"arguments": {"content": "', PROSE),
    "a member nobody reads": Text("hermes", '<tool_call>{"name": "write", "type": "', PROSE),
    "forced JSON": Text("qwen3", '[{"name": "write", "parameters": {"content": "', PROSE, {"tool_choice": "required"}),
    "a call nobody asked for": Text(
        "hermes", '<tool_call>{"name": "nope", "arguments": {"content": "', PROSE, {"unknown_tool": "content"}
    ),
    "a broken call's rest": Text("hermes", '<tool_call>{"name": "write", "arguments": {"a": x', repeated(CODE)),
    "tagged string": Text("qwen3", f"{OPEN_TAGGED}<parameter=content>\n", PROSE),
    "tagged string, heavy with <": Text("qwen3", f"{OPEN_TAGGED}<parameter=content>\n", repeated(CODE)),
    "tagged string of closers": Text("qwen3", f"{OPEN_TAGGED}<parameter=content>\n", repeated("</parameter> x\n")),
    "tagged string of line ends": Text("qwen3", f"{OPEN_TAGGED}<parameter=content>\n", repeated("\n\n\n\n")),
    "tagged value held for its type": Text("qwen3", f"{OPEN_TAGGED}<parameter=data>\n", repeated('[1, "<b>"],\n')),
    "no parameter where one should be": Text("qwen3", OPEN_TAGGED, repeated("junk <b> ")),
    "parameters": Text("qwen3", OPEN_TAGGED, numbered("<parameter=p{}>\nvalue\n</parameter>\n", 800)),
    "JSON calls": Text(
        "hermes", "", numbered('<tool_call>\n{{"name": "write", "arguments": {{"content": "{}"}}}}\n</tool_call>\n')
    ),
    "tagged calls": Text(
        "qwen3", "", numbered(OPEN_TAGGED + "<parameter=content>\n{}\n</parameter>\n</function>\n</tool_call>\n")
    ),
    "fenced calls": Text(
        "deepseek_r1",
        "</think><｜tool▁calls▁begin｜>",
        numbered('<｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n{{"n": "{}"}}\n```<｜tool▁call▁end｜>\n'),
    ),
    "mentions": Text("qwen3+hermes", "", repeated("a <tool_call> tag, ")),
    "reasoning blocks": Text("qwen3", "", repeated("<think>a</think>b ")),
    "blanks in content": Text("qwen3", "A", repeated(" \n  ")),
    "blanks after a marker": Text("qwen3", "<think>A</think>", repeated(" \n  ")),
    "blanks in reasoning": Text("qwen3", "<think>A", repeated(" \n  ")),
    "blanks in a call": Text("hermes", '<tool_call>{"name": "write",', repeated(" \n  ")),
    "blanks between parameters": Text("qwen3", OPEN_TAGGED, repeated(" \n  ")),
    "blanks after a call": Text("hermes", call("write", "{}"), repeated(" \n  ")),
    "text between calls": Text("deepseek_r1", "</think><｜tool▁calls▁begin｜>", PROSE),
}


class Work:
    """Characters looked at, and steps."""

    def __init__(self) -> None:
        self.done = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Counts what the searches, the decoders and the engine are handed."""
    counter = Work()
    compiled = candidates._compiled

    class Counting:
        """A compiled pattern that counts the characters it is led past."""

        def __init__(self, literals: tuple[str, ...], framed: bool) -> None:
            self.pattern = compiled(literals, framed)

        def search(self, text: str, pos: int = 0) -> Any:
            match = self.pattern.search(text, pos)
            counter.done += 1 + (match.start() if match else len(text)) - pos
            return match

        def match(self, text: str, pos: int = 0) -> Any:
            counter.done += 1
            return self.pattern.match(text, pos)

    def count(owner: type, name: str, size: Callable[..., int]) -> None:
        method = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            counter.done += 1 + size(*arguments)
            return method(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)

    monkeypatch.setattr(candidates, "_compiled", Counting)
    for decoder in (
        tagged.TaggedDecoder, json_calls.JsonCallDecoder, json_object.JsonObjectDecoder, forced.NamedObjectDecoder,
    ):  # fmt: skip
        count(decoder, "feed", lambda _, text, pos, *rest: len(text) - pos)
    count(json_value.JsonValue, "_scan", lambda _, text, pos: len(text) - pos)
    count(Attempt, "step", lambda *_: 0)
    count(Engine, "feed", lambda engine, text, *rest: len(engine.held) + len(text))
    caches = (compile_format, tagged._compiled)
    for cache in caches:
        cache.cache_clear()
    yield counter
    for cache in caches:
        cache.cache_clear()


def feed(stream: ChatStream, text: str) -> None:
    for at in range(0, len(text), SIZE):
        stream.feed(Delta(text[at : at + SIZE], (at,)))
    stream.finish("length")


@pytest.mark.parametrize("name", TEXTS)
def test_work_grows_as_the_text_does(name: str, work: Work) -> None:
    text = TEXTS[name]
    costs = []
    for size in (4_096, 32_768):
        made = text.make(size)
        stream = text.stream()
        work.done = 0
        feed(stream, made)
        costs.append(work.done / len(made))
    assert costs[1] <= 1.15 * costs[0] + 0.1, f"per character: {costs[0]:.2f}, then {costs[1]:.2f}"
    assert costs[1] < 40


def seconds(text: Text, size: int) -> float:
    """CPU seconds per character; the best of a few runs, for other processes only ever add to it."""
    made = text.make(size)
    deltas = [Delta(made[at : at + SIZE], (at,)) for at in range(0, len(made), SIZE)]
    best = float("inf")
    for _ in range(3):
        stream = text.stream()
        begin = time.process_time()
        for delta in deltas:
            stream.feed(delta)
        best = min(best, time.process_time() - begin)
    return best / len(made)


@pytest.mark.ratio
@pytest.mark.parametrize("name", TEXTS)
def test_a_long_text_costs_no_more_per_character(name: str) -> None:
    """Work in C hides from counts: 256 KiB may cost per character at most three times what 16 KiB does."""
    text = TEXTS[name]
    assert seconds(text, 256 * 1024) <= 3 * seconds(text, 16 * 1024)


# --- memory -------------------------------------------------------------------------------------


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Bytes allocated so far."""
    gc.collect()
    tracemalloc.start()

    def size() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    yield size
    tracemalloc.stop()


LIVE: Final = (
    "content", "reasoning", "JSON string", "dense JSON", "tagged string", "tagged string, heavy with <", "forced JSON",
)  # fmt: skip


def living(name: str) -> ChatStream:
    text = TEXTS[name]
    stream = text.stream()
    made = text.make(600)
    for at in range(0, len(made), SIZE):
        stream.feed(Delta(made[at : at + SIZE], (at,)))
    return stream


@pytest.mark.parametrize("name", LIVE)
def test_a_live_stream_is_small(name: str, traced: Callable[[], int]) -> None:
    living(name)
    count = 200
    before = traced()
    streams = [living(name) for _ in range(count)]
    assert (traced() - before) / count <= 3 * 1024
    assert len(streams) == count


def test_many_streams_leave_nothing_behind(traced: Callable[[], int]) -> None:
    def some() -> None:
        for name in LIVE:
            for _ in range(30):
                living(name).finish("length")

    some()
    before = traced()
    for _ in range(5):
        some()
    assert traced() - before < 16 * 1024


def test_a_stream_that_is_dropped_goes_at_once() -> None:
    """Without the help of the garbage collector, which may come late."""

    def some() -> None:
        for name in LIVE:
            for _ in range(50):
                living(name)

    gc.collect()
    tracemalloc.start()
    gc.disable()
    try:
        some()  # the interpreter keeps some freed tuples for later
        before = tracemalloc.get_traced_memory()[0]
        some()
        assert tracemalloc.get_traced_memory()[0] - before < 512 * 50 * len(LIVE)
    finally:
        gc.enable()
        tracemalloc.stop()
