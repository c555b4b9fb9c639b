"""Does the configured format read what the chat template writes? A round trip at the model's load.

A turn with reasoning and two calls is rendered and parsed; what does not come back is a problem, told with the
spelling that differs and the format that would fit.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from .detect import detect
from .detect_markers import marker_literals, opening_markers
from .detect_reading import Reading, calls_of, shown
from .detect_turns import ANSWER, CALLS, PLAN, Call, Render, TemplateProbe, Turn
from .format import Format
from .formats import load_format

__all__ = ["SelfCheck", "self_check"]

_tags: Final = re.compile(r"<[^<>\s=]{1,60}[>=]?|\[/?[A-Z_]{2,40}\]").findall
"""What looks like a marker, for messages only."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What the round trip showed.

    Args:
        format: the format that was checked.
        problems: what did not come back, and which spelling differs; empty where all did.
        fits: the format that would fit, or None: nobody knows, or this one does.
        checked: what was rendered and compared: `calls`, `reasoning`.
    """

    format: str
    problems: tuple[str, ...]
    fits: str | None
    checked: tuple[str, ...]

    def __str__(self) -> str:
        if not self.problems:
            return f"format {self.format} reads back {' and '.join(self.checked) or 'all that the template writes'}"
        remedy = f"; format {self.fits} fits this template" if self.fits else "; no known format fits this template"
        return f"format {self.format} does not read what the chat template writes: {'; '.join(self.problems)}{remedy}"


def self_check(render: Render, format: Format | str, special_spellings: Collection[str] = ()) -> SelfCheck:
    """Render an assistant's turn with reasoning and two calls, parse it, compare.

    Args:
        render: the chat template.
        format: the configured format, or its name.
        special_spellings: spellings of the tokens that the tokenizer flags special.
    """
    if isinstance(format, str):
        format = load_format(format)
    reading = Reading(TemplateProbe(render), frozenset(special_spellings))
    problems, checked = [], []
    if reading.has_calls:
        checked.append("calls")
        problems += _call_problems(reading, format)
    if reading.has_reasoning:
        checked.append("reasoning")
        problems += _reasoning_problems(reading, format)
    fits = detect(render, special_spellings=special_spellings).format if problems else None
    return SelfCheck(format.name, tuple(problems), None if fits == format.name else fits, tuple(checked))


def _call_problems(reading: Reading, format: Format) -> list[str]:
    # Templates that take one call in a turn only are checked with one.
    what = next(name for name in ("two calls", "one call") if reading.turns[name] is not None)
    turn = reading.turns[what]
    assert turn is not None
    if not reading.reads_calls(format, what):
        return [_call_problem(reading, format, what, turn)]
    thoughtful = reading.probe.calls(what, plan=PLAN)
    if thoughtful is None or PLAN not in thoughtful.text or not reading.has_reasoning:
        return []
    message = reading.read(format, thoughtful)
    # Reasoning that is not read at all is a problem of its own.
    reasoned = (message.reasoning or "").strip() == PLAN or not reading.reads_reasoning(format)
    if calls_of(message) == list(CALLS[what]) and reasoned:
        return []
    read = f"{_names(calls_of(message))} after the reasoning {shown(message.reasoning or '')}"
    return [f"calls after reasoning are written {shown(thoughtful.text)} and read as {read}"]


def _call_problem(reading: Reading, format: Format, what: str, turn: Turn) -> str:
    """Which spelling differs: what stands before the first name, or what else."""
    written = turn.text.partition(CALLS[what][0][0])[0]
    markers = opening_markers(format)
    if markers and not any(marker.strip() in turn.text for marker in markers):
        return f"a call begins with {shown(written)}, the format's begins with {' or '.join(map(repr, markers))}"
    message = reading.read_call(format, turn)
    known = marker_literals(format)
    foreign = [tag for tag in dict.fromkeys(_tags(turn.text)) if not any(tag in marker for marker in known)]
    tells = f" (the format knows no {', '.join(map(repr, foreign[:3]))})" if foreign else ""
    return f"{what}, written {shown(turn.text)}, are read as {_names(calls_of(message))}{tells}"


def _reasoning_problems(reading: Reading, format: Format) -> list[str]:
    turn = reading.probe.reasoned
    assert turn is not None
    if reading.reads_reasoning(format):
        return []
    before, _, after = (turn.prompt[-80:] + turn.text).partition(PLAN)
    closer = after.partition(ANSWER)[0].strip()
    if format.reasoning is None and format.messages is None:
        return [f"reasoning ends with {closer!r}, the format has none"]
    ends = format.reasoning.ends if format.reasoning is not None else ()
    starts = format.reasoning.starts if format.reasoning is not None else ()
    if ends and closer not in ends:
        return [f"reasoning ends with {closer!r}, the format's ends with {' or '.join(map(repr, ends))}"]
    return [f"reasoning begins with {before[-40:]!r}, the format's begins with {' or '.join(map(repr, starts))}"]


def _names(calls: list[Call]) -> str:
    return ", ".join(name for name, _ in calls) or "no call"
