"""What the commands share: consoles, exit statuses, and errors as one line on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.text import Text

from tristream.parsers import RequestError, TristreamError, UsageError

from .errors import ChatError, DeadlineExceeded, ModelNotReady, RequestRefused, ServerBusy, ServerUnreachable
from .livetext import visible

__all__ = [
    "EXIT_BROKEN",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_STATUSES",
    "InputError",
    "complain",
    "exit_status",
    "read_json",
    "read_text",
    "read_tools",
    "reported",
    "stderr",
    "stdout",
]

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_REFUSED: Final = 4
EXIT_BROKEN: Final = 5
EXIT_DEADLINE: Final = 6
EXIT_INTERRUPTED: Final = 130

EXIT_STATUSES: Final = (
    "Exit status: 0 the whole answer; 2 wrong usage; 3 no server, no such model, or no room; 4 request refused; "
    "5 the answer broke off; 6 a deadline passed; 130 Ctrl-C."
)

stdout: Final = Console(highlight=False)
stderr: Final = Console(stderr=True, highlight=False)


class InputError(TristreamError, ValueError):
    """A file or an option of the command line that cannot be used."""


def exit_status(error: TristreamError) -> int:
    """The exit status for an error."""
    match error:
        case ServerUnreachable() | ModelNotReady() | ServerBusy():
            return EXIT_UNREACHABLE
        case RequestRefused():
            return EXIT_REFUSED
        case DeadlineExceeded():
            return EXIT_DEADLINE
        case ChatError():
            return EXIT_BROKEN
        case RequestError() | UsageError() | InputError():
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


def complain(error: Exception | str) -> None:
    """An error as one line on stderr."""
    stderr.print(Text.assemble(("error: ", "bold red"), visible(str(error))), soft_wrap=not stderr.is_terminal)


@contextmanager
def reported() -> Iterator[None]:
    """Errors of ours end the command with a line and a status; Ctrl-C with 130."""
    try:
        yield
    except TristreamError as error:
        complain(error)
        raise typer.Exit(exit_status(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def read_text(file: Path | None) -> str:
    """The text of a file, or of stdin where the file is None or `-`; line ends stay as they are.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    name = "stdin" if file is None or str(file) == "-" else str(file)
    try:
        raw = typer.get_binary_stream("stdin").read() if name == "stdin" or file is None else file.read_bytes()
        return raw.decode("utf-8")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: byte {error.start} is not UTF-8; allowed: UTF-8 text") from None


def read_json(file: Path) -> Any:
    """The JSON value in a file.

    Raises:
        InputError: it cannot be read, or holds no JSON; names file and line.
    """
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise InputError(f"{file}, line {error.lineno}: no JSON ({error.msg} at column {error.colno})") from None


def read_tools(file: Path) -> list[Any]:
    """The `tools` of a request from a file: a list of them, an object with `tools`, or bare functions.

    Raises:
        InputError: the file holds neither.
    """
    value = read_json(file)
    tools = value.get("tools", [value]) if isinstance(value, Mapping) else value
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        raise InputError(
            f"{file}: found {type(value).__name__}; allowed: a JSON list of tools, or an object with `tools`"
        )
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]
