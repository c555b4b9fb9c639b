"""Differential rendering: what a chat template writes for an assistant's turn, and where its prompt ends.

One conversation is rendered again and again, each time with one thing changed: with a call, with two, with
reasoning, with another reasoning switch. What is common to prompt and turn is the frame; the rest is what the
model was trained to write. Nothing here knows a format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

__all__ = ["ANSWER", "CALLS", "PLAN", "TOOLS", "Call", "Render", "TemplateProbe", "Turn"]

Call = tuple[str, Mapping[str, Any]]
"""A function's name and its arguments."""


class Render(Protocol):
    """A chat template. It may raise whatever it likes where it does not take a conversation."""

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **switches: Any,
    ) -> str:
        """The prompt's text."""
        ...


class Turn(NamedTuple):
    """An assistant's turn as the template writes it.

    Args:
        text: what the model would have generated, without the frame.
        prompt: all that stands before it.
        shorter: the text without markers at its end that end a plain answer too: of the turn, or of the call?
    """

    text: str
    prompt: str
    shorter: str = ""

    def variants(self) -> tuple[Turn, ...]:
        """The turn as it is, and without those markers."""
        return (self, Turn(self.shorter, self.prompt)) if self.shorter else (self,)


ANSWER: Final = "Sunny until noon."
PLAN: Final = "Weigh the options first."
OTHER_ANSWER: Final = "Rain by evening."
QUESTION: Final = {"role": "user", "content": "Which clothes for tomorrow?"}
FOLLOW_UP: Final = {"role": "user", "content": "And the day after?"}

_OBJECT: Final = {"type": "object", "properties": {"unit": {"type": "string"}, "hours": {"type": "array"}}}
_PROPERTIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "get_weather": {"city": {"type": "string"}, "days": {"type": "integer"}, "options": _OBJECT},
    "get_time": {"zone": {"type": "string"}},
}
TOOLS: Final = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The tool {name}.",
            "parameters": {"type": "object", "properties": properties, "required": []},
        },
    }
    for name, properties in _PROPERTIES.items()
)

CALLS: Final[Mapping[str, tuple[Call, ...]]] = {
    "one call": (("get_weather", {"city": "Oslo", "days": 3}),),
    "two calls": (("get_weather", {"city": "Oslo", "days": 3}), ("get_time", {"zone": "Europe/Oslo"})),
    "nested arguments": (("get_weather", {"city": "Oslo", "options": {"unit": "metric", "hours": [6, 18]}}),),
    # Framing shows here: a format that takes newlines for framing loses those that are data.
    "text with newlines and quotes": (("get_time", {"zone": '\n"Zürich" \\ {<b>}\n'}),),
}
"""What is rendered as calls; the first must be read back, the others tell formats apart."""

_REASONING_KEYS: Final = ("reasoning_content", "thinking", "reasoning")
_SWITCHES: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"enable_thinking": True, "thinking": True},
    {"enable_thinking": False, "thinking": False},
)


