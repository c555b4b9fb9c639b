"""Formats from outside."""

from __future__ import annotations

from pathlib import Path

from ..errors import FormatDefinitionError


def load_file(path: Path) -> None:
    """Being written."""
    raise FormatDefinitionError(str(path))
