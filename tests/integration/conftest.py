"""Servers of the integration tests; each is started once, on free ports, when a test first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from support.serving import (
    TIGHT_CONTEXT,
    TIGHT_IDLE_S,
    TIGHT_PATIENCE_S,
    TIGHT_STREAMS,
    ReplayServer,
    Set,
    replay_server,
)

FOLDER = Path(__file__).parent
TIMEOUT_S = 300
"""A dozen processes that start on two busy cores count into the first test's time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The timeout of every test of this folder."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def replay(
    tmp_path_factory: pytest.TempPathFactory, qwen3_tokenizer: Path, deepseek_tokenizer: Path
) -> Iterator[ReplayServer]:
    """All models around a replayed LLM, three times.

    Names without a suffix: Qwen3's tokenizer. `_deepseek`: DeepSeek's. `_tight`: an ensemble and a `chat_direct` over
    the first one's LLM with room for few streams and short idle limits.
    """
    tight = {"max_streams": str(TIGHT_STREAMS), "idle_ttl_s": str(TIGHT_IDLE_S), "first_token_ttl_s": "3"}
    patience = {"first_token_timeout_s": str(TIGHT_PATIENCE_S), "token_timeout_s": str(TIGHT_PATIENCE_S)}
    context = {"max_context": str(TIGHT_CONTEXT)}
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
            settings={
                "preprocess": context,
                "postprocess": tight,
                "chat_direct": {**context, "max_streams": str(TIGHT_STREAMS), **patience},
            },
            llm="llm",
        ),
    )
    with replay_server(tmp_path_factory.mktemp("replay"), sets) as server:
        yield server


@pytest.fixture(scope="session")
def qwen3_ids(qwen3_tokenizer: Path) -> Callable[[str], list[int]]:
    """Text -> token ids."""
    tokenizer = Tokenizer.from_file(str(qwen3_tokenizer / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


@pytest.fixture(scope="session")
def qwen3_hello(qwen3_ids: Callable[[str], list[int]]) -> list[int]:
    """Token ids of an answer with reasoning that must stay hidden, and "Hello"."""
    return qwen3_ids("<think>\nhidden\n</think>\n\nHello")
