"""Which format does a chat template write? Found by rendering, and by reading back with the parser itself.

`detect` renders turns with calls and with reasoning (`detect_turns`), and lets every format parse them
(`detect_reading`). A format fits if it recovers exactly the calls, exactly the reasoning, and leaves nothing of
either in the content. Among those that fit evidence decides, in the order of `_Fit`. Formats are data here too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from .detect_markers import canonical, marker_literals, opening_markers
from .detect_reading import FIRST, Reading, prompt_state, shown
from .detect_turns import CALLS, QUESTION, Render, TemplateProbe
from .errors import FormatDefinitionError
from .format import Format, compose
from .formats import format_names, load_format, spelled

__all__ = ["Detection", "detect", "prompt_open"]


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found.

    Args:
        format: the format's name for `load_format`, or None: unknown.
        evidence: what was seen and what speaks for the format.
        because: why it is this one, or why none.
    """

    format: str | None
    evidence: tuple[str, ...]
    because: str

    def __str__(self) -> str:
        return f"{self.format or 'unknown'}, because {self.because}"


class _Fit(NamedTuple):
    """How well a format reads what the template writes; the first member that differs decides.

    Args:
        recovered: how many of the turns with calls come back exactly.
        answers: a plain answer comes back as content.
        clean: nothing had to be recovered on the way.
        canonical: the calls are in the format's own first form, no variant.
        turns: a spelling that begins the family's turns stands in the prompt.
        same_reasoning: the format has reasoning just where the template has.
        used: share of the format's markers that the template writes.
        default: a family that starts inside reasoning for a model that always reasons first, and no other.
        order: of what is left, the first in the registry.
    """

    recovered: int
    answers: bool
    clean: bool
    canonical: bool
    turns: bool
    same_reasoning: bool
    used: float
    default: bool
    order: int


_WORDS: Final = {
    "recovered": "the kinds of calls that come back",
    "answers": "a plain answer that stays content",
    "clean": "reading it without recovery",
    "canonical": "the call's own form",
    "turns": "the markers of turns",
    "same_reasoning": "having reasoning or none",
    "used": "the share of its markers that are written",
    "default": "where reasoning starts",
    "order": "order alone",
}


def detect(
    render: Render,
    formats: Iterable[Format] | None = None,
    special_spellings: Collection[str] = (),
    added_spellings: frozenset[str] = frozenset(),
) -> Detection:
    """Name the format that a chat template writes.

    Args:
        render: the template.
        formats: the candidates; None takes all of the registry.
        special_spellings: spellings of the tokens that the tokenizer flags special.
        added_spellings: spellings of all its added tokens: some formats' markers end as they say.
    """
    probe = TemplateProbe(render)
    if probe.plain is None:
        return Detection(None, (), "the template does not render a question and its answer")
    candidates = tuple(formats) if formats is not None else _registered(format_names(), added_spellings)
    reading = Reading(probe, frozenset(special_spellings))
    if not reading.has_calls and probe.declares_tools:
        return _from_instructions(reading, candidates)
    if not (reading.has_calls or reading.has_reasoning or any(map(reading.strips_reasoning, candidates))):
        return Detection("identity", (), "the template knows no tools, no calls and no reasoning")
    fitting = _fitting(reading, candidates)
    if not fitting:
        return Detection(None, reading.seen(), _why_none(reading, candidates))
    prompt = next(probe.prompts(), "")
    ranked = sorted(
        ((_fit(reading, format, prompt, order), format) for order, format in enumerate(fitting)),
        key=lambda pair: pair[0],
        reverse=True,
    )
    fit, format = ranked[0]
    return Detection(format.name, (*reading.seen(), *_evidence(reading, format, fit, prompt)), _because(ranked))


def _from_instructions(reading: Reading, candidates: Iterable[Format]) -> Detection:
    """The template writes no call, but it may tell the model which marker to write (Granite 3)."""
    probe = reading.probe
    plain = probe.text(QUESTION, prompt=True, tools=False) or ""
    declared = probe.text(QUESTION, prompt=True) or ""
    named = {
        format.name: marker
        for format in candidates
        if any(turn in declared for turn in format.turns)
        for marker in opening_markers(format)
        if marker in declared and marker not in plain
    }
    because = "the template declares tools to the model but writes no call"
    if len(named) != 1:
        several = f", and its instructions fit {', '.join(named)}" if named else ""
        return Detection(None, reading.seen(), because + several)
    (name, marker), *_ = named.items()
    evidence = (f"the instructions name {marker!r}", f"turns begin as in {name}")
    return Detection(name, evidence, f"{because}; its instructions name {marker!r}, and its turns are those of {name}")


def prompt_open(render: Render, format: Format | str, **switches: Any) -> bool | None:
    """Is reasoning open after the generation prompt?

    Args:
        render: the template.
        format: the format, or its name.
        switches: the template's variables.

    Returns:
        None where the prompt says nothing (the format's default holds), or the template refuses.
    """
    if isinstance(format, str):
        format = load_format(format)
    probe = TemplateProbe(render)
    before = probe.text(QUESTION, tools=False, **switches)
    prompt = probe.text(QUESTION, prompt=True, tools=False, **switches)
    if prompt is None:
        return None
    # Only what the generation prompt adds can have opened it; a question may speak of markers.
    added = prompt.removeprefix(before) if before else prompt
    return prompt_state(format, added)


