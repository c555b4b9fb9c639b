"""An oracle for accounting: what each character of a recorded output is for, and each token by its first sent one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tristream.parsers import ChatOptions, ChatStream, Delta, Message, MessageDelta, fold

from .parsing import case_options

__all__ = ["CALL", "CONTENT", "NOTHING", "REASONING", "Accounts", "Characters", "character_map", "open_options"]

CONTENT: Final = "c"
REASONING: Final = "r"
CALL: Final = "a"
NOTHING: Final = "."


@dataclass(frozen=True, slots=True)
class Accounts:
    """What a message must show of the tokens.

    Args:
        ids: all of them.
        content: ids of those whose first sent character is content.
        reasoning: the same of reasoning.
    """

    ids: list[int]
    content: list[int]
    reasoning: list[int]


@dataclass(frozen=True, slots=True)
class Characters:
    """An output, character by character.

    Args:
        channels: CONTENT, REASONING, CALL (from a call's name to its end) or NOTHING of each.
        sent: which delta sent it; blanks may be sent after what follows them in the output.
    """

    channels: str
    sent: Sequence[int]

    def spans(self, tokens: Sequence[Delta]) -> list[range]:
        """The places of each token's characters."""
        places = []
        at = 0
        for token in tokens:
            places.append(range(at, at + len(token.text)))
            at += len(token.text)
        assert at == len(self.channels)
        return places

    def accounts(self, tokens: Sequence[Delta]) -> Accounts:
        """What tokens must show."""
        whole = Accounts([], [], [])
        for token, span in zip(tokens, self.spans(tokens), strict=True):
            whole.ids.extend(token.token_ids)
            seen = [at for at in span if self.channels[at] in (CONTENT, REASONING)]
            if seen:
                first = min(seen, key=lambda at: (self.sent[at], at))
                (whole.content if self.channels[first] == CONTENT else whole.reasoning).extend(token.token_ids)
        return whole

    def unsure(self, tokens: Sequence[Delta]) -> set[int]:
        """Tokens that hold the end of a call and text after it: of the call something may be sent, or nothing."""
        found: set[int] = set()
        for token, span in zip(tokens, self.spans(tokens), strict=True):
            text = self.channels[span.start : span.stop].lstrip(NOTHING)
            if text.startswith(CALL) and (CONTENT in text or REASONING in text):
                found.update(token.token_ids)
        return found


def open_options(case: Mapping[str, Any], **members: Any) -> ChatOptions:
    """The options of a case, nothing hidden and everything shown."""
    shown = {"include_reasoning": True, "logprobs": True, "reasoning_logprobs": True, "return_token_ids": True}
    return case_options(case, **{**shown, **members})


def character_map(case: Mapping[str, Any]) -> Characters:
    """What each character of the case's output is for.

    Found by feeding the output in characters, each with its place as its log probability: a character has no inside,
    so there is nothing to divide. What it says must be the message's own text, character by character.
    """
    output = case["output"]
    stream = ChatStream(case["format"], open_options(case), case.get("prompt_tail"))
    channels = [NOTHING] * len(output)
    order = [-1] * len(output)
    sent: list[MessageDelta] = []
    inside = False
    for at, char in enumerate(output):
        outs = stream.feed(Delta(char, (at,), False, ({"at": at},)))
        sent += outs
        calls = [call for out in outs for call in out.tool_calls]
        channels[at] = CALL if inside or calls else NOTHING
        inside = (inside or bool(calls)) and not (calls and calls[-1].status)
    sent += stream.finish(case.get("finish") or "stop")
    for number, out in enumerate(sent):
        for mark, entries in ((CONTENT, out.logprobs), (REASONING, out.reasoning_logprobs)):
            for entry in entries:
                assert order[entry["at"]] < 0, f"{case['id']}: {entry} twice"
                order[entry["at"]] = number
                channels[entry["at"]] = mark
    _check(case, fold(sent), channels)
    return Characters("".join(channels), order)


def _check(case: Mapping[str, Any], message: Message, channels: Sequence[str]) -> None:
    for mark, text in ((CONTENT, message.content or ""), (REASONING, message.reasoning or "")):
        chars = "".join(char for char, channel in zip(case["output"], channels, strict=True) if channel == mark)
        # Some formats put text of their own before the content.
        assert text == chars or (mark == CONTENT and text.endswith(chars)), (case["id"], mark, chars)
