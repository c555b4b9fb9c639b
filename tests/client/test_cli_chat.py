"""`tristream chat` against a real server: as a process, in a pipe and on a terminal."""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.scripts import END, fail, say

pytestmark = pytest.mark.server

COMMAND = [sys.executable, "-m", "tristream.client.cli", "chat"]
CALL = {"index": 0, "id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}', "status": "complete"}
ANSWER = [
    {"delta": {"reasoning": "The user asks."}},
    say("Let me look."),
    {"delta": {"tool_calls": [CALL]}},
    {"delta": {"finish_reason": "tool_calls", "usage": {"prompt_tokens": 5, "completion_tokens": 7}}},
]


def settings(scripted: Any, script: list[Any], tag: str = "") -> list[str]:
    """Options that send a script along."""
    members = {"script": script, "tag": tag, "journal": str(scripted.journal)}
    fields = [option for name, value in members.items() for option in ("--set", f"{name}={json.dumps(value)}")]
    return ["--url", scripted.url, "--model", scripted.model, *fields]


def chat(scripted: Any, script: list[Any], *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *settings(scripted, script), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_in_a_pipe(scripted: Any) -> None:
    done = chat(scripted, ANSWER, "hi")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        '│ The user asks.\n\nLet me look.\n\n→ get_weather  call_1\n  {"city": "Paris"}  ✓\n\n'
        "tool_calls · 5 prompt tokens · 7 completion tokens"
    )
    assert "\x1b" not in done.stdout


def test_as_json(scripted: Any) -> None:
    done = chat(scripted, ANSWER, "--json", stdin="hi")
    deltas = [json.loads(line) for line in done.stdout.splitlines()]
    assert deltas == [
        {"reasoning": "The user asks."},
        {"content": "Let me look."},
        {"tool_calls": [CALL]},
        {"finish_reason": "tool_calls", "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}},
    ]


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ([fail("messages: found nothing", "INVALID_ARG")], 4, "refused the request: messages: found nothing"),
        ([say("so far"), fail("bang")], 5, "broke off after 1 deltas: bang"),
        ([say("so far"), {"delta": {"finish_reason": "error"}}], 5, ""),
    ],
)
def test_failures_have_a_status_and_a_line(scripted: Any, script: list[Any], status: int, said: str) -> None:
    done = chat(scripted, script, "hi")
    assert done.returncode == status
    assert said in done.stderr
    assert ("so far" in done.stdout) == (len(script) > 1)
    assert "Traceback" not in done.stderr


