"""The model's format at load: named or found, its tokens, the round trip through the chat template."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.templates import TEMPLATES
from tristream.backend.detokenizer import load_vocabulary
from tristream.backend.errors import SettingsError
from tristream.backend.format_choice import check_default, log_remarks
from tristream.backend.prompt import PromptBuilder, PromptSettings
from tristream.backend.settings import PostprocessSettings
from tristream.parsers import load_format
from tristream.parsers.formats import registry

HELLO = json.dumps({"messages": [{"role": "user", "content": "Hello"}]})

ACME = {
    "name": "acme",
    "source": "made up",
    "tools": {
        "arguments": {"syntax": "json_object"},
        "entries": [["<acme:", {"item": "name"}, ">"]],
        "closers": [["</acme>"]],
    },
}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OUTSIDE", {})
    load_format.cache_clear()


def build(tokenizer: Path, template: str | Path | None = None, **settings: Any) -> PromptBuilder:
    path = TEMPLATES / f"{template}.jinja" if isinstance(template, str) else template
    return PromptBuilder(PromptSettings(tokenizer=tokenizer, chat_template=path, **settings))


def test_auto_names_the_format(qwen3_tokenizer: Path) -> None:
    builder = build(qwen3_tokenizer, format="auto")
    assert load_format(builder.format).tools is load_format("hermes").tools
    (remark,) = builder.remarks
    assert not remark.warning
    assert remark.text.startswith("format auto: hermes, because ")
    assert "a call is written" in remark.text
    assert builder.build(HELLO).opening["format"] == builder.format


def test_auto_that_finds_nothing(qwen3_tokenizer: Path) -> None:
    with pytest.raises(SettingsError, match="'auto', and the model's format is unknown, because no format reads back"):
        build(qwen3_tokenizer, "unknown_sexp", format="auto")


def test_auto_checks_the_tokens(qwen3_tokenizer: Path) -> None:
    with pytest.raises(SettingsError, match=r"'kimi_k2', whose markers .* are no tokens of the tokenizer.*match: text"):
        build(qwen3_tokenizer, "kimi_k2", format="auto")
    assert build(qwen3_tokenizer, "kimi_k2", format="auto", match="text").format == "kimi_k2"


def test_a_template_that_the_format_does_not_read(qwen3_tokenizer: Path) -> None:
    (remark,) = build(qwen3_tokenizer, format="qwen3_coder").remarks
    assert remark.warning
    assert remark.text.startswith("format qwen3_coder does not read what the chat template writes: ")
    assert "format hermes fits this template" in remark.text
    with pytest.raises(SettingsError, match="strict_self_check: false"):
        build(qwen3_tokenizer, format="qwen3_coder", strict_self_check=True)


def test_the_demonstration_is_in_order(demo_model: Path, project: Path) -> None:
    template = project / "model_repository" / "preprocess" / "chat_template.jinja"
    assert build(demo_model, template, match="text", strict_self_check=True).remarks == ()
    found = build(demo_model, template, match="text", format="auto").format
    assert load_format(found).tools is load_format("qwen3+hermes").tools


def test_unknown_formats(qwen3_tokenizer: Path) -> None:
    with pytest.raises(SettingsError, match="found 'qwen9'; allowed: auto, or "):
        build(qwen3_tokenizer, format="qwen9")


def test_a_format_of_ones_own(qwen3_tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "acme.json"
    path.write_text(json.dumps(ACME), encoding="utf-8")
    assert build(qwen3_tokenizer, format="acme", formats=path, match="text").format == "acme"
    path.write_text(json.dumps({**ACME, "tools": 3}), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"parameter 'formats': found .*acme: tools: found a int"):
        build(qwen3_tokenizer, format="acme", formats=path)


@pytest.mark.parametrize("match", ["ids", "text"])
def test_tokens_in_postprocess(deepseek_tokenizer: Path, match: Any) -> None:
    """DeepSeek V4's tokenizer has <think> but not <tool_call>."""
    added = load_vocabulary(deepseek_tokenizer).added_spellings
    check_default(PostprocessSettings(format="deepseek_v4", match=match), added)
    settings = PostprocessSettings(format="glm47", match=match)
    if match == "text":
        check_default(settings, added)
    else:
        with pytest.raises(SettingsError, match="'glm47', whose markers <tool_call> are no tokens"):
            check_default(settings, added)


def test_auto_in_postprocess() -> None:
    check_default(PostprocessSettings(format="auto"), frozenset(), needed=False)
    with pytest.raises(SettingsError, match="'auto' with implicit_open"):
        check_default(PostprocessSettings(format="auto", implicit_open=True), frozenset())


def checkpoint(folder: Path, tokenizer: Path, template: Any) -> Path:
    """A tokenizer's folder whose configuration has a response_template."""
    (folder / "tokenizer.json").symlink_to(tokenizer / "tokenizer.json")
    config = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["response_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


RESPONSE_TEMPLATE = {
    "start_anchor": "«assistant» ",
    "fields": {
        "content": {},
        "tool_calls": {
            "open_pattern": r"\(call (?P<name>\w+)",
            "close": ")",
            "content": "xml-inline",
            "content_args": {"tag_pattern": r" :(?P<key>\w+) (?P<value>.*?);"},
        },
    },
}


def test_a_checkpoint_that_describes_its_format(qwen3_tokenizer: Path, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, qwen3_tokenizer, RESPONSE_TEMPLATE)
    builder = build(folder, "unknown_sexp", format="auto")
    assert builder.format == "hf"
    assert "so the checkpoint's response_template is read" in builder.remarks[0].text
    load_format.cache_clear()
    check_default(PostprocessSettings(format="hf", tokenizer=folder / "tokenizer.json"), frozenset())
    assert load_format("hf").turns == ("«assistant» ",)
    check_default(PostprocessSettings(format="qwen3+hf", tokenizer=folder), frozenset(), needed=True)


def test_a_checkpoint_that_describes_it_badly(qwen3_tokenizer: Path, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, qwen3_tokenizer, {"fields": {"tool_calls": {"open_pattern": "(a+)+"}}})
    with pytest.raises(SettingsError, match=r"'hf'; .*open_pattern: found '\(a\+\)\+'"):
        build(folder, format="hf")
    with pytest.raises(SettingsError, match="'auto', and the model's format is unknown"):
        build(folder, "unknown_sexp", format="auto")
    with pytest.raises(SettingsError, match="which stands in a checkpoint's metadata and was read from none"):
        build(qwen3_tokenizer, format="hf")


def test_remarks_go_to_the_log(qwen3_tokenizer: Path) -> None:
    lines: list[tuple[str, str]] = []
    logger = SimpleNamespace(
        log_warn=lambda text: lines.append(("warn", text)), log_info=lambda text: lines.append(("info", text))
    )
    pb: Any = SimpleNamespace(Logger=logger)
    log_remarks(pb, build(qwen3_tokenizer, format="auto").remarks)
    log_remarks(pb, build(qwen3_tokenizer, format="qwen3_coder").remarks)
    assert [level for level, _ in lines] == ["info", "warn"]
    assert all(text.startswith("tristream: format ") for _, text in lines)
