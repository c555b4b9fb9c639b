"""`tristream replay`: recorded outputs in every chunking; each must give the message it expects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from tristream.parsers.replay import CaseResult, run_case

from .cli_support import EXIT_FAILED, InputError, read_text, reported, stderr, stdout
from .livetext import visible

__all__ = ["read_cases", "replay"]


def replay(
    files: Annotated[
        list[Path], typer.Argument(help="Files with one case per line (JSON), or folders of *.jsonl; - is stdin.")
    ],
    formats: Annotated[
        str | None, typer.Option("--format", metavar="A,B", help="Keep only the cases of these formats.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay recorded outputs in every chunking, and show the first chunking of a case that differs.

    A case holds `output`, `format`, `expect` and, as needed, `tools`, `options`, `prompt_tail`, `finish`. Exit
    status 1 if any case failed.
    """
    with reported():
        cases = list(read_cases(files))
        if formats is not None:
            kept = {name.strip() for name in formats.split(",")} - {""}
            cases = [case for case in cases if str(case.get("format")) in kept]
        failed = [result for result in _run(cases) if not result.passed]
        if as_json:
            typer.echo(json.dumps(_summary(len(cases), failed), ensure_ascii=False))
        else:
            _show(len(cases), failed)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def read_cases(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The cases of all files, in order; blank lines are skipped. A case without `id` is named by its place.

    Raises:
        InputError: a file cannot be read, or a line holds no JSON object; names file and line.
    """
    for file in _expanded(files):
        # Not splitlines: JSON strings may hold other line ends than \n as they are.
        for number, line in enumerate(read_text(file).split("\n"), 1):
            if not line.strip():
                continue
            where = f"{file}, line {number}"
            try:
                case = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{where}: no JSON ({error.msg} at column {error.colno})") from None
            except RecursionError:
                raise InputError(f"{where}: JSON nested too deep") from None
            if not isinstance(case, dict):
                raise InputError(f"{where}: found {type(case).__name__}; allowed: a JSON object, one case per line")
            yield {"id": where, **case}


def _expanded(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob("*.jsonl"))
            if not found:
                raise InputError(f"{path}: found no *.jsonl in the folder; allowed: a folder of cases")
            yield from found
        else:
            yield path


def _run(cases: Sequence[dict[str, Any]]) -> Iterator[CaseResult]:
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TextColumn("[dim]{task.description}"))
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("", total=len(cases))
        for case in cases:
            progress.update(task, description=visible(str(case["id"])))
            yield _run_one(case)
            progress.advance(task)


def _run_one(case: dict[str, Any]) -> CaseResult:
    try:
        return run_case(case)
    except Exception as error:  # noqa: BLE001 (a case of any shape fails by itself, and the others run)
        expected = case.get("expect")
        return CaseResult(str(case["id"]), False, None, f"{type(error).__name__}: {error}", expected)


def _summary(count: int, failed: Sequence[CaseResult]) -> dict[str, Any]:
    return {
        "cases": count,
        "passed": count - len(failed),
        "failed": [
            {"id": result.id, "chunking": result.chunking, "got": result.got, "expected": result.expected}
            for result in failed
        ],
    }


def _show(count: int, failed: Sequence[CaseResult]) -> None:
    for result in failed:
        stdout.print(Text.assemble(("✗ ", "red"), (visible(result.id), "bold"), f"  {result.chunking or ''}"))
        for name, value in (("expected", result.expected), ("got", result.got)):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            stdout.print(Text.assemble((f"  {name:<9}", "dim"), visible(text)), soft_wrap=True)
    style = "red" if failed else "green"
    line = f"{count - len(failed)} of {count} cases passed in every chunking"
    stdout.print(Text(line, style if count else "yellow"))
