"""The states of the machine and what a row of its table says.

A format becomes a table `{(State, Pattern): Transition}` (`format.table`). A pair that is not in
the table means: this marker is plain text in this state. Only `engine.py` walks tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .header import Pattern

if TYPE_CHECKING:
    from .arguments import ArgumentSyntax

__all__ = ["CLOSING", "LIMITS", "Do", "MessageHeader", "NameReader", "State", "Table", "Transition"]


class State(Enum):
    """Where in the message the engine is.

    CONTENT: in text for the user.
    REASONING: in the model's reasoning.
    MESSAGE_HEADER: in a header whose text must be read (formats with message frames).
    TOOL_BETWEEN: inside a wrapper and outside its calls, or just after a call.
    TOOL_ARGS: in a call's arguments.
    """

    CONTENT = "content"
    REASONING = "reasoning"
    MESSAGE_HEADER = "message_header"
    TOOL_BETWEEN = "tool_between"
    TOOL_ARGS = "tool_args"

    # Tables are asked by state at every step; the hash of an Enum is a call of Python code.
    __hash__ = object.__hash__


class Do(Enum):
    """What happens when a terminal was read. A call's own events follow from its decoder.

    REMOVE: nothing, but its spelling belongs to no field.
    STRAY: the same, and a `stray_marker` notice.
    REASONING_START, REASONING_END: as they say.
    OPEN_WRAPPER, CLOSE_WRAPPER: the frame around calls.
    CLOSE_CALL: the frame of one call inside the wrapper.
    CALL: a call begins; its header was the terminal.
    RECOVERED_WRAPPER: the call's wrapper is missing; a notice.
    MESSAGE: the header of a message was read; its reader says what the message is.
    """

    REMOVE = "remove"
    STRAY = "stray"
    REASONING_START = "reasoning_start"
    REASONING_END = "reasoning_end"
    OPEN_WRAPPER = "open_wrapper"
    CLOSE_WRAPPER = "close_wrapper"
    CLOSE_CALL = "close_call"
    CALL = "call"
    RECOVERED_WRAPPER = "recovered_wrapper"
    MESSAGE = "message"


class MessageHeader(NamedTuple):
    """What a message's header says (formats with message frames).

    Args:
        state: CONTENT, REASONING, or TOOL_BETWEEN: the message is for nobody and dropped.
        name: the function that the message calls, or "".
    """

    state: State
    name: str = ""


NameReader: TypeAlias = "Callable[[str, Iterable[str]], tuple[str, str]]"
"""From a header's text and the declared names to name and id; an empty name: this is no call."""


@dataclass(frozen=True, slots=True)
class Transition:
    """What a terminal leads to.

    Args:
        next: the state that follows.
        do: what happens, in order.
        declared: counts only if the captured (or later read) name is a declared tool.
        arguments: how the call's arguments are written, where `do` has CALL, or MESSAGE may have one.
        name_within: most characters within which the name must come; 0: the stream's own bound.
        message: reads the captured `header` where `do` has MESSAGE.
        read_name: makes name and id of the captured `header`, where they do not stand there as such.
        at_start: tried only where a message starts, after reasoning, and after a call.
    """

    next: State
    do: tuple[Do, ...] = (Do.REMOVE,)
    declared: bool = False
    arguments: ArgumentSyntax | None = None
    name_within: int = 0
    message: Callable[[str], MessageHeader] | None = None
    at_start: bool = False
    read_name: NameReader | None = None


CLOSING: Final = frozenset({Do.CLOSE_CALL, Do.CLOSE_WRAPPER})
"""What closes a call whose own last brace is missing."""

LIMITS: Final = frozenset({Do.CALL, Do.OPEN_WRAPPER, *CLOSING})
"""Where what is left of a broken call ends: its closer, or the next opener (PROTOCOL 5)."""


Table: TypeAlias = Mapping[tuple[State, Pattern], Transition]
