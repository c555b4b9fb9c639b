"""The `tristream` command.

chat              cli_chat.py      talk to a model on a server
parse             cli_parse.py     raw model output -> a message
formats           cli_formats.py   the formats that are known
replay            cli_replay.py    recorded outputs in every chunking
demo              demo.py          the two chats of `make run`
serve, repo, ...  tristream.backend.cli, loaded when one of them, or the help, is asked for
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from .cli_chat import chat
from .cli_formats import formats
from .cli_parse import parse_output
from .cli_replay import replay
from .cli_support import EXIT_STATUSES, EXIT_USAGE, complain, stdout
from .demo import demo

__all__ = ["app", "main"]

_BACKEND: Final = "tristream.backend.cli"
_BACKEND_COMMANDS: Final = ("serve", "repo", "demo-model")


class LazyGroup(TyperGroup):
    """The commands of this package, and behind them those of the backend, which are loaded on demand."""

    _complete = False

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, for the help."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command called `cmd_name`, or None."""
        if cmd_name not in self.commands:
            self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if self._complete:
            return
        self._complete = True
        try:
            group: Any = get_command(import_module(_BACKEND).app)
        except ImportError as error:
            group = get_command(_absent_backend(error))
        for name, command in group.commands.items():
            self.commands.setdefault(name, command)


def _absent_backend(error: ImportError) -> typer.Typer:
    """Stand-ins for the backend's commands where it cannot be loaded."""
    absent = typer.Typer()

    def explain() -> None:
        complain(
            f"this command needs {error.name or 'a package'}, which is missing; run: pip install 'tristream[server]'"
        )
        raise typer.Exit(EXIT_USAGE)

    for name in _BACKEND_COMMANDS:
        settings = {"allow_extra_args": True, "ignore_unknown_options": True}
        absent.command(name, help="Needs pip install 'tristream[server]'.", context_settings=settings)(explain)
    return absent


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="LLM streams as content, reasoning and tool calls: chat with a Triton server, parse and replay model output.",
)
app.command(epilog=EXIT_STATUSES)(chat)
app.command("parse")(parse_output)
app.command()(formats)
app.command()(replay)
app.command()(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            number = version("tristream")
        except PackageNotFoundError:
            number = "unknown (not installed)"
        stdout.print(f"tristream {number}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Entry point of the console script."""
    # gRPC's C core writes its own log to stderr, e.g. about a refused connection; we report that ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    app(prog_name="tristream")


if __name__ == "__main__":
    main()
