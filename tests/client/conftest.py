"""A real server with a chat model that does as its requests script."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tristream.backend.deploy.repository import write_repository
from tristream.backend.deploy.server import TritonServer

MODEL = "scripted_chat"


@dataclass
class Scripted:
    """The server, and what its model wrote of the requests that ended."""

    url: str
    http_url: str
    journal: Path
    model: str = MODEL

    def body(self, *script: dict[str, Any], tag: str = "", **members: Any) -> dict[str, Any]:
        """A request that makes the model do this."""
        return {"script": list(script), "tag": tag, "journal": str(self.journal), **members}

    def ended(self, tag: str, count: int = 1, seconds: float = 10.0) -> list[dict[str, Any]]:
        """The journal's entries of the requests with this tag, once `count` of them have ended."""
        until = time.monotonic() + seconds
        while True:
            lines = self.journal.read_text(encoding="utf-8").splitlines() if self.journal.exists() else []
            found = [entry for entry in map(json.loads, lines) if entry["tag"] == tag]
            if len(found) >= count:
                return found
            assert time.monotonic() < until, f"{len(found)} of {count} requests tagged {tag!r} have ended"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[Scripted]:
    folder = tmp_path_factory.mktemp("scripted")
    sources = [project / "tests" / "model_repository"]
    repository = write_repository(sources, folder / "repository", models={MODEL})
    with TritonServer([repository], log_file=folder / "server.log") as server:
        server.wait_ready()
        yield Scripted(server.grpc_url, server.http_url, folder / "journal.jsonl")
        assert server.running, server.failure()