def test_no_server_no_model_no_time(scripted: Any) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)

    done = command("--url", "127.0.0.1:1", "hi")
    assert done.returncode == 3
    assert re.fullmatch(r"error: no Triton server reached at 127.0.0.1:1 .*\n", done.stderr)
    done = command("--url", scripted.url, "--model", "absent", "hi")
    assert (done.returncode, "'absent'" in done.stderr) == (3, True)
    done = chat(scripted, [{"sleep": 20.0}, END], "--timeout", "0.3", "hi")
    assert (done.returncode, "within 0.3 s" in done.stderr) == (6, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--url", "http://localhost:8000"], "the client speaks gRPC"),
        (["--tools", "absent.json"], "absent.json: No such file"),
        (["--header", "nonsense"], "--header: found 'nonsense'"),
        (["--set", "nonsense"], "--set: found 'nonsense'"),
        (["--max-tokens", "many"], "--max-tokens"),
        (["--timeout", "0"], "--timeout"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    done = subprocess.run([*COMMAND, *arguments, "hi"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr


def test_what_is_sent(scripted: Any, tmp_path: Path) -> None:
    """The options as the server gets them: the model's journal cannot tell, so the request itself does."""
    from tristream.client import cli_chat

    sent: list[dict[str, Any]] = []

    class Client:
        def __init__(self, endpoint: Any, **_options: Any) -> None:
            self.endpoint = endpoint

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_error: object) -> None:
            pass

        def stream(self, body: dict[str, Any], *, model: str) -> Any:
            sent.append({**body, "model": model, "headers": self.endpoint.headers})
            raise KeyboardInterrupt

    tools = tmp_path / "tools.json"
    tools.write_text('{"tools": [{"name": "f"}]}', encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli_chat, "ChatClient", Client)
        from typer.testing import CliRunner

        from tristream.client.cli import app

        line = (
            f"chat hi --model chat_direct --system be-brief --tools {tools} --tool-choice f --max-tokens 9 "
            "--temperature 0 --seed 3 --format hermes --no-think --no-reasoning --set n=2 --set user=me "
            "--header authorization=x=y"
        )
        assert CliRunner().invoke(app, line.split()).exit_code == 130
    assert sent == [
        {
            "messages": [{"role": "system", "content": "be-brief"}, {"role": "user", "content": "hi"}],
            "model": "chat_direct",
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "max_tokens": 9,
            "temperature": 0.0,
            "seed": 3,
            "format": "hermes",
            "chat_template_kwargs": {"enable_thinking": False},
            "include_reasoning": False,
            "n": 2,
            "user": "me",
            "headers": {"authorization": "x=y"},
        }
    ]


@contextmanager
def terminal(arguments: list[str]) -> Iterator[Terminal]:
    """The command on a terminal of its own."""
    pid, handle = pty.fork()
    if pid == 0:  # pragma: no cover
        os.environ.update({"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"})
        os.execv(COMMAND[0], [*COMMAND, *arguments])
    try:
        yield Terminal(pid, handle)
    finally:
        os.close(handle)
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


class Terminal:
    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self.handle = handle
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def wait_for(self, text: str, seconds: float = 30.0) -> None:
        until = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < until, f"no {text!r} in {self.text!r}"
            if select.select([self.handle], [], [], 0.1)[0]:
                self.text += self._read()

    def send(self, text: str) -> None:
        self.text = ""
        os.write(self.handle, text.encode())

    def status(self) -> int:
        """Read to the end; the exit status."""
        with suppress(OSError):  # the other end is closed
            while data := os.read(self.handle, 65536):
                self.text += self._decoder.decode(data)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> str:
        return self._decoder.decode(os.read(self.handle, 65536))


def test_ctrl_c_cancels_on_the_server(scripted: Any) -> None:
    script = [say("so far"), {"sleep": 30.0}, END]
    with terminal([*settings(scripted, script, "ctrl-c"), "hi"]) as screen:
        screen.wait_for("so far")
        screen.send("\x03")
        assert screen.status() == 130
        assert "cancelled" in screen.text
        assert "Traceback" not in screen.text
    assert [entry["end"] for entry in scripted.ended("ctrl-c")] == ["cancelled"]


def test_a_conversation(scripted: Any) -> None:
    with terminal(settings(scripted, [say("Hello."), END])) as screen:
        screen.wait_for("› ")
        screen.send("hi\r")
        screen.wait_for("› ")
        assert "Hello." in screen.text
        screen.send("again\r")
        screen.wait_for("› ")
        assert "Hello." in screen.text
        screen.send("\x04")
        assert screen.status() == 0


def test_a_conversation_survives_ctrl_c_and_errors(scripted: Any) -> None:
    script = [{"busy": 99}, END]
    with terminal(settings(scripted, script, "terminal busy")) as screen:
        screen.wait_for("› ")
        screen.send("\x03")
        screen.wait_for("› ")
        screen.send("hi\r")
        screen.wait_for("takes no new stream now")
        screen.wait_for("› ")
        screen.send("\x04")
        assert screen.status() == 0


def test_calls_are_answered_by_hand(scripted: Any) -> None:
    with terminal(settings(scripted, ANSWER)) as screen:
        screen.wait_for("› ")
        screen.send("weather?\r")
        screen.wait_for("result of get_weather › ")
        assert "\x1b[2m" in screen.text  # dim
        screen.send("sunny\r")
        screen.wait_for("result of get_weather › ")
        screen.send("\x03")
        screen.wait_for("result of get_weather › ")
