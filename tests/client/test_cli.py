"""The `tristream` command, without a server: parse, formats, replay, help, and wrong usage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tristream.client.cli import app
from tristream.parsers import format_names
from tristream.parsers.replay import chunkings

OUTPUT = 'hm</think>\n\nHi.<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def run(*arguments: str, stdin: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS), encoding="utf-8")
    return file


def test_parse_a_file(tools: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw.txt"
    raw.write_text(OUTPUT, encoding="utf-8")
    done = run("parse", str(raw), "-f", "qwen3+hermes", "--tools", str(tools), "--prompt-tail", "<think>\n")
    assert done.exit_code == 0
    message = json.loads(done.stdout)
    (call,) = message.pop("tool_calls")
    assert message == {"reasoning": "hm", "content": "Hi.", "finish_reason": "tool_calls"}
    assert (call["name"], call["arguments"], call["status"]) == ("f", '{"a": 1}', "complete")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_parse_in_pieces_folds_into_the_same(tools: Path, size: int) -> None:
    common = ["parse", "-f", "qwen3+hermes", "--tools", str(tools), "--prompt-tail", "<think>\n"]
    whole = json.loads(run(*common, stdin=OUTPUT).stdout)
    done = run(*common, "--stream", str(size), stdin=OUTPUT)
    deltas = [json.loads(line) for line in done.stdout.splitlines()]
    for field in ("reasoning", "content"):
        assert "".join(delta.get(field, "") for delta in deltas) == whole[field]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(call.get("arguments", "") for call in calls) == '{"a": 1}'
    assert deltas[-1]["finish_reason"] == "tool_calls"


def test_parse_options_and_cut_output(tools: Path) -> None:
    done = run("parse", "-f", "hermes", "--tools", str(tools), "--options", '{"tool_choice": "none"}', stdin=OUTPUT)
    assert json.loads(done.stdout)["tool_calls"] == []
    done = run("parse", "-f", "hermes", "--tools", str(tools), "--finish", "length", stdin=OUTPUT[:-30])
    message = json.loads(done.stdout)
    assert message["finish_reason"] == "length"
    assert message["tool_calls"][0]["status"] == "incomplete"


def test_line_ends_of_the_input_stay() -> None:
    assert json.loads(run("parse", stdin=b"a\r\nb\rc").stdout)["content"] == "a\r\nb\rc"


def test_one_bare_function_is_a_tool(tmp_path: Path) -> None:
    file = tmp_path / "tool.json"
    file.write_text('{"name": "f"}', encoding="utf-8")
    assert json.loads(run("parse", "-f", "hermes", "--tools", str(file), stdin=OUTPUT).stdout)["tool_calls"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-f", "nonsense"], "format: found 'nonsense'; allowed:"),
        (["absent.txt"], "absent.txt: No such file"),
        (["--options", "{"], "--options: no JSON"),
        (["--options", "[]"], "--options: found list"),
        (["--options", '{"tool_choice": 3}'], "tool_choice: found 3"),
        (["--tools", "absent.json"], "absent.json: No such file"),
    ],
)
def test_parse_says_what_is_wrong(arguments: list[str], said: str) -> None:
    done = run("parse", *arguments, stdin="x")
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_parse_bytes_that_are_no_utf8() -> None:
    done = run("parse", stdin=b"ab\xff")
    assert (done.exit_code, done.stderr) == (2, "error: stdin: byte 2 is not UTF-8; allowed: UTF-8 text\n")


@pytest.mark.parametrize("text", ["{\n\n]", "3", "[3]"])
def test_tools_that_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tools.json"
    file.write_text(text, encoding="utf-8")
    done = run("parse", "--tools", str(file), stdin="x")
    assert done.exit_code == 2
    assert str(file) in done.stderr
    assert ("line 3" in done.stderr) == ("\n" in text)


def test_formats() -> None:
    listed = json.loads(run("formats", "--json").stdout)
    assert tuple(entry["name"] for entry in listed) == format_names()
    assert all(entry["source"] for entry in listed)
    assert len({entry["wire"] for entry in listed}) >= 50, "formats whose terminals or argument syntax differ"
    plain = run("formats").stdout
    assert all(name in plain for name in format_names())


def test_one_format() -> None:
    shown = run("formats", "glm45").stdout
    assert "<arg_key>city</arg_key>" in shown
    assert "strings as they come" in shown
    told = json.loads(run("formats", "openai_gptoss", "--json").stdout)
    assert told["name"] == "gpt_oss"
    assert "openai" in told["aliases"]["tools"]
    composed = json.loads(run("formats", "qwen3+hermes", "--json").stdout)
    assert composed["reasoning"]["ends"] == ["</think>"]
    unknown = run("formats", "nonesuch")
    assert unknown.exit_code == 2
    assert "nonesuch" in unknown.stderr


def case(identifier: str, format_name: str = "hermes", content: str = "x", output: str = "x") -> str:
    expect: dict[str, Any] = {"reasoning": None, "content": content, "tool_calls": [], "finish_reason": "stop"}
    return json.dumps({"id": identifier, "format": format_name, "output": output, "expect": expect})


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    file = tmp_path / "cases.jsonl"
    lines = [
        case("good"),
        case("bad", content="y"),
        case("odd", "nonsense"),
        "",
        case("q", "qwen3"),
        case("u", "hermes", " ", " "),
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_replay_counts_and_shows_the_first_that_differs(cases: Path) -> None:
    done = run("replay", str(cases), "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["cases"], told["passed"]) == (5, 3)
    bad, odd = told["failed"]
    assert (bad["id"], bad["chunking"], bad["got"]["content"], bad["expected"]["content"]) == ("bad", "whole", "x", "y")
    assert odd["id"] == "odd"
    assert "nonsense" in str(odd["got"])
    plain = run("replay", str(cases))
    assert plain.exit_code == 1
    assert "✗ bad  whole" in plain.stdout
    assert "3 of 5 cases passed" in plain.stdout


def test_replay_keeps_the_formats_asked_for(cases: Path) -> None:
    told = json.loads(run("replay", str(cases), "--format", "qwen3,identity", "--json").stdout)
    assert told == {"cases": 1, "passed": 1, "failed": []}
    done = run("replay", str(cases), "--format", "nonsense", "--json")
    assert (done.exit_code, json.loads(done.stdout)["cases"]) == (1, 1)


def test_replay_several_files_and_stdin(cases: Path) -> None:
    done = run("replay", str(cases), "-", "--format", "qwen3", "--json", stdin=case("in", "qwen3"))
    assert (done.exit_code, json.loads(done.stdout)["cases"]) == (0, 2)


def test_replay_of_a_folder(cases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "one.jsonl").write_text(cases.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "notes.txt").write_text("no cases", encoding="utf-8")
    assert json.loads(run("replay", str(folder), "--json").stdout)["cases"] == 5
    done = run("replay", str(tmp_path / "vectors" / "deep" / ".."), "--format", "hermes")
    assert "cases passed" in done.stdout
    (tmp_path / "empty").mkdir()
    done = run("replay", str(tmp_path / "empty"))
    assert done.exit_code == 2
    assert "found no *.jsonl" in done.stderr


def test_replay_of_our_own_vectors(project: Path) -> None:
    formats = "qwen3,qwen3_coder,hermes,qwen3+hermes,deepseek_r1"
    done = run("replay", str(project / "tests" / "vectors" / "reported.jsonl"), "--format", formats, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["failed"]) == (0, [])
    assert told["cases"] == told["passed"] >= 30


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "line 2: no JSON"), ("[1]", "line 2: found list"), ("nul", "line 2: no JSON"), ("[" * 100_000, "line 2: ")],
)
def test_replay_names_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(f"{case('good')}\n{line}\n", encoding="utf-8")
    done = run("replay", str(file))
    assert done.exit_code == 2
    assert f"{file}, {said}" in done.stderr


@pytest.mark.parametrize("line", ["{}", '{"output": 3, "format": "hermes"}', '{"id": 3, "format": [], "output": "x"}'])
def test_a_case_of_any_shape_fails_by_itself(tmp_path: Path, line: str) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(f"{line}\n{case('good')}\n", encoding="utf-8")
    done = run("replay", str(file), "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["cases"], told["passed"]) == (1, 2, 1)
    done = run("replay", str(file))
    assert done.exit_code == 1
    assert "1 of 2 cases passed" in done.stdout


def test_every_chunking_is_run() -> None:
    names = {name for name, _ in chunkings("x" * 20)}
    assert {"whole", "size 1", "size 2", "size 3", "size 5", "size 16"} <= names
    assert len([name for name in names if name.startswith("cut")]) == 19


def test_help_lists_all_commands() -> None:
    done = run("--help")
    assert done.exit_code == 0
    for name in ("chat", "parse", "formats", "replay", "demo", "serve", "repo", "demo-model"):
        assert name in done.stdout


def test_a_mistyped_command_is_told_so() -> None:
    done = run("sreve")
    assert done.exit_code == 2
    assert "serve" in done.stderr


def test_without_the_backend_its_commands_say_what_is_missing() -> None:
    script = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "tristream.backend.cli":
            raise ModuleNotFoundError("No module named 'tokenizers'", name="tokenizers")
sys.meta_path.insert(0, Absent())
from tristream.client.cli import main
main()
"""

    def command(*arguments: str, stdin: str = "") -> Any:
        line = [sys.executable, "-c", script, *arguments]
        return subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    assert json.loads(command("parse", stdin="x").stdout)["content"] == "x"
    done = command("serve", "--http-port", "1")
    assert done.returncode == 2
    assert "tokenizers" in done.stderr
    assert "pip install 'tristream[server]'" in done.stderr
    assert "demo-model" in command("--help").stdout


def test_version() -> None:
    assert run("--version").stdout.startswith("tristream ")
