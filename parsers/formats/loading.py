"""Formats from outside: files, installed packages, a checkpoint's metadata. The one place with I/O in `parsers`.

- A TOML or JSON file (`load_file`): one format, or several under `formats`; `definition.py` says what may stand in it.
- The entry points `tristream.formats` of installed packages (`load_entry_point`): a `Format`, or a mapping as in a
  file, under the format's name. They are asked only for a name that nothing else has.
- Hugging Face's `response_template` in a checkpoint's tokenizer_config.json (`load_checkpoint`), which becomes the
  format `hf`.

What was loaded is known to `load_format` by its name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from ..errors import FormatDefinitionError
from ..format import Format
from .definition import define
from .registry import register_format
from .response_template import convert

__all__ = ["CHECKPOINT", "GROUP", "load_checkpoint", "load_entry_point", "load_file"]

GROUP: Final = "tristream.formats"
CHECKPOINT: Final = "hf"
"""Name of the format that a checkpoint describes, as in vLLM."""

MAX_BYTES: Final = 1024 * 1024
MAX_FORMATS: Final = 64


def load_file(path: Path) -> tuple[Format, ...]:
    """Load the formats of a file and make them known.

    Args:
        path: `.toml`, else JSON; one format, or a list of them under `formats`.

    Raises:
        FormatDefinitionError: the file cannot be read or used; names file, key, found and allowed.
    """
    text = _read(path)
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatDefinitionError(
            f"{path}: found no {path.suffix[1:] or 'JSON'} ({error}); allowed: a format"
        ) from None
    several = data.get("formats") if isinstance(data, Mapping) else None
    if several is None:
        described = [(data, str(path))]
    elif isinstance(several, list) and 0 < len(several) <= MAX_FORMATS and len(data) == 1:
        described = [(entry, f"{path}: formats[{number}]") for number, entry in enumerate(several)]
    else:
        raise FormatDefinitionError(
            f"{path}: found other keys, or no list; allowed: formats, 1 to {MAX_FORMATS} of them"
        )
    formats = tuple(define(entry, where) for entry, where in described)
    for format in formats:
        register_format(format)
    return formats


def load_entry_point(name: str) -> Format | None:
    """The format of that name that an installed package brings, or None.

    Raises:
        FormatDefinitionError: the package's format cannot be used.
    """
    found = _entry_points().get(name)
    if found is None:
        return None
    where = f"entry point {name!r} of {GROUP} ({found.value})"
    try:
        loaded = found.load()
    except Exception as error:  # a package raises what it likes
        raise FormatDefinitionError(f"{where}: found {type(error).__name__}: {error}; allowed: a Format") from error
    format = loaded if isinstance(loaded, Format) else define(loaded, where)
    if format.name != name:
        raise FormatDefinitionError(f"{where}: found a format named {format.name!r}; allowed: the entry point's name")
    return format


def load_checkpoint(folder: Path) -> Format | None:
    """Make the format known that a checkpoint's `response_template` describes; None where it has none.

    Args:
        folder: a Hugging Face folder with tokenizer_config.json.

    Raises:
        FormatDefinitionError: the metadata says what no format can.
    """
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    try:
        config = json.loads(_read(path, 16 * MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise FormatDefinitionError(f"{path}: found no JSON ({error}); allowed: a tokenizer's configuration") from None
    template = config.get("response_template") if isinstance(config, Mapping) else None
    if template is None:
        return None
    format = convert(template, CHECKPOINT, f"{path}: response_template")
    register_format(format)
    return format


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, EntryPoint]:
    """Once per process: what is installed does not change while a server runs."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _read(path: Path, most: int = MAX_BYTES) -> str:
    try:
        size = path.stat().st_size
        text: Any = path.read_text(encoding="utf-8") if size <= most else None
    except (OSError, UnicodeDecodeError) as error:
        raise FormatDefinitionError(f"{path}: found {error}; allowed: a file in UTF-8") from None
    if text is None:
        raise FormatDefinitionError(f"{path}: found {size} bytes; allowed: at most {most}")
    return str(text)
