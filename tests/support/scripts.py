"""Steps of `tests/model_repository/scripted_chat`, for the tests of the client."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["END", "fail", "say"]

END: Final[dict[str, Any]] = {"delta": {"finish_reason": "stop"}}


def say(text: str) -> dict[str, Any]:
    """Send this content."""
    return {"delta": {"content": text}}


def fail(text: str, code: str = "INTERNAL") -> dict[str, Any]:
    """End with a Triton error."""
    return {"error": text, "code": code}
