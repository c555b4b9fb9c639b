"""What a stream tells of its tokens: the same however many the LLM sends at once, and where its text comes late."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from support.accounts import character_map
from support.id_views import encode, in_groups, small_vocabulary
from support.parsing import vectors
from tristream.backend.detokenizer import Vocabulary
from tristream.backend.opening import Opening
from tristream.backend.settings import StreamSettings
from tristream.backend.streams import Stream, merge_deltas
from tristream.parsers import Message, MessageDelta, Usage, fold

CASES: Final[dict[str, list[dict[str, Any]]]] = {}
for _case in vectors():
    CASES.setdefault(_case["format"], []).append(_case)
SETTINGS: Final = StreamSettings(match="ids")
PROMPT_TOKENS: Final = 11


def entry(number: int) -> dict[str, Any]:
    return {"token": f"<{number}>", "logprob": -0.25, "bytes": [number % 256], "top_logprobs": [{"token": "é"}]}


def steps(words: Vocabulary, case: dict[str, Any], size: int, late: int = 0) -> Iterator[tuple[list[int], str]]:
    """What an LLM sends, `size` tokens at a time; with `late`, its own text, so many steps after its ids."""
    ids = encode(words, case["output"])
    shown = 0
    for number, at in enumerate(range(0, len(ids), size)):
        meta: dict[str, Any] = {"logprobs": [entry(each) for each in ids[at : at + size]]}
        if late:
            text = words.decode(ids[: max(0, number + 1 - late) * size]).rstrip("\ufffd")
            meta["text"], shown = text[shown:], max(shown, len(text))
        yield ids[at : at + size], json.dumps(meta)
    end = {"finish_reason": case.get("finish") or "stop", "completion_tokens": len(ids), "cached_tokens": 3}
    yield [], json.dumps({**end, "text": words.decode(ids)[shown:]} if late else end)


def answered(case: dict[str, Any], words: Vocabulary, said: Iterator[tuple[Sequence[int], str]]) -> Message:
    body = {**(case.get("options") or {}), "include_reasoning": True, "return_token_ids": True}
    body |= {"logprobs": True, "reasoning_logprobs": True, "tools": case.get("tools") or None, "id_seed": "seed"}
    body.pop("n", None)
    opening = Opening("s", body, case["format"], case.get("prompt_tail"), PROMPT_TOKENS)
    stream = Stream.open(opening, words, SETTINGS)
    deltas: list[MessageDelta] = []
    for token_ids, meta in said:
        deltas += merge_deltas(stream.feed(token_ids, meta))
    assert stream.ended
    return fold(deltas)


@pytest.mark.parametrize("format", CASES)
def test_ids_and_log_probabilities_in_every_chunking(format: str) -> None:
    words = small_vocabulary(format)
    for case in CASES[format]:
        one = answered(case, words, steps(words, case, 1))
        tokens = in_groups(words, encode(words, case["output"]), 1)
        wanted = character_map(case).accounts(tokens)
        assert one.token_ids == wanted.ids, case["id"]
        assert one.logprobs == [entry(number) for number in wanted.content], case["id"]
        assert one.reasoning_logprobs == [entry(number) for number in wanted.reasoning], case["id"]
        assert one.usage is not None
        reasoning = len(wanted.reasoning) if wanted.ids else None
        assert one.usage == Usage(PROMPT_TOKENS, len(wanted.ids), reasoning, 3), case["id"]
        for size in (3, len(wanted.ids) or 1):
            assert answered(case, words, steps(words, case, size)) == one, (case["id"], size)
        if "\ufffd" not in case["output"]:  # which is how a decoder shows a character that is not whole yet
            assert answered(case, words, steps(words, case, 2, late=2)) == one, (case["id"], "late")
