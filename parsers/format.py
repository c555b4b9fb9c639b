"""`Format`: how one family of models writes reasoning and tool calls, as data.

A format is a literal in `formats/`; this module says what may stand in it, checks it when it is
built, composes two of them, and turns one into the table that the engine walks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from .arguments import ArgumentSyntax
from .errors import FormatDefinitionError
from .header import Attempt, Blanks, Lit, Pattern, first_literals, here
from .states import Do, State, Table, Transition

__all__ = ["Format", "IdStyle", "ReasoningSyntax", "ToolSyntax", "compose", "table"]

IdStyle: TypeAlias = Literal["call", "mistral", "kimi"]


@dataclass(frozen=True, slots=True)
class ReasoningSyntax:
    """How reasoning is marked.

    Args:
        starts: spellings that open it.
        ends: spellings that end it.
        opens_by_default: with no marker in the prompt, the output starts inside it (PROTOCOL 4).
        interleaved: it may open again later, and stray markers are swallowed (PROTOCOL 4).
        switches: request switches that decide where neither prompt nor model does: `chat_template_kwargs`
            keys whose truth says whether the model reasons, in order.
    """

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    opens_by_default: bool = False
    interleaved: bool = False
    switches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """How tool calls are written.

    Args:
        arguments: the argument syntax.
        entries: wrapper opener and call header together; a mention without a header is text.
        wrappers: wrapper openers that count alone, since no prose contains them.
        inner: call headers inside an open wrapper.
        bare: call headers without their wrapper; count only with a declared name.
        closers: what closes a call's frame or the wrapper, after the arguments.
        frames: spellings around a call inside the wrapper, after its arguments: swallowed.
        leftovers: spellings dropped with a notice right after the arguments.
        empty: an opener and its own closer with nothing between: removed.
        ends_reasoning: an opener with a plausible header and a declared name ends the reasoning.
        ids: the shape of derived call ids.
    """

    arguments: ArgumentSyntax
    entries: tuple[Pattern, ...] = ()
    wrappers: tuple[str, ...] = ()
    inner: tuple[Pattern, ...] = ()
    bare: tuple[Pattern, ...] = ()
    closers: tuple[Pattern, ...] = ()
    frames: tuple[Pattern, ...] = ()
    leftovers: tuple[str, ...] = ()
    empty: tuple[tuple[str, str], ...] = ()
    ends_reasoning: bool = False
    ids: IdStyle = "call"


@dataclass(frozen=True, slots=True, eq=False)
class Format:
    """One model format. Compared by identity: the registry hands out one of each.

    Args:
        name: canonical name.
        source: where the markers are documented, and when that was read.
        reasoning: None where the family marks none.
        tools: None where it writes no calls.
        swallowed: end-of-turn spellings and frames that belong to no field (PROTOCOL 3).
        turns: spellings that begin a turn in the rendered prompt (PROTOCOL 4).
        constraint: name of the builder in `constraint.py`, "" where there is none.
        models: models known to write it, for people.
    """

    name: str
    source: str
    reasoning: ReasoningSyntax | None = None
    tools: ToolSyntax | None = None
    swallowed: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    constraint: str = ""
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or not self.source:
            raise FormatDefinitionError(f"format {self.name!r}: name and source must not be empty")
        if self.reasoning is not None and not self.reasoning.ends:
            raise FormatDefinitionError(f"format {self.name!r}: reasoning without an end marker never ends")
        table(self)

    def markers(self) -> frozenset[str]:
        """Every literal that one of this format's terminals begins with."""
        rows = table(self)
        return frozenset(literal for _, pattern in rows for literal in first_literals(pattern))


def compose(reasoning: Format, tools: Format) -> Format:
    """The reasoning of one format with the tool calls of another: `qwen3+hermes`."""
    return replace(
        tools,
        name=f"{reasoning.name}+{tools.name}",
        source=f"{reasoning.source}; {tools.source}",
        reasoning=reasoning.reasoning,
        swallowed=tuple(dict.fromkeys((*reasoning.swallowed, *tools.swallowed))),
        turns=tuple(dict.fromkeys((*reasoning.turns, *tools.turns))),
        models=(),
    )


