"""Real servers for tests: repositories around `replay_llm`, started on free ports, stopped by their process id."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support.probing import eventually, metric
from support.vectors import CASES_FILE
from tristream.backend.deploy.repository import write_repository
from tristream.backend.deploy.server import TritonServer

__all__ = [
    "ROOT",
    "START_S",
    "TIGHT_CONTEXT",
    "TIGHT_IDLE_S",
    "TIGHT_PATIENCE_S",
    "TIGHT_STREAMS",
    "ReplayServer",
    "Set",
    "free_settings",
    "replay_server",
]

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = (ROOT / "model_repository", ROOT / "tests" / "model_repository")
START_S: Final = 240.0
"""A dozen processes that import numpy and read a tokenizer, on two cores that others use too."""

# Limits of the models with the suffix `_tight`.
TIGHT_STREAMS: Final = 8
TIGHT_IDLE_S: Final = 1
TIGHT_PATIENCE_S: Final = 2
TIGHT_CONTEXT: Final = 2048

# A free-running LLM: nothing is held to anything, and what a request does not say has OpenAI's defaults.
FREE: Final = {
    "match": "ids",
    "chat_template": str(SOURCES[1] / "replay_llm" / "chat_template.jinja"),
    "sampling_defaults": "",
    "tool_strict_level": "auto",
    "auto_tools": "model",
    "reasoning_chars": "",
}


def free_settings() -> dict[str, Any]:
    """Settings of a free-running LLM, for a `PromptBuilder` of one's own."""
    return {"chat_template": Path(FREE["chat_template"])}


@dataclass(frozen=True, slots=True)
class Set:
    """The models around one replayed LLM; `suffix` keeps their names apart from those of other sets.

    Args:
        tokenizer: folder of the LLM's tokenizer.
        suffix: ends every model's name.
        models: which; names without the suffix.
        settings: model (without the suffix) -> parameter -> value.
        llm: the LLM's full name, where it is another set's.
        echo: the post model only echoes; its configuration stays what it is.
    """

    tokenizer: Path
    suffix: str = ""
    models: tuple[str, ...] = ("chat", "chat_direct", "preprocess", "postprocess", "llm")
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    llm: str = ""
    echo: bool = False

    def write(self, folder: Path, journal: Path) -> Path:
        """Write the repository of this set below `folder`."""
        names = {name: f"{name}{self.suffix}" for name in self.models}
        llm = self.llm or names["llm"]
        base: dict[str, dict[str, str]] = {
            "preprocess": {**FREE, "tokenizer": str(self.tokenizer), "postprocess": names.get("postprocess", "")},
            "chat_direct": {**FREE, "tokenizer": str(self.tokenizer), "llm": llm},
            "postprocess": {"tokenizer": str(self.tokenizer), "match": "ids", "stop_model": llm},
            "llm": {
                "tokenizer": str(self.tokenizer / "tokenizer.json"),
                "vectors": str(CASES_FILE),
                "journal": str(journal),
            },
        }
        # In two steps: the first puts the replay where the ensemble expects `llm`, the second gives all their names.
        plain = write_repository(
            SOURCES,
            folder / f"plain{self.suffix}",
            models={"replay_llm" if name == "llm" else name for name in self.models} | {"replay_llm"},
            rename={"replay_llm": "llm"},
        )
        target = write_repository(
            [plain],
            folder / f"set{self.suffix}",
            rename={**names, "llm": llm},
            settings={
                names.get(name, llm): {**base.get(name, {}), **self.settings.get(name, {})}
                for name in {*self.models, "llm"}
                if name in base
            },
        )
        if self.llm:  # only its name was needed, in the ensemble's step; the model is the other set's
            _remove(target / llm)
        if self.echo:
            code = target / names["postprocess"] / "1"
            code.unlink()
            code.symlink_to(SOURCES[1] / "postprocess_echo" / "1", target_is_directory=True)
        return target


def _remove(folder: Path) -> None:
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()


@dataclass(frozen=True, slots=True)
class ReplayServer:
    """A running server.

    Args:
        server: its process and addresses.
        journal: what `replay_llm` writes of ended streams.
    """

    server: TritonServer
    journal: Path

    @property
    def grpc_url(self) -> str:
        """`host:port`."""
        return self.server.grpc_url

    def ended(self, tag: str, count: int = 1, seconds: float = 30.0) -> list[dict[str, Any]]:
        """The journal's entries of the streams with this tag, once `count` of them have ended."""

        def entries() -> list[dict[str, Any]]:
            text = self.journal.read_text(encoding="utf-8") if self.journal.exists() else ""
            found = [json.loads(line) for line in text.splitlines()]
            return [entry for entry in found if entry["tag"] == tag]

        return eventually(entries, lambda found: len(found) >= count, seconds)

    def wait_empty(self, model: str, seconds: float = 30.0) -> None:
        """Wait until the model holds no stream. Its metric is up to a second old, so the first look comes late."""
        time.sleep(1.2)
        eventually(lambda: metric(self.server, "tristream_streams_live", model=model), lambda live: live == 0, seconds)

    def log(self) -> str:
        """The server's log so far."""
        assert self.server.log_file is not None
        return self.server.log_file.read_text(encoding="utf-8", errors="replace")


@contextmanager
def replay_server(folder: Path, sets: Sequence[Set], **options: Any) -> Iterator[ReplayServer]:
    """Start a server with these sets; it is stopped on leaving."""
    journal = folder / "journal.jsonl"
    repositories = [each.write(folder, journal) for each in sets]
    with TritonServer(repositories, log_file=folder / "server.log", exit_timeout_s=2, **options) as server:
        server.wait_ready(START_S)
        yield ReplayServer(server, journal)
