"""Each token counts for the channel of its first character that is sent, in every family and however it comes.

The reference is `support.accounts`: what the output's characters are for, one by one. Tokens come from tokenizers
(one with each family's spellings, and real ones), and cut at random, so that they hold markers, halves of markers and
blanks together with text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from support.accounts import CONTENT, REASONING, Accounts, Characters, character_map, open_options
from support.id_views import encode, in_groups, small_vocabulary, vocabulary
from support.parsing import call, case_options, tool, vectors
from tristream.backend.detokenizer import Vocabulary
from tristream.parsers import ChatStream, Delta, Message, fold
from tristream.parsers.tokens import TokenView

REAL: Final = {
    "qwen3": ("qwen3", "qwen3_coder", "hermes", "qwen3+hermes"),
    "deepseek_v4": ("deepseek_r1", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41"),
    "deepseek_v3": ("deepseek_v3",),
    "gptoss": ("gpt_oss",),
    "llama3_1": ("llama3_json", "pythonic", "functionary_v31", "functionary_v32", "firefunction"),
    "gemma3": ("functiongemma",),
}
CASES: Final[dict[str, list[dict[str, Any]]]] = {}
for _case in vectors():
    CASES.setdefault(_case["format"], []).append(_case)


def with_entries(tokens: Sequence[Delta]) -> list[Delta]:
    """The tokens with an entry of log probabilities for each id, which names it."""
    return [
        Delta(token.text, token.token_ids, token.special, [{"id": number} for number in token.token_ids])
        for token in tokens
    ]


def answered(case: dict[str, Any], tokens: Sequence[Delta], words: Vocabulary | None = None, **members: Any) -> Message:
    """The message of these tokens; in the id view where there is a tokenizer."""
    special = words.special_spellings if words else ()
    added = words.added_spellings if words else None
    options = open_options(case, **members)
    stream = ChatStream(case["format"], options, case.get("prompt_tail"), special, added)
    sent = [out for token in tokens for out in stream.feed(token)]
    return fold((*sent, *stream.finish(case.get("finish") or "stop")))


def shown(message: Message) -> Accounts:
    return Accounts(
        message.token_ids,
        [entry["id"] for entry in message.logprobs],
        [entry["id"] for entry in message.reasoning_logprobs],
    )


def counts(message: Message) -> tuple[int | None, int | None]:
    return (message.usage.completion_tokens, message.usage.reasoning_tokens) if message.usage else (0, 0)


def check(case: dict[str, Any], tokens: Sequence[Delta], words: Vocabulary | None = None) -> None:
    """On the slow path (everything shown), and on the fast one (counts alone), open and hidden."""
    characters = character_map(case)
    wanted = characters.accounts(tokens)
    slow = answered(case, with_entries(tokens), words)
    got = shown(slow)
    assert (got.ids, got.reasoning) == (wanted.ids, wanted.reasoning), case["id"]
    unsure = characters.unsure(tokens)
    sure = [number for number in wanted.content if number not in unsure]
    assert [number for number in got.content if number not in unsure] == sure, case["id"]
    plain: dict[str, Any] = {"logprobs": False, "reasoning_logprobs": False, "return_token_ids": False}
    wanted_counts = (len(wanted.ids), len(wanted.reasoning)) if wanted.ids else (0, 0)
    for message in (slow, answered(case, tokens, words, **plain)):
        assert counts(message) == wanted_counts, case["id"]
    hidden = answered(case, tokens, words, **plain, include_reasoning=False)
    assert counts(hidden) == wanted_counts, f"{case['id']}, hidden"


def same_channel(characters: Characters, tokens: Sequence[Delta], rng: random.Random) -> Iterator[Delta]:
    """Neighbours joined where all their characters are of one channel: several tokens per delta."""
    group: list[Delta] = []
    before = ""
    for token, span in zip(tokens, characters.spans(tokens), strict=True):
        found = set(characters.channels[span.start : span.stop])
        channel = found.pop() if len(found) == 1 and found <= {CONTENT, REASONING} else ""
        if group and (channel != before or not channel or rng.random() < 0.2):
            yield _joined(group)
            group = []
        group.append(token)
        before = channel
    if group:
        yield _joined(group)


def _joined(group: Sequence[Delta]) -> Delta:
    return Delta(
        "".join(token.text for token in group),
        tuple(number for token in group for number in token.token_ids),
        False,
        [entry for token in group for entry in token.logprobs],
    )


def at_random(text: str, rng: random.Random) -> list[Delta]:
    """Tokens that no tokenizer would make."""
    tokens: list[Delta] = []
    at = 0
    while at < len(text):
        piece = text[at : at + rng.choice((1, 2, 3, 5, 8, 13, 25))]
        tokens.append(Delta(piece, (len(tokens),)))
        at += len(piece)
    return tokens


@pytest.mark.parametrize("format", CASES)
def test_by_a_tokenizer_with_the_spellings(format: str) -> None:
    words = small_vocabulary(format)
    for case in CASES[format]:
        tokens = in_groups(words, encode(words, case["output"]), 1)
        check(case, tokens, words)


@pytest.mark.parametrize(("folder", "format"), [(folder, name) for folder, names in REAL.items() for name in names])
def test_by_a_real_tokenizer(folder: str, format: str) -> None:
    words = vocabulary(f"tokenizers/{folder}")
    for case in CASES[format]:
        tokens = in_groups(words, encode(words, case["output"]), 1)
        check(case, tokens, words)


@pytest.mark.parametrize("format", CASES)
def test_tokens_that_hold_markers_and_text(format: str) -> None:
    for number, case in enumerate(CASES[format]):
        check(case, at_random(case["output"], random.Random(number)))


@pytest.mark.parametrize("format", CASES)
def test_several_tokens_per_delta(format: str) -> None:
    rng = random.Random(format)
    for case in CASES[format]:
        characters = character_map(case)
        tokens = with_entries([Delta(char, (at,)) for at, char in enumerate(case["output"])])
        one = answered(case, tokens)
        several = list(same_channel(characters, tokens, rng))
        assert answered(case, several) == one, case["id"]
        plain: dict[str, Any] = {"logprobs": False, "reasoning_logprobs": False, "return_token_ids": False}
        assert counts(answered(case, several, **plain)) == counts(one), case["id"]


def test_the_reference_is_the_vectors_own() -> None:
    """Where a case's reasoning stands in its output in one piece and once, there the characters are reasoning."""
    checked = 0
    for case in vectors():
        reasoning = case["expect"]["reasoning"]
        hidden = not case_options(case).include_reasoning
        if not reasoning or hidden or case.get("compare") == "strip" or case["output"].count(reasoning) != 1:
            continue
        at = case["output"].index(reasoning)
        channels = character_map(case).channels
        assert channels[at : at + len(reasoning)] == REASONING * len(reasoning), case["id"]
        assert channels.count(REASONING) == len(reasoning), case["id"]
        checked += 1
    assert checked > 400