@dataclass(frozen=True)
class TemplateProbe:
    """One chat template under question. Its answers are found once each.

    Args:
        render: the template.
    """

    render: Render
    _cache: dict[str, str | None] = field(default_factory=dict)

    def text(
        self, *messages: Mapping[str, Any], prompt: bool = False, tools: bool = True, **switches: Any
    ) -> str | None:
        """The rendered conversation; None where the template refuses it."""
        key = json.dumps([messages, prompt, tools, switches], sort_keys=True)
        if key not in self._cache:
            declared = TOOLS if tools else None
            try:
                self._cache[key] = self.render(messages, tools=declared, add_generation_prompt=prompt, **switches)
            except Exception:  # noqa: BLE001 - a template is code, and refusing is an answer
                self._cache[key] = None
        return self._cache[key]

    @cached_property
    def base(self) -> str | None:
        """The question alone."""
        return self.text(QUESTION)

    @cached_property
    def declares_tools(self) -> bool:
        """Do declared tools change the prompt?"""
        return self.text(QUESTION, prompt=True) != self.text(QUESTION, prompt=True, tools=False)

    def prompts(self) -> Iterator[str]:
        """The question with the generation prompt: as it comes, reasoning switched on, switched off."""
        for switches in _SWITCHES:
            text = self.text(QUESTION, prompt=True, **switches)
            if text is not None:
                yield text

    @cached_property
    def plain(self) -> Turn | None:
        """An answer in words."""
        return self._turn({"role": "assistant", "content": ANSWER}, ANSWER)

    @cached_property
    def _trailer(self) -> str:
        """What ends a turn, seen after two different answers."""
        ends = set()
        for answer in (ANSWER, OTHER_ANSWER):
            text = self.text(QUESTION, {"role": "assistant", "content": answer})
            ends.add("" if text is None or answer not in text else text.rpartition(answer)[2])
        return ends.pop() if len(ends) == 1 else ""

    @cached_property
    def _header(self) -> str:
        """All that stands before an answer in words."""
        text = self.text(QUESTION, {"role": "assistant", "content": ANSWER})
        return "" if text is None or ANSWER not in text else text.partition(ANSWER)[0]

    @cached_property
    def _call_form(self) -> tuple[Any, bool] | None:
        """How the template wants a call: the message's content (empty, or none), arguments as objects or as text."""
        calls = CALLS["one call"]
        best: tuple[Any, bool] | None = None
        for content in ("", None):
            for as_object in (True, False):
                text = self.text(QUESTION, _call_message(calls, content, as_object))
                if text is None or self.base is None or "get_weather" not in text.removeprefix(self.base):
                    continue
                # Python's spelling of an object, or JSON text quoted once more, is no form that was meant.
                if "Oslo" in text and "{'city'" not in text and '\\"city' not in text:
                    return content, as_object
                best = best or (content, as_object)
        return best

    def calls(self, what: str, content: str = "", plan: str = "") -> Turn | None:
        """A turn with the calls of that name in CALLS; None where the template writes none."""
        if self._call_form is None:
            return None
        empty, as_object = self._call_form
        message = _call_message(CALLS[what], content or empty, as_object)
        # Some templates take one call in a turn and pass over a second.
        return self._turn({**message, **_reasoned(plan)}, *(name for name, _ in CALLS[what]))

    @cached_property
    def reasoned(self) -> Turn | None:
        """A turn with reasoning and an answer; None where the template writes no reasoning."""
        parts = [{"type": "thinking", "thinking": PLAN}, {"type": "text", "text": ANSWER}]
        forms: list[Mapping[str, Any]] = [{"content": ANSWER, **_reasoned(PLAN)}, {"content": parts}]
        forms += [{"content": ANSWER, key: PLAN} for key in _REASONING_KEYS]
        for form in forms:
            turn = self._turn({"role": "assistant", **form}, PLAN)
            if turn is not None and turn.text.count(PLAN) == 1 and "'thinking'" not in turn.text:
                return turn
        return None

    def strips(self, start: str, end: str) -> bool:
        """Does the template take reasoning between these markers out of an answer in the history?"""
        content = f"{start}{PLAN}{end}\n\n{ANSWER}"
        message = {"role": "assistant", "content": content}
        for messages in ((QUESTION, message, FOLLOW_UP), (QUESTION, message)):
            text = self.text(*messages)
            if text is not None and ANSWER in text and PLAN not in text and end not in text.partition(ANSWER)[2]:
                return True
        return False

    def _turn(self, message: Mapping[str, Any], *must_have: str) -> Turn | None:
        """The assistant's message as rendered, cut out of its frame.

        The frame is the generation prompt where the turn goes on with one; else what the turn shares with a prompt
        and with a plain answer, up to the end of a marker or line.
        """
        whole, base = self.text(QUESTION, message), self.base
        if whole is None or base is None:
            return None
        start = _common(base, whole)
        written = whole[start:]
        if not all(piece in written for piece in must_have):
            return None
        heads = [prompt[start:] for prompt in self.prompts()]
        whole_heads = [len(head) for head in heads if written.startswith(head)]
        if whole_heads:
            longest = max(whole_heads)
        else:
            heads.append(self._header[start:])
            longest = max(_back_to_edge(head[: _common(head, written)]) for head in heads)
        text, shorter = _without_trailer(written[longest:], self._trailer)
        return Turn(text, whole[: start + longest], shorter)


def _call_message(calls: Sequence[Call], content: Any, as_object: bool) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": f"call0000{number}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": dict(arguments) if as_object else json.dumps(arguments, ensure_ascii=False),
                },
            }
            for number, (name, arguments) in enumerate(calls)
        ],
    }


def _reasoned(plan: str) -> dict[str, Any]:
    """The reasoning under all the names that templates read; one of them is taken."""
    return dict.fromkeys(_REASONING_KEYS, plan) if plan else {}


def _common(left: str, right: str) -> int:
    """Length of the common beginning."""
    size = min(len(left), len(right))
    return next((at for at in range(size) if left[at] != right[at]), size)


def _back_to_edge(text: str) -> int:
    """Length up to the last end of a marker or line: never half a marker."""
    return max(text.rfind(edge) for edge in ("\n", ">", "]")) + 1


def _without_trailer(text: str, trailer: str) -> tuple[str, str]:
    """The turn without what ends every turn; and, where only a part of that ends it, without this part."""
    if not trailer.strip():
        return text, ""
    if text.endswith(trailer):
        return text.removesuffix(trailer), ""
    for start in range(1, len(trailer)):
        part = trailer[start:]
        if part[0] in "<[\n" and part.strip() and text.endswith(part):
            return text, text.removesuffix(part)
    return text, ""
