"""Writing repositories: links or copies, other settings, other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tristream.backend.deploy.repository import RepositoryError, model_names, needs_model, write_repository

LLM = """# a comment
backend: "python"
parameters { key: "model" value { string_value: "${TRISTREAM_MODEL}" } }
"""
ENSEMBLE = """name: "chat"
platform: "ensemble"
ensemble_scheduling {
  step [ { model_name: "llm" model_version: -1 }, { model_name: "post" model_version: -1 } ]
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    repository = tmp_path / "source"
    for name, config in (("llm", LLM), ("chat", ENSEMBLE), ("post", 'backend: "python"\n')):
        (repository / name).mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    (repository / "llm" / "1").mkdir()
    (repository / "llm" / "1" / "model.py").write_text("# llm", encoding="utf-8")
    (repository / "notes").mkdir()
    return repository


def test_models_are_the_folders_with_a_configuration(source: Path) -> None:
    assert model_names(source) == ("chat", "llm", "post")
    assert needs_model(source)


def test_unchanged_configurations_keep_their_text_and_files_are_links(source: Path, tmp_path: Path) -> None:
    target = write_repository([source], tmp_path / "target")
    assert (target / "llm" / "config.pbtxt").read_text(encoding="utf-8") == LLM
    assert (target / "llm" / "1").is_symlink()
    assert (target / "llm" / "1" / "model.py").read_text(encoding="utf-8") == "# llm"
    assert (target / "chat" / "1").is_dir(), "Triton wants a version folder of an ensemble too"


def test_copies_are_no_links(source: Path, tmp_path: Path) -> None:
    target = write_repository([source], tmp_path / "target", copy=True)
    assert not [path for path in target.rglob("*") if path.is_symlink()]
    assert (target / "llm" / "1" / "model.py").is_file()


def test_settings_replace_and_add_parameters(source: Path, tmp_path: Path) -> None:
    target = write_repository(
        [source], tmp_path / "target", settings={"llm": {"model": "/models/x", "threads": "2"}}, models=["llm"]
    )
    text = (target / "llm" / "config.pbtxt").read_text(encoding="utf-8")
    assert '"/models/x"' in text
    assert '"threads"' in text
    assert "TRISTREAM_MODEL" not in text
    assert model_names(target) == ("llm",)
    assert not needs_model(target)


def test_renaming_reaches_the_steps_of_an_ensemble(source: Path, tmp_path: Path) -> None:
    target = write_repository([source], tmp_path / "target", rename={"post": "post_0", "chat": "chat_0"})
    assert model_names(target) == ("chat_0", "llm", "post_0")
    text = (target / "chat_0" / "config.pbtxt").read_text(encoding="utf-8")
    assert 'name: "chat_0"' in text
    assert 'model_name: "post_0"' in text
    assert 'model_name: "llm"' in text


def test_of_two_models_with_one_name_the_later_source_s_counts(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "llm").mkdir(parents=True)
    (other / "llm" / "config.pbtxt").write_text("# mine", encoding="utf-8")
    target = write_repository([source, other], tmp_path / "target")
    assert (target / "llm" / "config.pbtxt").read_text(encoding="utf-8") == "# mine"


def test_every_mistake_is_named(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(RepositoryError, match=r"models: found model 'x'; allowed: chat, llm, post"):
        write_repository([source], target, models=["x"])
    with pytest.raises(RepositoryError, match=r"rename: found model 'x'; allowed: chat, llm, post"):
        write_repository([source], target, rename={"x": "y"})
    with pytest.raises(RepositoryError, match=r"settings: found model 'x'"):
        write_repository([source], target, settings={"x": {}})
    with pytest.raises(RepositoryError, match=r"two models with one name"):
        write_repository([source], target, rename={"post": "llm"})
    with pytest.raises(RepositoryError, match=r"no such folder"):
        write_repository([tmp_path / "nowhere"], target)
    with pytest.raises(RepositoryError, match=r"folder in use"):
        write_repository([source], source)
    (source / "post" / "config.pbtxt").write_text("colour: blue", encoding="utf-8")
    with pytest.raises(RepositoryError, match=r"a Triton model configuration"):
        write_repository([source], target, settings={"post": {"a": "b"}})
