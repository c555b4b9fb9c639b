"""What the engine expects of an argument syntax.

A syntax (frozen data, part of a format) makes a decoder for one call. The decoder takes the call's
text piece by piece and appends JSON text of the arguments to `out`: linear in the text, append
only, and never holding more of it than is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ..events import NoticeCode
from ..schema import ToolIndex

__all__ = ["ArgumentSyntax", "CallContext", "Decoder", "End"]


class End(Enum):
    """How a decoder's work ended.

    COMPLETE: the arguments are whole.
    UNCLOSED: they are whole, but the call is not: a closer of the format must follow.
    UNREADABLE: the call has ended, but nothing in it was an argument.
    INVALID: they cannot go on; what is left of the call is dropped.
    FAILED: there is no call, since no name came: the text is released.
    """

    COMPLETE = "complete"
    UNCLOSED = "unclosed"
    UNREADABLE = "unreadable"
    INVALID = "invalid"
    FAILED = "failed"


class CallContext:
    """What a decoder knows of its call: the name in the header, the tools, the bounds.

    Args:
        name: the function's name where the header has it, else None.
        call_id: the model's id where the header has it, else "".
        captures: all that the header captured.
        tools: types by schema.
        max_held: most undecided characters, see `ChatOptions.max_held_chars`.
        note: reports something odd: code, and the position in the text given to `feed`, or -1 for the call's start.
        function: the one function the request must call (the forced form), or None.
    """

    __slots__ = ("captures", "function", "id", "max_held", "name", "note", "tools")

    def __init__(
        self,
        name: str | None,
        call_id: str,
        captures: dict[str, str],
        tools: ToolIndex,
        max_held: int,
        note: Callable[[NoticeCode, int], None],
        function: str | None = None,
    ) -> None:
        self.name = name
        self.id = call_id
        self.captures = captures
        self.tools = tools
        self.max_held = max_held
        self.note = note
        self.function = function


class Decoder(Protocol):
    """Decodes one call's arguments.

    Attributes:
        name: the function's name, None until it is certain.
        id: the model's own id, where it came before the arguments.
        end: how it ended, None while it runs.
    """

    name: str | None
    id: str
    end: End | None

    def feed(self, text: str, pos: int, out: list[str], final: bool, stopped: bool) -> int:
        """Take text from `pos` and say where to go on: less than its length means "held".

        Args:
            text: the text, which begins with what was held before.
            pos: where to begin.
            out: receives JSON text.
            final: the output ends with `text`.
            stopped: it ended by itself (`stop`), not by a cut.
        """
        ...

    def quick(self) -> Callable[[str], str | None] | None:
        """The fast path, where the decoder is inside a plain run (DESIGN 4), else None.

        It takes a whole piece of text and returns the JSON text to send for it, or takes nothing
        and returns None: then the piece goes the long way.
        """
        ...


class ArgumentSyntax(Protocol):
    """One argument syntax with its parameters: data of a format."""

    def decoder(self, context: CallContext) -> Decoder:
        """A decoder for one call."""
        ...

    def translated(self, spell: Callable[[str], str]) -> ArgumentSyntax:
        """The same syntax with every literal respelled, as `header.translate` does."""
        ...