def table(format: Format, *, tools: bool = True, reasoned: bool = False) -> Table:
    """The format as the engine's table.

    Args:
        format: the format.
        tools: False leaves out all that concerns tool calls (no tools declared).
        reasoned: the first reasoning block has ended: families that do not interleave then take
            further markers as text.

    Raises:
        FormatDefinitionError: two rows of one state are the same terminal, or a terminal could
            match nothing; the message names format, state and terminal.
    """
    rows: dict[tuple[State, Pattern], Transition] = {}
    for state, pattern, transition in _rows(format, tools, reasoned):
        where = f"format {format.name!r}, state {state.value}, terminal {pattern}"
        if Attempt(pattern).step("", 0, final=True) >= 0:
            raise FormatDefinitionError(f"{where}: matches nothing at all")
        if rows.setdefault((state, pattern), transition) != transition:
            raise FormatDefinitionError(f"{where}: two transitions")
    return rows


def _rows(format: Format, tools: bool, reasoned: bool) -> Iterator[tuple[State, Pattern, Transition]]:
    reasoning = format.reasoning
    if reasoning is not None:
        for start in reasoning.starts:
            yield State.REASONING, (Lit(start),), Transition(State.REASONING, (Do.STRAY,))
        for end in reasoning.ends:
            yield State.REASONING, (Lit(end),), Transition(State.CONTENT, (Do.REASONING_END,))
        if reasoning.interleaved or not reasoned:
            opens = Transition(State.REASONING, (Do.REASONING_START,))
            for state in (State.CONTENT, State.TOOL_BETWEEN):
                for start in reasoning.starts:
                    yield state, (Lit(start),), opens
        if reasoning.interleaved:
            for end in reasoning.ends:
                yield State.CONTENT, (Lit(end),), Transition(State.CONTENT, (Do.STRAY,))
                yield State.TOOL_BETWEEN, (Lit(end),), Transition(State.TOOL_BETWEEN, (Do.STRAY,))
    for spelling in format.swallowed:
        for state in (State.CONTENT, State.REASONING, State.TOOL_BETWEEN):
            yield state, (Lit(spelling),), Transition(state)
    if tools and format.tools is not None:
        yield from _tool_rows(format.tools, with_reasoning=reasoning is not None)


def _tool_rows(syntax: ToolSyntax, with_reasoning: bool) -> Iterator[tuple[State, Pattern, Transition]]:
    arguments = syntax.arguments
    framed = Transition(State.TOOL_ARGS, (Do.OPEN_WRAPPER, Do.CALL), arguments=arguments)
    for state in (State.CONTENT, State.TOOL_BETWEEN):
        for opener, closer in syntax.empty:
            yield state, (Lit(opener), Blanks(), Lit(closer)), Transition(state)
        for entry in syntax.entries:
            yield state, entry, framed
        for wrapper in syntax.wrappers:
            yield state, (Lit(wrapper),), Transition(State.TOOL_BETWEEN, (Do.REMOVE, Do.OPEN_WRAPPER))
    for inner in syntax.inner:
        yield State.TOOL_BETWEEN, inner, Transition(State.TOOL_ARGS, (Do.CALL,), arguments=arguments)
    for bare in syntax.bare:
        recovered = Transition(State.TOOL_ARGS, (Do.RECOVERED_WRAPPER, Do.CALL), True, arguments)
        yield State.CONTENT, bare, recovered
        if bare not in syntax.inner:
            yield State.TOOL_BETWEEN, bare, recovered
    for pattern in syntax.closers:
        yield State.TOOL_BETWEEN, pattern, Transition(State.TOOL_BETWEEN, (Do.REMOVE, Do.CLOSE_WRAPPER))
    for frame in syntax.frames:
        yield State.TOOL_BETWEEN, frame, Transition(State.TOOL_BETWEEN, (Do.REMOVE, Do.CLOSE_CALL))
    for leftover in syntax.leftovers:
        yield State.TOOL_BETWEEN, here(leftover), Transition(State.TOOL_BETWEEN, (Do.STRAY,))
    if with_reasoning and syntax.ends_reasoning:
        declared = Transition(State.TOOL_ARGS, (Do.OPEN_WRAPPER, Do.CALL), True, arguments)
        for entry in syntax.entries:
            yield State.REASONING, entry, declared
        for wrapper in syntax.wrappers:
            for inner in syntax.inner:
                yield State.REASONING, (Lit(wrapper), Blanks(), *inner), declared
