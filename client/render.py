"""Shows message deltas on a terminal as they come: reasoning dim, content plain, tool calls as they grow."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final

from rich.console import Console
from rich.text import Text

from tristream.parsers import MessageDelta, Notice, ToolCallDelta, Usage

from .livetext import LiveText, visible

__all__ = ["Renderer"]

_STATUS: Final = {
    "complete": ("✓", "green"),
    "incomplete": ("… cut", "yellow"),
    "invalid": ("✗ invalid", "yellow"),
}

_MEANING: Final = {
    "unknown_tool": "a tool that was not declared",
    "call_dropped": "a call was dropped",
    "recovered_value": "a value's end was missing",
    "recovered_wrapper": "a wrapper was missing",
    "recovered_end": "a call's end was missing",
    "repeated_parameter": "a parameter came twice; the last one counts",
    "incomplete_call": "a call was not finished",
    "invalid_arguments": "arguments that are no JSON",
    "stray_marker": "a marker out of place",
    "value_type_mismatch": "a value that does not fit its declared type",
    "held_text_released": "text that might have been a call",
    "stream_lost": "the server lost the stream",
    "tokens_lost": "tokens were lost on the way",
}
"""PROTOCOL 7's codes, for people."""


class Renderer:
    """One answer on a console. With several choices the first that is running shows; the others follow.

    Args:
        console: where; on a terminal lines wrap at words, elsewhere not at all.
        show_usage: end with a line of finish reason, tokens and times.
    """

    def __init__(self, console: Console, *, show_usage: bool = True) -> None:
        self._console = console
        self._show_usage = show_usage
        self._block: LiveText | None = None
        self._key: tuple[str, int] = ("", -1)
        self._began = False
        self._choice = 0
        self._waiting: defaultdict[int, list[MessageDelta]] = defaultdict(list)
        self._names: dict[int, str] = {}
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._started = time.monotonic()
        self._first: float | None = None

    def show(self, delta: MessageDelta) -> None:
        """Show what a delta brings."""
        if self._first is None:
            self._first = time.monotonic()
        self._usage = delta.usage or self._usage
        if delta.choice_index != self._choice:
            self._waiting[delta.choice_index].append(delta)
            return
        self._show(delta)
        while self._finish_reason is not None and self._choice + 1 in self._waiting:
            self._next_choice()

    def finish(self) -> None:
        """The answer is over, also where it was cut: end the last line, and say how it went."""
        for index in sorted(index for index in self._waiting if index > self._choice):
            self._next_choice(index)
        self._end_block()
        if self._show_usage and (self._finish_reason is not None or self._usage is not None):
            self._gap()
            self._line(Text(self._summary(), "dim"))

    def _next_choice(self, index: int | None = None) -> None:
        self._choice = self._choice + 1 if index is None else index
        self._finish_reason = None
        self._end_block()
        self._gap()
        self._console.print(Text(f"choice {self._choice}", "dim"))
        for delta in self._waiting.pop(self._choice):
            self._show(delta)

    def _show(self, delta: MessageDelta) -> None:
        if delta.reasoning:
            self._open("reasoning").write(delta.reasoning)
        if delta.content:
            self._open("content").write(delta.content)
        for call in delta.tool_calls:
            self._show_call(call)
        for notice in delta.notices:
            self._show_notice(notice)
        self._finish_reason = delta.finish_reason or self._finish_reason

    def _show_call(self, call: ToolCallDelta) -> None:
        if call.name:
            self._names[call.index] = call.name
            self._open("call", call.index, call.id or "")
        if call.arguments:
            self._open("call", call.index).write(call.arguments)
        if call.status:
            mark, style = _STATUS.get(call.status, (call.status, "yellow"))
            self._open("call", call.index).close(f"  {mark}", style)
            self._block, self._key = None, ("", -1)

    def _show_notice(self, notice: Notice) -> None:
        self._end_block()
        times = f" ×{notice.count}" if notice.count > 1 else ""
        meaning = _MEANING.get(notice.code, "")
        line = Text.assemble(("! ", "yellow"), (f"{notice.code}{times}", "yellow"), (f"  {meaning}", "dim"))
        self._line(line)

    def _line(self, line: Text) -> None:
        """A line of ours; on a terminal it wraps at words."""
        self._console.print(line, soft_wrap=not self._console.is_terminal)

    def _open(self, kind: str, index: int = -1, call_id: str = "") -> LiveText:
        """The block that text of this kind goes to; begins it where another one is running."""
        if self._block is not None and self._key == (kind, index):
            return self._block
        self._end_block()
        self._gap()
        self._key = (kind, index)
        if kind == "call":
            name = visible(self._names.get(index, ""))
            line = Text.assemble(("→ ", "cyan"), (name, "bold cyan"), (f"  {visible(call_id)}", "dim"))
            self._console.print(line, soft_wrap=True)
            self._block = LiveText(self._console, gutter="  ", words=False)
        elif kind == "reasoning":
            self._block = LiveText(self._console, gutter="│ ", style="dim")
        else:
            self._block = LiveText(self._console)
        return self._block

    def _end_block(self) -> None:
        if self._block is not None:
            self._block.close()
        self._block, self._key = None, ("", -1)

    def _gap(self) -> None:
        """A blank line between blocks."""
        if self._began:
            self._console.print()
        self._began = True

    def _summary(self) -> str:
        now = time.monotonic()
        parts = [self._finish_reason or "no end"]
        usage = self._usage or Usage()
        if usage.prompt_tokens is not None:
            parts.append(f"{usage.prompt_tokens} prompt tokens")
        if usage.completion_tokens is not None:
            reasoning = f" ({usage.reasoning_tokens} reasoning)" if usage.reasoning_tokens else ""
            parts.append(f"{usage.completion_tokens} completion tokens{reasoning}")
        if self._first is not None:
            parts.append(f"first delta {self._first - self._started:.2f} s")
            if usage.completion_tokens and now - self._first > 0.05:
                parts.append(f"{usage.completion_tokens / (now - self._first):.0f} tokens/s")
        parts.append(f"{now - self._started:.1f} s")
        return " · ".join(parts)
