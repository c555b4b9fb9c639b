"""What the files beside a tokenizer say of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

__all__ = ["added_bos", "context_length", "end_ids"]

NO_LENGTH: Final = 10**9
"""tokenizer_config.json writes 10^30 where there is no `model_max_length`."""

END_FILES: Final = ("generation_config.json", "config.json")
"""Where `eos_token_id` stands, a number or a list; the first that has one counts."""


def end_ids(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """Ids of the tokens that end an answer: of generation_config.json, else config.json, else the tokenizer's one."""
    for name in END_FILES:
        found = _object(folder / name).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        if ids and all(type(each) is int for each in ids):
            return tuple(ids)
    number = tokenizer.eos_token_id
    return () if number is None else (number,)


def context_length(folder: Path, tokenizer: Any) -> int | None:
    """The model's context in tokens: of config.json, else the tokenizer's length; None where nobody says."""
    config = _object(folder / "config.json")
    for part in (config, config.get("text_config") or {}):
        length = part.get("max_position_embeddings")
        if isinstance(length, int) and length > 0:
            return length
    length = tokenizer.model_max_length
    return int(length) if length < NO_LENGTH else None


def added_bos(tokenizer: Any) -> str:
    """The token that begins every text if the tokenizer is asked for special tokens; "" where none does.

    Backends that take text ask for them, and a rendered chat template has begun with it already.
    """
    ids = tokenizer("a")["input_ids"]
    begins = bool(ids) and ids[0] == tokenizer.bos_token_id
    return str(tokenizer.bos_token) if begins else ""


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
