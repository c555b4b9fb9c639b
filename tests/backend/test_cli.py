"""The commands `repo write`, `demo-model`, and what `serve` settles before it starts a server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tristream.backend import cli
from tristream.backend.deploy.repository import MODEL_VARIABLE, model_names
from tristream.backend.deploy.server import ServerError, choose_port

CONFIG = 'backend: "python"\nparameters { key: "model" value { string_value: "${TRISTREAM_MODEL}" } }\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for name in ("llm", "other"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
    return folder


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    return result.exit_code, result.stderr


def test_repo_write_copies_with_other_settings(repository: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    status, said = run(
        "repo", "write", target, "--from", repository, "--model", "llm", "--set", "llm.model=/models/a=b"
    )
    assert status == 0, said
    assert model_names(target) == ("llm",)
    assert "/models/a=b" in (target / "llm" / "config.pbtxt").read_text(encoding="utf-8")
    assert not (target / "llm" / "1").is_symlink()


def test_repo_write_names_a_mistake_with_status_1(repository: Path, tmp_path: Path) -> None:
    status, said = run("repo", "write", tmp_path / "target", "--from", repository, "--set", "llm.model")
    assert status == 1
    assert "--set: found 'llm.model'; allowed: MODEL.PARAMETER=VALUE" in said


def test_demo_model_leaves_a_complete_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    status, said = run("demo-model", "--target", tmp_path)
    assert status == 0
    assert "the embedded model is in" in said


def test_an_llm_of_the_user_s_own_is_named_to_the_models(repository: Path, tmp_path: Path) -> None:
    assert cli.model_environment([repository], tmp_path) == {MODEL_VARIABLE: str(tmp_path)}


@pytest.mark.usefixtures("unset")
def test_the_environment_names_the_llm_where_the_option_does_not(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODEL_VARIABLE, str(tmp_path))
    assert cli.model_environment([repository], None) == {MODEL_VARIABLE: str(tmp_path)}


@pytest.mark.usefixtures("unset")
def test_otherwise_it_is_the_embedded_model(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "make_demo_model", lambda progress: tmp_path)
    assert cli.model_environment([repository], None) == {MODEL_VARIABLE: str(tmp_path)}


def test_a_gguf_file_is_unpacked_once_into_the_cache(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "tiny.gguf"
    source.write_bytes(b"GGUF")
    monkeypatch.setenv("TRISTREAM_CACHE", str(tmp_path / "cache"))
    converted: list[Path] = []

    def convert(given: Path, target: Path, _progress: object) -> Path:
        converted.append(given)
        target.mkdir(parents=True)
        return target

    monkeypatch.setattr(cli, "convert_gguf", convert)
    first = cli.model_environment([repository], source)
    assert cli.model_environment([repository], source) == first
    assert converted == [source]
    assert first[MODEL_VARIABLE].startswith(str(tmp_path / "cache" / "models" / "tiny-4-"))


def test_a_repository_that_names_its_own_llm_takes_none(tmp_path: Path) -> None:
    assert cli.model_environment([tmp_path], None) == {}


def test_a_port_that_was_asked_for_is_not_replaced() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} on 127.0.0.1 is taken"):
            cli.choose_ports((None, port, None), "127.0.0.1")
    assert cli.choose_ports((None, port, None), "127.0.0.1")[1] == port


def test_three_different_ports_are_chosen() -> None:
    asked = choose_port()
    ports = cli.choose_ports((None, None, asked), "127.0.0.1")
    assert len(set(ports)) == 3
    assert ports[2] == asked
