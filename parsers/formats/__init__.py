"""The formats, one module per family, and the registry that loads them by name."""

from __future__ import annotations

from .registry import forced_form, format_names, load_format, spelled

__all__ = ["forced_form", "format_names", "load_format", "spelled"]
