"""Where the output starts: inside reasoning or in content (PROTOCOL 4).

The last reasoning marker in the current turn of the rendered prompt decides. Where there is none,
a switch of the request does, if the family names one; else the family's default.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from .format import Format, MessageSyntax
from .header import BLANK_CHARS, Attempt
from .request import ChatOptions
from .states import State

__all__ = ["Opening", "opening"]

_OFF: Final = frozenset({"none", "no_think", "off", "disabled", "false"})
"""Words by which templates switch reasoning off where a switch is not a boolean."""


class Opening(NamedTuple):
    """How the output starts.

    Args:
        state: CONTENT or REASONING.
        reasoned: the prompt has already ended a reasoning block.
        at_marker: the prompt ends with a marker, blanks ignored.
    """

    state: State
    reasoned: bool = False
    at_marker: bool = False


def opening(format: Format, options: ChatOptions, prompt_tail: str | None) -> Opening:
    """Decide it from the prompt's end, the request's switches, and the family's default."""
    turn = _current_turn(prompt_tail or "", format.turns)
    if format.messages is not None:
        return _in_message(format.messages, turn)
    reasoning = format.reasoning
    if reasoning is None:
        return Opening(State.CONTENT)
    opened, open_end = _last(turn, reasoning.starts)
    closed, close_end = _last(turn, reasoning.ends)
    if opened < 0 and closed < 0:
        starts = reasoning.opens_by_default
        for switch in reasoning.switches:
            if options.template_switches.get(switch) is not None:
                starts = _is_on(options.template_switches[switch])
                break
        return Opening(State.REASONING if starts else State.CONTENT)
    end = len(turn.rstrip(BLANK_CHARS))
    if opened > closed:
        return Opening(State.REASONING, at_marker=open_end == end)
    return Opening(State.CONTENT, reasoned=True, at_marker=close_end == end)


def _in_message(messages: MessageSyntax, turn: str) -> Opening:
    """Formats with message frames: the prompt ends inside a message, or where a header goes on."""
    for start in range(len(turn) - 1, -1, -1):
        for pattern in messages.headers:
            attempt = Attempt(pattern)
            end = attempt.step(turn, start, final=True)
            if end >= 0:
                if any(turn.find(spelling, end) >= 0 for spelling in messages.ends):
                    return Opening(State.MESSAGE_HEADER)
                header = messages.read(attempt.captures["header"])
                return Opening(header.state, at_marker=not turn[end:].strip(BLANK_CHARS))
    return Opening(State.MESSAGE_HEADER)


def _current_turn(prompt: str, turns: Iterable[str]) -> str:
    start, _ = _last(prompt, turns)
    return prompt[max(start, 0) :]


def _last(text: str, spellings: Iterable[str]) -> tuple[int, int]:
    """Start and end of the last of these spellings; (-1, -1) if there is none."""
    found = (-1, -1)
    for spelling in spellings:
        at = text.rfind(spelling)
        if at > found[0]:
            found = (at, at + len(spelling))
    return found


def _is_on(value: Any) -> bool:
    return value.lower() not in _OFF if isinstance(value, str) else bool(value)
