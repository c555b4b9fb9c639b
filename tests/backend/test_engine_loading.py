"""Models and tokenizers from folders and files."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig

from support.tiny_llm import SIZES, run, tiny_folder
from tristream.backend.deploy.demo_model import find_demo_gguf
from tristream.backend.engines.base import GenerationRequest, Sampling
from tristream.backend.engines.hf import EngineLimits, TransformersEngine
from tristream.backend.engines.loading import load_model, pick_device
from tristream.backend.errors import SettingsError

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model", LlamaConfig(**SIZES))


def test_a_folder(folder: Path) -> None:
    model = load_model(folder, CPU, "float32", max_context=100)
    assert (model.context, model.vocab_size, len(model.vocabulary)) == (100, 278, 275)
    assert model.vocabulary.end_ids == {0}
    assert model.vocabulary.spelling(0) == b"<|end|>"
    assert model.vocabulary.spelling(277) == b""
    assert load_model(folder, CPU, "bfloat16", max_context=9999).context == 256


def test_several_end_tokens(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 7]}), encoding="utf-8")
    assert load_model(folder, CPU, "float32").vocabulary.end_ids == {0, 7}


def test_the_tokenizer_may_be_elsewhere(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "words"
    elsewhere.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(elsewhere / name)
    assert len(load_model(folder, CPU, "float32", tokenizer=elsewhere).vocabulary) == 275


@pytest.mark.parametrize(
    ("name", "content"), [("config.json", "{"), ("config.json", '{"model_type": "none"}'), ("x.gguf", "GGUF")]
)
def test_what_is_no_model(name: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / secrets.token_hex(4) / name
    file.parent.mkdir()
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match="'model'") as refusal:
        load_model(file if file.suffix == ".gguf" else file.parent, CPU)
    assert "\n" not in str(refusal.value)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        load_model(tmp_path / "nowhere", CPU)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto", "GPU", "0") == CPU
    with pytest.raises(SettingsError, match="no GPU"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda", 0)
    assert pick_device("auto", "GPU", "1") == torch.device("cuda", 1)
    assert pick_device("auto", "CPU", "0") == CPU
    assert pick_device("cuda", "CPU", "0") == torch.device("cuda", 0)
    assert pick_device("cpu", "GPU", "0") == CPU


def test_threads_that_wait_sleep() -> None:
    """OpenMP reads its environment when torch loads: the model must not load torch before the setting stands."""
    code = "import tristream.backend.models.llm, os, sys; print('torch' in sys.modules, os.environ['OMP_WAIT_POLICY'])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == ["False", "PASSIVE"]


@pytest.mark.llm
@pytest.mark.timeout(300)
def test_the_embedded_model_as_folder_and_as_gguf(demo_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    text = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    request = GenerationRequest("a", tokenizer.encode(text), Sampling(temperature=0, max_tokens=40))
    answers = []
    for path in (demo_model, find_demo_gguf()):
        engine = TransformersEngine(load_model(path, CPU), EngineLimits(num_threads=1))
        answer = run(engine, [request])[0]
        engine.close()
        assert answer.end().finish_reason == "stop"
        answers.append(tokenizer.decode(answer.ids()))
    assert "Paris" in answers[0]
    assert answers[0] == answers[1]
