"""Random walks through a compiled grammar with a real tokenizer: what a model might write under a constraint."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import xgrammar
from transformers import AutoTokenizer

__all__ = ["Walker"]

MAX_STEPS: Final = 4000
FREE_STEPS: Final = 60
"""After so many tokens only what ends something is chosen, where it may be."""
_ENDINGS: Final[Mapping[str, Sequence[str]]] = {
    "json": ('"', "}", "]"),
    "gemma": ('<|"|>', "}", "]"),
    "qwen_xml": ("\n</parameter>", '"', "}", "]"),
    "minimax_xml": ("</parameter>", '"', "}", "]"),
    "minimax_m3_xml": ("]<]minimax[>[</", '"', "}", "]"),
    "deepseek_xml": ("</｜DSML｜parameter>", '"', "}", "]"),
    "deepseek_v4_1_xml": ("</｜DSML｜ parameter>", '"', "}", "]"),
    "glm_xml": ("</arg_value>", '"', "}", "]"),
    "kimi_k3_xml": ("<|close|>argument<|sep|>", '"', "}", "]"),
}
"""What values, objects and elements end with, by xgrammar's style. In any order: one may be data in another."""


class Walker:
    """Walks with one tokenizer.

    Args:
        folder: a Hugging Face folder with the tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        info = xgrammar.TokenizerInfo.from_huggingface(self._tokenizer)
        self._compiler = xgrammar.GrammarCompiler(info)
        self._vocab_size = info.vocab_size
        self._stops = frozenset(info.stop_token_ids)

    @cached_property
    def _texts(self) -> dict[int, str]:
        """Ordinary tokens that are whole characters."""
        special = set(self._tokenizer.all_special_ids)
        texts = self._tokenizer.batch_decode([[token] for token in range(len(self._tokenizer))])
        return {
            token: text
            for token, text in enumerate(texts)
            # Blanks other than a newline or a space are what no model was trained to frame values with.
            if text and "\ufffd" not in text and token not in special and (text in ("\n", " ") or text.strip() == text)
        }

    def compile(self, tag: Mapping[str, Any]) -> xgrammar.CompiledGrammar:
        """The grammar of a structural tag."""
        return self._compiler.compile_structural_tag(json.dumps(tag))

    def walk(self, grammar: xgrammar.CompiledGrammar, style: str, seed: int) -> str:
        """One answer under the grammar, to its end."""
        chance = random.Random(seed)
        matcher = xgrammar.GrammarMatcher(grammar)
        mask = xgrammar.allocate_token_bitmask(1, self._vocab_size)
        endings = _ENDINGS[style]
        written: list[str] = []
        for step in range(MAX_STEPS):
            late = step > FREE_STEPS
            forced = matcher.find_jump_forward_string()
            if forced:
                assert matcher.accept_string(forced)
                written.append(forced)
                continue
            matcher.fill_next_token_bitmask(mask)
            bits = np.unpackbits(mask.numpy().view(np.uint8)[0], bitorder="little")
            if any(bits[stop] for stop in self._stops) and (late or chance.random() < 0.7):
                return "".join(written)
            if late or chance.random() < 0.3:
                ending = next(filter(matcher.accept_string, chance.sample(endings, len(endings))), None)
                if ending is not None:
                    written.append(ending)
                    continue
            token = self._choose(np.flatnonzero(bits), chance)
            if token is None:  # nothing but the end may come
                return "".join(written)
            assert matcher.accept_token(token)
            written.append(self._texts[token])
        raise AssertionError(f"no end after {MAX_STEPS} tokens: {''.join(written)!r:.1200}")

    def _choose(self, allowed: Any, chance: random.Random) -> int | None:
        for _ in range(200):
            token = int(allowed[chance.randrange(len(allowed))])
            if token in self._texts:
                return token
        return next((token for token in allowed.tolist() if token in self._texts), None)
