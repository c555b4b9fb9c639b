"""An LLM whose process is killed: what `chat_direct` makes of it. (In an ensemble only the client's deadline helps.)"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.serving import ReplayServer, Set, process_of, replay_server
from support.vectors import chat_body
from tristream.client import ChatClient, Retries, ServerFailed
from tristream.parsers import fold

PATIENCE_S = 3


@pytest.fixture
def killable(tmp_path: Path, qwen3_tokenizer: Path) -> Iterator[ReplayServer]:
    settings = {"chat_direct": {"token_timeout_s": str(PATIENCE_S)}}
    with replay_server(tmp_path, [Set(qwen3_tokenizer, models=("chat_direct", "llm"), settings=settings)]) as server:
        yield server


def test_its_streams_end_and_new_ones_are_refused(killable: ReplayServer) -> None:
    """Triton 2.51 leaves the streams of a dead process open: `token_timeout_s` ends them, with what had come."""
    with ChatClient(killable.grpc_url, timeout=30, retries=Retries(tries=1)) as client:
        body = chat_body({"words": 3000, "delay_ms": 20}, format="qwen3")
        with client.stream(body, model="chat_direct") as stream:
            deltas = [next(stream)]
            os.kill(process_of(killable.server, "llm"), signal.SIGKILL)
            killed = time.monotonic()
            deltas += stream
        assert time.monotonic() - killed < PATIENCE_S + 10
        message = fold(deltas)
        assert (message.content or "").startswith(" the")
        assert message.finish_reason == "error"
        for _ in range(2):  # the first after the death is met with an empty answer, later ones with an error
            with pytest.raises(ServerFailed) as caught:
                client.complete(body, model="chat_direct")
            assert "the LLM failed before its first token" in str(caught.value)
