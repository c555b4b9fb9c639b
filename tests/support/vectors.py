"""Recorded cases as requests to a server whose LLM is `replay_llm`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tristream.parsers import Message
from tristream.parsers.replay import expectation, outcome

__all__ = ["CASES_FILE", "cases", "chat_body", "difference", "replay_body"]

CASES_FILE: Final = Path(__file__).parents[1] / "vectors" / "reported.jsonl"

# What the replay decides itself; a server would cut a recorded answer a second time.
_NOT_SENT: Final = ("max_tokens", "stop", "response_format")


@cache
def cases(*formats: str) -> tuple[dict[str, Any], ...]:
    """The cases of these formats."""
    found = [json.loads(line) for line in CASES_FILE.read_text(encoding="utf-8").splitlines()]
    return tuple(case for case in found if case["format"] in formats)


def chat_body(directive: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """A request whose answer is what `directive` says (tests/model_repository/replay_llm/1/model.py)."""
    content = f"Say it again, please.\nreplay:{json.dumps(directive)}"
    return {"messages": [{"role": "user", "content": content}], **members}


def replay_body(case: Mapping[str, Any], **directive: Any) -> dict[str, Any]:
    """The request of a case, answered with its output."""
    members = {name: value for name, value in (case.get("options") or {}).items() if name not in _NOT_SENT}
    switches = {**members.pop("chat_template_kwargs", {}), "prompt_tail": case.get("prompt_tail") or ""}
    if case.get("tools"):
        members["tools"] = case["tools"]
    return chat_body({"case": case["id"], **directive}, format=case["format"], chat_template_kwargs=switches, **members)


def difference(case: Mapping[str, Any], message: Message) -> Any:
    """None where the message is what the case expects; else what came."""
    got = outcome(message)
    accepted: Sequence[Mapping[str, Any]] = expectation(case)
    return None if any(_plain(case, got, wanted) == _plain(case, wanted, wanted) for wanted in accepted) else got


def _plain(case: Mapping[str, Any], value: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """One form for values that a case calls equal; as JSON text, where 1, 1.0 and true are three."""
    calls = value["tool_calls"]
    if not wanted["tool_calls"]:
        calls = [call for call in calls if call["arguments"] is not None]
    texts = [value[name] or "" for name in ("reasoning", "content")]
    if case.get("compare") == "strip":
        texts = [text.strip() for text in texts]
    return json.dumps([texts, calls, value["finish_reason"]], sort_keys=True)
