"""Write a model repository: the models of others, with settings of one's own.

`model_repository/` in the project is complete as it stands: its paths are `${TRISTREAM_MODEL}`, a variable of the
server's environment. A repository is written where models are to be chosen, renamed, or set otherwise.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tristream.parsers.errors import TristreamError

__all__ = ["MODEL_VARIABLE", "RepositoryError", "model_names", "needs_model", "write_repository"]

CONFIG: Final = "config.pbtxt"
MODEL_VARIABLE: Final = "TRISTREAM_MODEL"
"""The environment variable that names the LLM's folder in the configurations of `model_repository/`."""


class RepositoryError(TristreamError):
    """A repository cannot be read or written; the message names the model, what was found and what is allowed."""


def model_names(repository: Path) -> tuple[str, ...]:
    """Names of the models of a repository, sorted: its folders with a config.pbtxt.

    Raises:
        RepositoryError: it is no folder.
    """
    if not repository.is_dir():
        raise RepositoryError(
            f"model repository {repository}: found no such folder; allowed: a folder of Triton models"
        )
    return tuple(sorted(config.parent.name for config in repository.glob(f"*/{CONFIG}")))


def needs_model(repository: Path) -> bool:
    """Whether a configuration of this repository leaves the LLM's folder to `TRISTREAM_MODEL`."""
    marker = f"${{{MODEL_VARIABLE}}}"
    return any(marker in (repository / name / CONFIG).read_text(encoding="utf-8") for name in model_names(repository))


def write_repository(
    sources: Sequence[Path],
    target: Path,
    *,
    models: Collection[str] | None = None,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    rename: Mapping[str, str] | None = None,
    copy: bool = False,
) -> Path:
    """Write a repository out of the models of others.

    Args:
        sources: repositories to take models from; of two models with one name the later source's counts.
        target: the folder to write; must not exist, or be empty.
        models: names (as in the sources) to take; None takes all.
        settings: model (its name in the target) -> parameter -> value, set in its config.pbtxt.
        rename: name in the sources -> name in the target; ensemble steps follow.
        copy: copy the files; otherwise everything but config.pbtxt is a link to where it came from.

    Returns:
        `target`.

    Raises:
        RepositoryError: a model or source is not there, the target is in use, a configuration does not parse.
    """
    settings = settings or {}
    rename = rename or {}
    found = {name: source / name for source in sources for name in model_names(source)}
    chosen = [name for name in found if models is None or name in models]
    names = {name: rename.get(name, name) for name in chosen}
    _check_names("models", models or (), found)
    _check_names("rename", rename, names)
    _check_names("settings", settings, names.values())
    if len(set(names.values())) < len(names):
        raise RepositoryError(f"rename: found two models with one name in {sorted(names.values())}; allowed: one each")
    if target.exists() and any(target.iterdir()):
        raise RepositoryError(f"{target}: found a folder in use; allowed: a new or an empty one")
    for name in chosen:
        folder = target / names[name]
        folder.mkdir(parents=True)
        for entry in sorted(found[name].iterdir()):
            if entry.name not in (CONFIG, "__pycache__"):
                _take(entry.resolve(), folder / entry.name, copy)
        (folder / "1").mkdir(exist_ok=True)  # Triton asks for a version folder, also of an ensemble
        config = _edited(found[name] / CONFIG, names, settings.get(names[name], {}))
        (folder / CONFIG).write_text(config, encoding="utf-8")
    return target


def _check_names(what: str, wanted: Collection[str], known: Collection[str]) -> None:
    for name in wanted:
        if name not in known:
            raise RepositoryError(f"{what}: found model {name!r}; allowed: {', '.join(sorted(known)) or 'none'}")


def _take(source: Path, target: Path, copy: bool) -> None:
    if not copy:
        target.symlink_to(source, target_is_directory=source.is_dir())
    elif source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def _edited(path: Path, names: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """The configuration with names and parameters changed; as it is, comments and all, where nothing changes."""
    text = path.read_text(encoding="utf-8")
    if not settings and all(old == new for old, new in names.items()):
        return text
    config = _parsed(text, path)
    if config.name:
        config.name = names[path.parent.name]
    for step in config.ensemble_scheduling.step:
        step.model_name = names.get(step.model_name, step.model_name)
    for parameter, value in settings.items():
        config.parameters[parameter].string_value = value
    from google.protobuf import text_format

    return f"# Written by tristream from {path}\n{text_format.MessageToString(config)}"


def _parsed(text: str, path: Path) -> Any:
    # Here, not above: a plain start changes no configuration and needs neither.
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        raise RepositoryError(f"{path}: found {error}; allowed: a Triton model configuration") from error
