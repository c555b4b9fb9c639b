"""A language model small enough for tests: random weights, a byte-level tokenizer of 300 tokens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tristream.backend.engines.base import GenerationRequest, Step

# Tiny models gain nothing from a second thread, and on a busy machine two that wait for each other take ages.
torch.set_num_threads(1)

END: Final = "<|end|>"
END_ID: Final = 0
SPECIAL: Final = (END, "<|user|>", "<think>")
WORDS: Final = ("th", "the", "an", "and", "in", "er", "re", "on", "at", "en", "ing", "or", "is", "it", "he", "ou")


SIZES: Final[dict[str, Any]] = {
    "vocab_size": 278,  # three more logits than tokens, as many models have
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "eos_token_id": END_ID,
    "bos_token_id": None,
    "pad_token_id": None,
}
"""Of a transformers configuration."""


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, a few merged pieces, three special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*SPECIAL, *alphabet]
    merges = []
    for word in WORDS:
        left, right = word[:-1], word[-1]
        if left in pieces and word not in pieces:
            pieces.append(word)
            merges.append((left, right))
    tokenizer = Tokenizer(BPE({piece: number for number, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


def tiny_model(config: Any, seed: int = 1) -> Any:
    """Random weights, far enough apart that no two logits tie; float32."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(4)
    return model


def tiny_folder(folder: Path, config: Any, seed: int = 1) -> Path:
    """The same as a Hugging Face folder."""
    tiny_model(config, seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


class Collector:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.ended = threading.Event()
        self.grown = threading.Condition()

    def __call__(self, step: Step) -> None:
        assert not self.ended.is_set(), "a step after the last"
        with self.grown:
            self.steps.append(step)
            self.grown.notify_all()
        if step.last:
            self.ended.set()

    def wait(self, seconds: float = 60) -> Collector:
        """Until the stream has ended."""
        assert self.ended.wait(seconds), f"no end; {len(self.steps)} steps"
        return self

    def wait_tokens(self, count: int, seconds: float = 60) -> None:
        """Until so many tokens have come."""
        with self.grown:
            assert self.grown.wait_for(lambda: len(self.ids()) >= count, seconds)

    def ids(self, choice: int = 0) -> list[int]:
        """All token ids of a choice."""
        return [token for step in self.steps if step.choice_index == choice for token in step.token_ids]

    def end(self, choice: int = 0) -> Step:
        """The last step of a choice."""
        return next(step for step in self.steps if step.choice_index == choice and step.finish_reason is not None)


class SlowCompiler:
    """In place of xgrammar's: works until it is let go."""

    def __init__(self, *_args: Any, **_rest: Any) -> None:
        self.go = threading.Event()

    def compile_regex(self, _regex: str) -> Any:
        """Burn CPU time, as a hostile grammar does."""
        while not self.go.is_set():
            pass
        return None


def run(engine: Any, requests: list[GenerationRequest]) -> list[Collector]:
    """Submit all, wait for all."""
    collectors = [Collector() for _ in requests]
    for request, collector in zip(requests, collectors, strict=True):
        engine.submit(request, collector)
    return [collector.wait() for collector in collectors]