def test_the_token_view_says_the_same() -> None:
    for case in CASES["qwen3"]:
        words = vocabulary("tokenizers/qwen3")
        tokens = in_groups(words, encode(words, case["output"]), 1)
        view = TokenView(
            "qwen3", case_options(case), case.get("prompt_tail"), words.special_spellings, words.added_spellings
        )
        view.feed(tokens)
        wanted = character_map(case).accounts(tokens)
        assert view.reasoning_ids == wanted.reasoning[: len(view.reasoning_ids)], case["id"]
        assert view.content_ids == wanted.content[: len(view.content_ids)], case["id"]
        held = len(wanted.reasoning) + len(wanted.content) - len(view.reasoning_ids) - len(view.content_ids)
        assert held <= 12, f"{case['id']}: {held} tokens that only the end of the output decides"


@pytest.mark.parametrize(
    ("texts", "body", "content", "reasoning"),
    [
        (["<think>", "A", "\n</think>\n\nB", "C"], {}, [2, 3], [1]),
        (["<think>", "A", "\n\n", "</think>", "\n\n", "B"], {}, [5], [1]),
        (["X", "\n<think>A", "</think>", "B"], {}, [0, 3], [1]),
        (["X", call("f", "{}"), call("f", "{}") + "Y"], {"parallel_tool_calls": False}, [0, 2], []),
        (["X", "<tool_", "call> Y"], {}, [0, 1, 2], []),
    ],
    ids=["end of reasoning and content", "dropped blanks", "content's blanks and reasoning", "dropped call", "mention"],
)
def test_a_token_of_several_parts(
    texts: list[str], body: dict[str, Any], content: list[int], reasoning: list[int]
) -> None:
    case = {"id": "", "format": "qwen3+hermes", "tools": [tool("f")], "options": body, "output": "".join(texts)}
    tokens = [Delta(text, (at,)) for at, text in enumerate(texts)]
    got = shown(answered(case, with_entries(tokens)))
    assert got == Accounts(list(range(len(texts))), content, reasoning)
    assert counts(answered(case, tokens)) == (len(texts), len(reasoning))
