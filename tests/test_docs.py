"""The pages under docs/ that are generated say what the tables say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GENERATED = ("formats.md", "diagrams.md")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as they are made now, in a process of their own: other tests may have loaded more formats."""
    directory = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, "-m", "tristream.client.formats_page", str(directory)], check=True)
    return directory


@pytest.mark.parametrize("name", GENERATED)
def test_the_page_is_current(written: Path, name: str) -> None:
    current = (written / name).read_text(encoding="utf-8")
    assert (DOCS / name).read_text(encoding="utf-8") == current, f"docs/{name} is not current: run `make docs`"


@pytest.mark.parametrize("name", GENERATED)
def test_every_link_leads_somewhere(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    for page, anchor in re.findall(r"\]\(([a-z]*(?:\.md)?)(?:#([a-z0-9_]+))?\)", text):
        target = DOCS / (page or name)
        assert target.is_file(), page
        heads = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in heads, f"{page}#{anchor}"
