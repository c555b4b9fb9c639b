"""One chat template, read back by any format: what the parser itself makes of the turns that the template writes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from .chat import ChatStream
from .detect_turns import ANSWER, CALLS, PLAN, TOOLS, Call, TemplateProbe, Turn
from .events import Delta
from .format import Format
from .message import Message, fold
from .opening import opening
from .request import ChatOptions
from .states import State

__all__ = ["FIRST", "Reading", "calls_of", "prompt_state", "shown"]

FIRST: Final = "one call"
"""The turn that a format must read back."""

_OPTIONS: Final = ChatOptions.from_openai({"tools": list(TOOLS)})
_ODD: Final = frozenset(
    {"stray_marker", "recovered_value", "recovered_wrapper", "recovered_end", "invalid_arguments", "incomplete_call"}
)
"""Notices that a turn as the template writes it should not give."""

_SNIPPET: Final = 160


class Reading:
    """What a template writes, and what formats read in it.

    Args:
        probe: the template.
        special: spellings of the tokens that its tokenizer flags special.

    Attributes:
        probe: the template.
        turns: its turns with calls, by their name in CALLS; None where it writes none.
    """

    def __init__(self, probe: TemplateProbe, special: frozenset[str] = frozenset()) -> None:
        self.probe = probe
        self.turns = {what: probe.calls(what) for what in CALLS}
        self._special = special
        self._stripped: dict[tuple[str, str], bool] = {}

    @property
    def has_calls(self) -> bool:
        """Does the template write calls?"""
        return self.turns[FIRST] is not None

    @property
    def has_reasoning(self) -> bool:
        """Does the template write reasoning that can be read back?"""
        return self.probe.reasoned is not None

    def seen(self) -> tuple[str, ...]:
        """What the template writes, for people."""
        lines = []
        for what, turn in (("a call", self.turns[FIRST]), ("reasoning", self.probe.reasoned)):
            if turn is not None:
                lines.append(f"{what} is written {shown(turn.text)}")
        return tuple(lines)

    def reads_calls(self, format: Format, what: str = FIRST) -> bool:
        """Are the calls of that turn recovered exactly, and nothing of them left in the content?"""
        turn = self.turns[what]
        if turn is None:
            return False
        messages = (self.read_call(format, variant) for variant in turn.variants())
        return any(
            calls_of(message) == list(CALLS[what]) and self._leaves_no_trace(format, message.content or "")
            for message in messages
        )

    def reads_cleanly(self, format: Format) -> bool:
        """Did reading the plainest call need no recovery?"""
        turn = self.turns[FIRST]
        return turn is None or not any(notice.code in _ODD for notice in self.read_call(format, turn).notices)

    def reads_reasoning(self, format: Format) -> bool:
        """Is the reasoning recovered exactly, and nothing of it left in the content?"""
        turn = self.probe.reasoned
        assert turn is not None, "ask has_reasoning first"
        message = self.read(format, turn)
        content = message.content or ""
        exact = (message.reasoning or "").strip() == PLAN and ANSWER in content
        return exact and self._leaves_no_trace(format, content.replace(ANSWER, ""))

    def reasons(self, format: Format) -> bool:
        """Does the model always reason first? The prompt opens reasoning, or the template knows it and no switch."""
        prompts = tuple(self.probe.prompts())
        opened = prompt_state(format, prompts[0]) if prompts else None
        if opened is not None:
            return opened
        return len(set(prompts)) == 1 and (self.has_reasoning or self.strips_reasoning(format))

    def reads_answer(self, format: Format, prompt: str) -> bool:
        """Does a plain answer stay content? Where the model reasons first, none comes first."""
        plain = self.probe.plain
        if plain is None or self.reasons(format):
            return True
        opened = prompt_state(format, prompt)
        turn = plain if opened is None else Turn(plain.text, prompt)
        return ANSWER in (self.read(format, turn).content or "")

    def strips_reasoning(self, format: Format) -> bool:
        """Does the template take text between this format's reasoning markers out of the history?"""
        if format.reasoning is None or not format.reasoning.starts:
            return False
        pair = format.reasoning.starts[0], format.reasoning.ends[0]
        if pair not in self._stripped:
            self._stripped[pair] = self.probe.strips(*pair)
        return self._stripped[pair]

    def read(self, format: Format, turn: Turn) -> Message:
        """Parse a rendered turn as if the model had written it."""
        stream = ChatStream(format, _OPTIONS, turn.prompt, self._special)
        return fold((*stream.feed(Delta(turn.text)), *stream.finish("stop")))

    def read_call(self, format: Format, turn: Turn) -> Message:
        """The same for a turn without reasoning: in a family that starts inside it, it has ended."""
        reasoning = format.reasoning
        if reasoning is None or any(end in turn.text for end in reasoning.ends):
            return self.read(format, turn)
        if opening(format, ChatOptions(), turn.prompt).state is State.REASONING:
            turn = Turn(turn.text, turn.prompt + reasoning.ends[0])
        return self.read(format, turn)

    def _leaves_no_trace(self, format: Format, content: str) -> bool:
        """Is nothing in the content but what stands around a plain answer too?"""
        if not content.strip():
            return True
        assert self.probe.plain is not None, "a template without answers is asked no further"
        around = (self.read_call(format, self.probe.plain).content or "").replace(ANSWER, "")
        return "".join(content.split()) == "".join(around.split())


def calls_of(message: Message) -> list[Call]:
    """Names and arguments; none at all where some arguments are no JSON."""
    try:
        return [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    except ValueError:
        return []


def prompt_state(format: Format, prompt: str) -> bool | None:
    """Is reasoning open where the prompt ends? None: it bears no marker of the format."""
    reasoning = format.reasoning
    if reasoning is None:
        return None
    start = opening(format, ChatOptions(), prompt)
    if start.state is State.REASONING:
        # The family's default, or a marker? Without the default only a marker opens.
        closed = opening(_by_marker(format), ChatOptions(), prompt)
        return True if closed.state is State.REASONING else None
    return False if start.reasoned else None


def shown(text: str) -> str:
    """A piece of the template's text for a message."""
    return repr(text if len(text) <= _SNIPPET else text[:_SNIPPET] + "…")


def _by_marker(format: Format) -> Format:
    assert format.reasoning is not None
    return replace(format, reasoning=replace(format.reasoning, opens_by_default=False, switches=()))
