"""Servers of the integration tests; each is started once, on free ports, when a test first asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.serving import TIGHT_IDLE_S, TIGHT_STREAMS, ReplayServer, Set, replay_server


@pytest.fixture(scope="session")
def replay(
    tmp_path_factory: pytest.TempPathFactory, qwen3_tokenizer: Path, deepseek_tokenizer: Path
) -> Iterator[ReplayServer]:
    """All models around a replayed LLM, three times.

    Names without a suffix: Qwen3's tokenizer. `_deepseek`: DeepSeek's. `_tight`: an ensemble and a `chat_direct` over
    the first one's LLM with room for few streams and short idle limits.
    """
    tight = {"max_streams": str(TIGHT_STREAMS), "idle_ttl_s": str(TIGHT_IDLE_S), "first_token_ttl_s": "3"}
    sets = (
        Set(qwen3_tokenizer),
        Set(
            deepseek_tokenizer,
            "_deepseek",
            settings={name: {"format": "deepseek_r1"} for name in ("preprocess", "postprocess", "chat_direct")},
        ),
        Set(
            qwen3_tokenizer,
            "_tight",
            models=("chat", "chat_direct", "preprocess", "postprocess"),
            settings={"postprocess": tight, "chat_direct": {"max_streams": str(TIGHT_STREAMS)}},
            llm="llm",
        ),
    )
    with replay_server(tmp_path_factory.mktemp("replay"), sets) as server:
        yield server
