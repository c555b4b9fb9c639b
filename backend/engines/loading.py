"""A model and its tokenizer from a local Hugging Face folder or a GGUF file."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
import xgrammar
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from tristream.backend.errors import SettingsError

from .vocabulary import Vocabulary

__all__ = ["LoadedModel", "load_gguf", "load_model", "pick_device", "tokenizer_info"]

DTYPES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
DEFAULT_CONTEXT: Final = 2048
"""Tokens, where a configuration names no length."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What the engine runs.

    Args:
        forward: the model; keyword arguments as below, returns an object with `logits`.
        config: its configuration.
        vocabulary: spellings and end ids.
        tokenizer_info: the same for xgrammar.
        context: most tokens of prompt and output together.
        device: where it is.
        cache_argument: how `forward` calls the cache (transformers renames it).
        takes_positions: `forward` takes `position_ids`.
        keeps_last: `forward` takes `logits_to_keep`: logits of a prompt's last token alone.
    """

    forward: Callable[..., Any]
    config: Any
    vocabulary: Vocabulary
    tokenizer_info: Any
    context: int
    device: torch.device
    cache_argument: str
    takes_positions: bool
    keeps_last: bool

    @property
    def vocab_size(self) -> int:
        """Number of logits."""
        return int(self.tokenizer_info.vocab_size)


def pick_device(
    setting: Literal["auto", "cpu", "cuda"], instance_kind: str = "", instance_device: str = ""
) -> torch.device:
    """Where to run.

    Args:
        setting: auto takes a GPU if torch has one.
        instance_kind: Triton's `model_instance_kind`; CPU overrules auto.
        instance_device: Triton's `model_instance_device_id`: which GPU.

    Raises:
        SettingsError: `cuda` without a GPU that torch can use.
    """
    available = torch.cuda.is_available()
    if setting == "cuda" and not available:
        raise SettingsError("device", "'cuda', but torch finds no GPU", "'auto' or 'cpu' here")
    if setting == "cpu" or not available or (setting == "auto" and instance_kind == "CPU"):
        return torch.device("cpu")
    on_gpu = instance_kind == "GPU" and instance_device.isdigit()
    return torch.device("cuda", int(instance_device) if on_gpu else 0)


def load_model(
    path: Path, device: torch.device, dtype: str = "bfloat16", *, max_context: int = 0, tokenizer: Path | None = None
) -> LoadedModel:
    """Load a model.

    Args:
        path: a folder with config.json and safetensors, or a .gguf file.
        device: where to.
        dtype: bfloat16, float16 or float32.
        max_context: bound on the model's own context, in tokens; 0 is none.
        tokenizer: a folder with the tokenizer, where it is not beside the weights.

    Raises:
        SettingsError: there is no such model, or it is none that generates text.
    """
    if not path.exists():
        raise SettingsError("model", f"{path}, which does not exist", "a Hugging Face folder or a .gguf file")
    try:
        packed = path.suffix == ".gguf"
        if tokenizer is None and packed:
            words = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        else:
            words = AutoTokenizer.from_pretrained(tokenizer or path, local_files_only=True)
        if packed:
            model = load_gguf(path, dtype)
        else:
            model = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype], local_files_only=True)
        model = model.to(device).eval()
        end_ids = _end_ids(model, words)
        output = model.get_output_embeddings()
        config = model.config.get_text_config(decoder=True)
        vocab_size = int(config.vocab_size) if output is None else int(output.weight.shape[0])
        info, spellings = tokenizer_info(words, vocab_size, end_ids)
    except Exception as error:  # a file that is none makes transformers raise anything
        raise SettingsError(
            "model", f"{path}: {_first_line(error)}", "a Hugging Face folder or a .gguf file"
        ) from error
    length = int(getattr(config, "max_position_embeddings", 0) or getattr(config, "n_positions", 0) or DEFAULT_CONTEXT)
    names = inspect.signature(model.forward).parameters
    return LoadedModel(
        forward=model,
        config=model.config,
        vocabulary=Vocabulary(spellings, end_ids),
        tokenizer_info=info,
        context=min(length, max_context or length),
        device=device,
        cache_argument="cache" if "cache" in names else "past_key_values",
        takes_positions="position_ids" in names,
        keeps_last="logits_to_keep" in names,
    )


def load_gguf(path: Path, dtype: str) -> Any:
    """The model in a GGUF file, its weights unpacked.

    Args:
        path: the file.
        dtype: of the weights, as in `load_model`.

    Raises:
        ValueError: the file lacks weights of the model, or has others.
    """
    # from_pretrained keeps the weights packed (3-10 tokens/s on a CPU) and needs `accelerate`: unpack them instead
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model, torch_dtype=DTYPES[dtype])
    missing, unexpected = model.load_state_dict(tensors["tensors"], strict=False)
    model.tie_weights()
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    lost = [name for name in missing if name not in tied]
    if lost or unexpected:
        raise ValueError(f"weights missing: {lost[:3]}; without a place: {unexpected[:3]}")
    return model


def tokenizer_info(tokenizer: Any, vocab_size: int, end_ids: Sequence[int]) -> tuple[Any, list[bytes]]:
    """xgrammar's view of the tokenizer, and the bytes of every id that the tokenizer knows.

    Args:
        tokenizer: transformers' own.
        vocab_size: number of logits.
        end_ids: ids that end generation.
    """
    ends = list(end_ids) or None
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size, stop_token_ids=ends)
    spellings: list[bytes] = info.decoded_vocab[: max(tokenizer.get_vocab().values()) + 1]
    # xgrammar takes special tokens for the text they are written as: a JSON string might then hold an end of turn.
    # Tokens without text are special to it, and allowed only where a grammar names the token.
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    texts = [b"" if token in special else text for token, text in enumerate(spellings)]
    strict = xgrammar.TokenizerInfo(
        texts,
        vocab_type=xgrammar.VocabType.RAW,
        vocab_size=vocab_size,
        stop_token_ids=ends,
        add_prefix_space=info.add_prefix_space,
    )
    return strict, spellings


def _end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids that end generation: generation_config.json says, else config.json, else the tokenizer."""
    generation: GenerationConfig | None = getattr(model, "generation_config", None)
    for source in (generation, model.config, tokenizer):
        found = getattr(source, "eos_token_id", None)
        if found is not None:
            ids = found if isinstance(found, list | tuple) else [found]
            return tuple(int(each) for each in ids)
    return ()


def _first_line(error: BaseException) -> str:
    text = str(error) if not isinstance(error, json.JSONDecodeError) else f"broken JSON: {error}"
    return (text.strip() or type(error).__name__).splitlines()[0][:300]
