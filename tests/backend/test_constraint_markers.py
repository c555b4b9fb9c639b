"""Constraints with real tokenizers: markers are held to their token, and what comes out is read in the id view."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import xgrammar
from transformers import AutoTokenizer

from tristream.backend.detokenizer import Detokenizer, load_vocabulary
from tristream.parsers import ChatOptions, ChatStream, Message, fold, load_format
from tristream.parsers.call_shapes import CALL_SHAPES, ReasoningShape
from tristream.parsers.constraint import build_constraint
from tristream.parsers.constraint_markers import bind_markers

SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "get_time": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMAS[name]}} for name in SCHEMAS]

CALL = '<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC"}}\n</tool_call>'
OPEN = ReasoningShape("<think>", "</think>", "open")
UNKNOWN = ReasoningShape("<think>", "</think>", "unknown")
BOUNDED = ReasoningShape("<think>", "</think>", "open", (20, 60))


class Llm:
    """A tokenizer, and xgrammar for it."""

    def __init__(self, folder: Path, end: str) -> None:
        self.vocabulary = load_vocabulary(folder)
        self.ids = {spelling: number for number, spelling in self.vocabulary.added.items()}
        self._end = self.ids[end]
        tokenizer = AutoTokenizer.from_pretrained(folder)
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, stop_token_ids=[self._end])
        self._compiler = xgrammar.GrammarCompiler(info)
        self._bitmask = xgrammar.allocate_token_bitmask(1, info.vocab_size)

    def bound(self, tag: Mapping[str, Any], markers: tuple[str, ...]) -> Any:
        """The tag with those markers bound that this tokenizer has, compiled."""
        ids = {marker: self.ids[marker] for marker in markers if marker in self.ids}
        return self._compiler.compile_structural_tag(json.dumps(bind_markers(tag, ids)))

    def encode(self, text: str, *, whole_markers: bool = True) -> list[int]:
        """Token ids; without `whole_markers` every marker comes in pieces."""
        tokenizer = self.vocabulary.tokenizer
        if whole_markers:
            return list(tokenizer.encode(text, add_special_tokens=False).ids)
        pieces = text.replace("<", "\0<\0").split("\0")
        return [i for piece in pieces if piece for i in tokenizer.encode(piece, add_special_tokens=False).ids]

    def accepts(self, grammar: Any, ids: list[int]) -> bool:
        """Does the grammar admit these tokens, and the end after them?"""
        matcher = xgrammar.GrammarMatcher(grammar)
        return all(matcher.accept_token(number) for number in (*ids, self._end))

    def walk(self, grammar: Any, seed: int) -> list[int]:
        """Random tokens that the grammar admits, up to the end of turn; closers come often."""
        chance = random.Random(seed)
        texts = ('"', '"}', "}", "\n", ".", "</think>", "</tool_call>", "<｜tool▁calls▁end｜>", "\n</parameter>\n")
        closers = [self.encode(text) for text in texts] + [[self._end]]
        matcher = xgrammar.GrammarMatcher(grammar)
        ids: list[int] = []
        while len(ids) < 3000:
            chance.shuffle(closers)
            for closer in closers if chance.random() < 0.5 else ():
                taken = 0
                while taken < len(closer) and matcher.accept_token(closer[taken]):
                    taken += 1
                if taken == len(closer):
                    ids += closer
                    break
                matcher.rollback(taken)
            else:
                matcher.fill_next_token_bitmask(self._bitmask)
                allowed = np.flatnonzero(np.unpackbits(self._bitmask.numpy().view(np.uint8), bitorder="little"))
                assert len(allowed), f"no way on after {self.vocabulary.decode(ids)!r}"
                ids.append(int(chance.choice(allowed)))
                assert matcher.accept_token(ids[-1])
            if matcher.is_terminated():
                return ids
        raise AssertionError(f"no end: {self.vocabulary.decode(ids)[-300:]!r}")

    def read(self, ids: list[int], name: str, options: ChatOptions, prompt_tail: str) -> Message:
        """The message, read in the id view."""
        vocabulary = self.vocabulary
        stream = ChatStream(
            name,
            options,
            prompt_tail=prompt_tail,
            special_spellings=vocabulary.special_spellings,
            added_spellings=vocabulary.added_spellings,
        )
        detokenizer = Detokenizer(vocabulary)
        deltas = [out for delta in (*detokenizer.feed(ids), *detokenizer.finish()) for out in stream.feed(delta)]
        return fold([*deltas, *stream.finish("stop")])


@pytest.fixture(scope="module")
def qwen3(qwen3_tokenizer: Path) -> Llm:
    return Llm(qwen3_tokenizer, "<|im_end|>")


@pytest.fixture(scope="module")
def deepseek(deepseek_tokenizer: Path) -> Llm:
    return Llm(deepseek_tokenizer, "<｜end▁of▁sentence｜>")


def options(**body: Any) -> ChatOptions:
    return ChatOptions.from_openai({"tools": TOOLS, **body})


HERMES = CALL_SHAPES["hermes"]
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


@pytest.mark.parametrize(
    ("tag", "text", "in_pieces"),
    [
        (build_constraint(options(tool_choice="required"), calls=HERMES), f"{CALL}\n{CALL}", False),
        (build_constraint(options(tool_choice="required"), calls=HERMES, reasoning=OPEN), f"p</think>\n{CALL}", False),
        (
            build_constraint(options(tool_choice="required"), calls=HERMES, reasoning=UNKNOWN),
            f"<think>p</think>{CALL}",
            False,
        ),
        (
            build_constraint(options(), calls=HERMES, reasoning=BOUNDED, auto="call"),
            f"{'plan' * 6}.</think>{CALL}",
            False,
        ),
        (build_constraint(options(), calls=HERMES, level="parameter"), f"Hi {CALL} and {CALL}", True),
        # prose, for the parser as well
        (build_constraint(options(parallel_tool_calls=False), calls=HERMES), f"Hi {CALL}", True),
    ],
)
def test_markers_count_as_tokens_only(qwen3: Llm, tag: dict[str, Any], text: str, in_pieces: bool) -> None:
    grammar = qwen3.bound(tag, MARKERS)
    assert qwen3.accepts(grammar, qwen3.encode(text))
    assert qwen3.accepts(grammar, qwen3.encode(text, whole_markers=False)) is in_pieces
    if not in_pieces:
        assert qwen3.accepts(qwen3.bound(tag, ()), qwen3.encode(text, whole_markers=False))


def test_one_call_is_one_call_by_token_too(qwen3: Llm) -> None:
    weather = {"name": "get_weather", "parameters": SCHEMAS["get_weather"], "strict": True}
    held = {"type": "function", "function": weather}
    asked = ChatOptions.from_openai({"tools": [held, TOOLS[1]], "parallel_tool_calls": False})
    grammar = qwen3.bound(build_constraint(asked, calls=HERMES) or {}, MARKERS)
    assert qwen3.accepts(grammar, qwen3.encode(f"Hi {CALL}"))
    assert not qwen3.accepts(grammar, qwen3.encode(f"Hi {CALL}\n{CALL}"))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("model", "name", "shape"),
    [("qwen3", "qwen3+hermes", "hermes"), ("qwen3", "qwen3", "qwen_xml"), ("deepseek", "deepseek_r1", "deepseek_v3")],
)
def test_what_the_grammar_admits_the_parser_reads_in_the_id_view(
    model: str, name: str, shape: str, seed: int, request: pytest.FixtureRequest
) -> None:
    llm: Llm = request.getfixturevalue(model)
    asked = options(tool_choice="required")
    calls = CALL_SHAPES[shape]
    assert load_format(name).constraint == shape
    reasoning = (OPEN, BOUNDED, None)[seed % 3]
    tag = build_constraint(asked, calls=calls, reasoning=reasoning) or {}
    ids = llm.walk(llm.bound(tag, (*MARKERS[:2], *calls.markers)), seed)
    message = llm.read(ids, name, asked, "<think>\n" if reasoning else "<think>\n\n</think>\n\n")
    text = llm.vocabulary.decode(ids)
    assert message.content is None, text
    assert message.tool_calls, text
    for call in message.tool_calls:
        assert call.status == "complete", text
        arguments = json.loads(call.arguments)
        if shape == "qwen_xml":  # xgrammar admits any one blank where the framing newline goes
            arguments = {name: value.strip() for name, value in arguments.items()}
        jsonschema.validate(arguments, SCHEMAS[call.name])


def test_without_ids_nothing_changes() -> None:
    tag = build_constraint(options(tool_choice="required"), calls=HERMES) or {}
    assert bind_markers(tag, {}) == tag
    triggered = build_constraint(options(), calls=HERMES, level="parameter") or {}
    bound = bind_markers(triggered, {"</tool_call>": 7})["format"]
    assert bound["type"] == "triggered_tags"
    assert bound["tags"][0]["end"] == {"type": "token", "token": 7}