@lru_cache(maxsize=4)
def _registered(names: tuple[str, ...], added: frozenset[str]) -> tuple[Format, ...]:
    """Of several names for the same data the one of the most models, or the longest."""
    found: dict[Any, Format] = {}
    for format in (load_format(spelled(name, added)) for name in names):
        data = format.reasoning, format.tools, format.messages, format.swallowed, format.turns, format.prepend
        if data not in found or _weight(format) > _weight(found[data]):
            found[data] = format
    return tuple(found.values())


def _weight(format: Format) -> tuple[int, int]:
    return len(format.models), len(format.name)


def _fitting(reading: Reading, candidates: Sequence[Format]) -> list[Format]:
    """The formats that read calls and reasoning; compositions where no family does both."""

    def fits(format: Format) -> bool:
        return (not reading.has_calls or reading.reads_calls(format)) and (
            not reading.has_reasoning or reading.reads_reasoning(format)
        )

    fitting = [format for format in candidates if fits(format)]
    if not reading.has_calls and not reading.has_reasoning:
        return [format for format in candidates if reading.strips_reasoning(format)]
    if fitting or not (reading.has_calls and reading.has_reasoning):
        return fitting
    callers = [format for format in candidates if format.messages is None and reading.reads_calls(format)]
    reasoners = [format for format in _reasoning_syntaxes(candidates) if reading.reads_reasoning(format)]
    composed = (_composed(left, right) for right in callers for left in reasoners)
    return [format for format in composed if format is not None and fits(format)]


def _composed(left: Format, right: Format) -> Format | None:
    """Both in one, or None where they mean different things by one marker."""
    try:
        return compose(left, right)
    except FormatDefinitionError:
        return None


def _reasoning_syntaxes(formats: Iterable[Format]) -> list[Format]:
    """One format of each reasoning syntax, the one with the shortest name."""
    longest_first = sorted(formats, key=lambda format: len(format.name), reverse=True)
    return list({format.reasoning: format for format in longest_first if format.reasoning is not None}.values())


def _fit(reading: Reading, format: Format, prompt: str, order: int) -> _Fit:
    probe = reading.probe
    turns = [turn for turn in (*reading.turns.values(), probe.reasoned, probe.plain) if turn is not None]
    text = prompt + "".join(turn.prompt + turn.text for turn in turns)
    markers = marker_literals(format)
    opens = format.reasoning is not None and format.reasoning.opens_by_default
    opened = prompt_state(format, prompt)
    knows = reading.has_reasoning or opened is not None or reading.strips_reasoning(format)
    return _Fit(
        recovered=sum(reading.reads_calls(format, what) for what in CALLS),
        answers=reading.reads_answer(format, prompt),
        clean=reading.reads_cleanly(format),
        canonical=not reading.has_calls or reading.reads_calls(canonical(format)),
        turns=any(spelling in text for spelling in format.turns),
        same_reasoning=knows == (format.reasoning is not None),
        used=sum(marker in text for marker in markers) / (len(markers) or 1),
        default=opens == reading.reasons(format),
        order=-order,
    )


def _evidence(reading: Reading, format: Format, fit: _Fit, prompt: str) -> tuple[str, ...]:
    lines = []
    if reading.has_calls:
        lines.append(f"{format.name} reads back {fit.recovered} of {len(CALLS)} kinds of calls exactly")
    if reading.has_reasoning:
        lines.append(f"{format.name} reads back the reasoning exactly")
    elif reading.strips_reasoning(format):
        lines.append(f"the template takes the reasoning of {format.name} out of the history")
    turns = [spelling for spelling in format.turns if spelling in prompt]
    if turns:
        lines.append(f"turns begin with {' or '.join(map(repr, turns))}")
    opened = prompt_state(format, prompt)
    if opened is not None:
        lines.append(f"the generation prompt {'opens' if opened else 'has ended'} the reasoning")
    return tuple(lines)


def _because(ranked: Sequence[tuple[_Fit, Format]]) -> str:
    best = ranked[0][0]
    if len(ranked) == 1:
        return "it alone reads back what the template writes"
    rival, other = ranked[1]
    what = next(name for name, left, right in zip(_Fit._fields, best, rival, strict=True) if left != right)
    return (
        f"it fits best of {len(ranked)} that read back what the template writes; before {other.name} by {_WORDS[what]}"
    )


def _why_none(reading: Reading, candidates: Iterable[Format]) -> str:
    """What keeps every format from fitting."""
    callers = [format.name for format in candidates if reading.has_calls and reading.reads_calls(format)]
    call, reasoned = reading.turns[FIRST], reading.probe.reasoned
    if call is not None and not callers:
        return f"no format reads back the call it writes as {shown(call.text)}"
    wrote = shown(reasoned.text if reasoned is not None else "")
    known = f"{', '.join(callers[:3])} read back its calls, but " if callers else ""
    return f"{known}no format reads back the reasoning it writes as {wrote}"
