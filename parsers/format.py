"""`Format`: how one family of models writes reasoning and tool calls, as data.

A format is a literal in `formats/`; this module says what may stand in it, checks it when it is
built, composes two of them, and turns one into the table that the engine walks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from .arguments import ArgumentSyntax
from .errors import FormatDefinitionError
from .header import HEADER_LIMIT, Attempt, Blanks, Lit, Pattern, first_literals, here
from .states import Do, MessageHeader, NameReader, State, Table, Transition

__all__ = ["Format", "IdStyle", "MessageSyntax", "Opener", "ReasoningSyntax", "ToolSyntax", "compose", "table"]

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
class Opener:
    """A call's header with an argument syntax of its own.

    Args:
        pattern: the header.
        arguments: how the arguments are written.
        wrapper: it opens a wrapper, whose closers and further calls may follow.
        read_name: makes name and id of the captured `header`; see `Transition`.
    """

    pattern: Pattern
    arguments: ArgumentSyntax
    wrapper: bool = True
    read_name: NameReader | None = None


Openers: TypeAlias = tuple[Pattern | Opener, ...]
"""Headers of calls: patterns that take the syntax's own arguments, or openers with theirs."""


@dataclass(frozen=True, slots=True)
class MessageSyntax:
    """Frames around whole messages, whose headers must be read (Harmony and kin).

    Args:
        headers: headers wherever text may stand; capture `header`.
        continued: headers whose beginning stands in the prompt: only where a message begins.
        ends: what ends a message.
        read: what a header means.
    """

    headers: tuple[Pattern, ...]
    continued: tuple[Pattern, ...]
    ends: tuple[str, ...]
    read: Callable[[str], MessageHeader]


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """How tool calls are written.

    Args:
        arguments: the argument syntax.
        entries: wrapper opener and call header together; a mention without a header is text.
        wrappers: wrapper openers that count alone, since no prose contains them.
        inner: call headers inside an open wrapper.
        bare: call headers without their wrapper; count only with a declared name.
        unmarked: call headers without any marker; count only where a message starts, after reasoning
            or after a call, and only with a declared name that comes soon (PROTOCOL 5).
        trusts_unmarked: such a header is no guess (forced decoding): any name, wherever it comes.
        closers: what closes a call's frame or the wrapper, after the arguments.
        frames: spellings around a call inside the wrapper, after its arguments: swallowed.
        leftovers: spellings dropped with a notice right after the arguments.
        empty: an opener and its own closer with nothing between: removed.
        ends_reasoning: an opener with a plausible header and a declared name ends the reasoning.
        ids: the shape of derived call ids.
    """

    arguments: ArgumentSyntax
    entries: Openers = ()
    wrappers: tuple[str, ...] = ()
    inner: Openers = ()
    bare: Openers = ()
    unmarked: Openers = ()
    trusts_unmarked: bool = False
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
        messages: frames around messages, None where there are none.
        swallowed: end-of-turn spellings and frames that belong to no field (PROTOCOL 3).
        begins: ordinary text that is removed where a message starts: what the prompt's end has begun.
        turns: spellings that begin a turn in the rendered prompt (PROTOCOL 4).
        prepend: text that content begins with, where it begins with text at all.
        constraint: name of the builder in `constraint.py`, "" where there is none.
        text_markers: its markers are ordinary text by nature: no tokenizer need have them as tokens.
        models: models known to write it, for people.
    """

    name: str
    source: str
    reasoning: ReasoningSyntax | None = None
    tools: ToolSyntax | None = None
    messages: MessageSyntax | None = None
    swallowed: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    prepend: str = ""
    constraint: str = ""
    text_markers: bool = False
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
        messages=tools.messages or reasoning.messages,
        swallowed=tuple(dict.fromkeys((*reasoning.swallowed, *tools.swallowed))),
        turns=tuple(dict.fromkeys((*reasoning.turns, *tools.turns))),
        text_markers=reasoning.text_markers or tools.text_markers,
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
    # A spelling that also means something where it stands means that; else it is removed.
    for state, spelling, transition in _removed(format):
        rows.setdefault((state, (Lit(spelling),)), transition)
    return rows


def _removed(format: Format) -> Iterator[tuple[State, str, Transition]]:
    """Spellings that belong to no field: stray ends of reasoning, ends of turn."""
    reasoning = format.reasoning
    if reasoning is not None and reasoning.interleaved:
        for state in (State.CONTENT, State.TOOL_BETWEEN):
            for end in reasoning.ends:
                yield state, end, Transition(state, (Do.STRAY,))
    for state in (State.CONTENT, State.REASONING, State.TOOL_BETWEEN):
        for spelling in format.swallowed:
            yield state, spelling, Transition(state)


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
    if format.messages is not None:
        arguments = format.tools.arguments if tools and format.tools is not None else None
        yield from _message_rows(format.messages, arguments)
    if tools and format.tools is not None:
        yield from _tool_rows(format.tools, with_reasoning=reasoning is not None)
    for spelling in format.begins:
        yield State.TOOL_BETWEEN, (Lit(spelling),), Transition(State.CONTENT, at_start=True)


def _message_rows(
    syntax: MessageSyntax, arguments: ArgumentSyntax | None
) -> Iterator[tuple[State, Pattern, Transition]]:
    begins = Transition(State.CONTENT, (Do.MESSAGE,), arguments=arguments, message=syntax.read)
    after_reasoning = replace(begins, do=(Do.REASONING_END, Do.MESSAGE))
    for header in syntax.headers:
        for state in (State.MESSAGE_HEADER, State.CONTENT, State.TOOL_BETWEEN):
            yield state, header, begins
        yield State.REASONING, header, after_reasoning
    for header in syntax.continued:
        yield State.MESSAGE_HEADER, header, begins
    for end in syntax.ends:
        for state in (State.MESSAGE_HEADER, State.CONTENT, State.TOOL_BETWEEN):
            yield state, (Lit(end),), Transition(State.MESSAGE_HEADER, (Do.REMOVE, Do.CLOSE_CALL))
        yield State.REASONING, (Lit(end),), Transition(State.MESSAGE_HEADER, (Do.REASONING_END,))


def _tool_rows(syntax: ToolSyntax, with_reasoning: bool) -> Iterator[tuple[State, Pattern, Transition]]:
    text_states = (State.CONTENT, State.TOOL_BETWEEN)
    for opener, closer in syntax.empty:
        for state in text_states:
            yield state, (Lit(opener), Blanks(), Lit(closer)), Transition(state)
    for pattern, transition in _calls(syntax.entries, syntax):
        for state in text_states:
            yield state, pattern, transition
    for wrapper in syntax.wrappers:
        for state in text_states:
            yield state, (Lit(wrapper),), Transition(State.TOOL_BETWEEN, (Do.REMOVE, Do.OPEN_WRAPPER))
    for pattern, transition in _calls(syntax.inner, syntax):
        yield State.TOOL_BETWEEN, pattern, replace(transition, do=(Do.CALL,))
    inner = {pattern for pattern, _ in _calls(syntax.inner, syntax)}
    for pattern, transition in _calls(syntax.bare, syntax):
        recovered = replace(transition, do=(Do.RECOVERED_WRAPPER, Do.CALL), declared=True)
        yield State.CONTENT, pattern, recovered
        if pattern not in inner:
            yield State.TOOL_BETWEEN, pattern, recovered
    for pattern, transition in _calls(syntax.unmarked, syntax):
        unmarked = replace(transition, at_start=True)
        if not syntax.trusts_unmarked:
            unmarked = replace(unmarked, declared=True, name_within=HEADER_LIMIT)
        for state in text_states:
            yield state, pattern, unmarked
    for pattern in syntax.closers:
        yield State.TOOL_BETWEEN, pattern, Transition(State.TOOL_BETWEEN, (Do.REMOVE, Do.CLOSE_WRAPPER))
    for frame in syntax.frames:
        yield State.TOOL_BETWEEN, frame, Transition(State.TOOL_BETWEEN, (Do.REMOVE, Do.CLOSE_CALL))
    for leftover in syntax.leftovers:
        yield State.TOOL_BETWEEN, here(leftover), Transition(State.TOOL_BETWEEN, (Do.STRAY,))
    if with_reasoning and syntax.ends_reasoning:
        for pattern, transition in _calls(syntax.entries, syntax):
            yield State.REASONING, pattern, replace(transition, declared=True)
        for wrapper in syntax.wrappers:
            for pattern, transition in _calls(syntax.inner, syntax):
                opened: Pattern = (Lit(wrapper), Blanks(), *pattern)
                yield State.REASONING, opened, replace(transition, do=(Do.OPEN_WRAPPER, Do.CALL), declared=True)


def _calls(openers: Openers, syntax: ToolSyntax) -> Iterator[tuple[Pattern, Transition]]:
    """The headers with a plain transition into their arguments."""
    for opener in openers:
        if not isinstance(opener, Opener):
            opener = Opener(opener, syntax.arguments)
        do = (Do.OPEN_WRAPPER, Do.CALL) if opener.wrapper else (Do.CALL,)
        yield opener.pattern, Transition(State.TOOL_ARGS, do, arguments=opener.arguments, read_name=opener.read_name)
