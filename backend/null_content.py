"""Chat templates that write an assistant's calls only where its `content` is none, as DeepSeek V3's own does.

transformers drops members that are None before it renders, and with the empty string such a template forgets the
calls. Two things mend that: a prelude gives the template the `none` that it asks for, and a turn with text *and*
calls is handed over as two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

__all__ = ["PRELUDE", "without_content"]

PRELUDE: Final = (
    "{%- set all = namespace(messages=[]) -%}"
    "{%- for message in messages -%}"
    "{%- if 'content' not in message -%}{%- set message = dict(message, content=none) -%}{%- endif -%}"
    "{%- set all.messages = all.messages + [message] -%}"
    "{%- endfor -%}"
    "{%- set messages = all.messages -%}"
)
"""Stands before the template: what has no `content` gets one that is none."""


def without_content(conversation: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The conversation with no turn that has both calls and content."""
    for message in conversation:
        if not message.get("tool_calls"):
            yield message
            continue
        calls = {name: value for name, value in message.items() if name != "content"}
        if message.get("content"):
            yield {name: value for name, value in message.items() if name != "tool_calls"}
            calls.pop("reasoning_content", None)
        yield calls
