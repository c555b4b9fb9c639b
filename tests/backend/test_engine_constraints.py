"""Grammars: compiling within bounds, and following them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import torch
import xgrammar

from support.tiny_llm import END_ID, SlowCompiler, tiny_tokenizer
from tristream.backend.engines import constraints
from tristream.backend.engines.base import Constraint
from tristream.backend.engines.constraints import CompiledGrammar, GrammarStore, RowConstraint, forbid
from tristream.backend.engines.loading import tokenizer_info
from tristream.backend.errors import BUSY_PREFIX

TOKENIZER = tiny_tokenizer()
INFO, SPELLINGS = tokenizer_info(TOKENIZER, len(TOKENIZER) + 2, [END_ID])
TAG = {
    "type": "tag",
    "begin": "<c>",
    "content": {"type": "json_schema", "json_schema": {"type": "boolean"}},
    "end": "</c>",
}


def constraint(**parts: Any) -> Constraint:
    made = Constraint.from_json(json.dumps(parts))
    assert made is not None
    return made


def compiled(store: GrammarStore, wanted: Constraint, seconds: float = 20) -> CompiledGrammar:
    pending = store.get(wanted)
    end = time.monotonic() + seconds
    while not pending.ready and time.monotonic() < end:
        time.sleep(0.002)
    assert pending.ready
    return pending


@pytest.fixture
def store() -> Any:
    made = GrammarStore(INFO, timeout_s=20)
    yield made
    made.close()


def allowed(row: RowConstraint) -> set[int]:
    logits = torch.zeros(1, INFO.vocab_size)
    forbid(logits, [row])
    return set(torch.isfinite(logits[0]).nonzero()[:, 0].tolist())


def follow(row: RowConstraint, text: str) -> bool:
    return all(row.accept(token) for token in TOKENIZER.encode(text, add_special_tokens=False))


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [
        ({"regex": "(yes|no)"}, "yes", "maybe"),
        (
            {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
            '{"a":1}',
            "[]",
        ),
        ({"json_schema": False}, None, "x"),
        ({"structural_tag": TAG}, "<c>true</c>", "<d>"),
        ({"structural_tag": {"type": "structural_tag", "format": TAG}}, "<c>false</c>", "<c>no"),
    ],
    ids=["regex", "json_schema", "false", "tag", "structural_tag"],
)
def test_kinds(store: GrammarStore, wanted: dict[str, Any], good: str | None, bad: str) -> None:
    pending = compiled(store, constraint(**wanted))
    if good is None:
        assert pending.error or not allowed(RowConstraint(pending.grammar))
        return
    assert pending.error == ""
    assert not follow(RowConstraint(pending.grammar), bad)
    row = RowConstraint(pending.grammar)
    assert follow(row, good)
    assert row.complete
    assert allowed(row) == {END_ID}
    assert row.accept(END_ID)
    assert (row.ended, row.active) == (True, False)


def test_special_tokens_are_no_text(store: GrammarStore) -> None:
    row = RowConstraint(compiled(store, constraint(json_schema={"type": "string"})).grammar)
    assert follow(row, '"a')
    special = set(TOKENIZER.all_special_ids) | {TOKENIZER.convert_tokens_to_ids("<think>")}
    assert not allowed(row) & special
    unknown = {len(TOKENIZER), len(TOKENIZER) + 1}
    assert not allowed(row) & unknown


@pytest.mark.parametrize(
    "wanted", [{"regex": "(a"}, {"json_schema": {"type": "strin"}}, {"structural_tag": {"type": "x"}}]
)
def test_no_grammar(store: GrammarStore, wanted: dict[str, Any]) -> None:
    error = compiled(store, constraint(**wanted)).error
    assert error.startswith("constraint: found no grammar: ")
    assert ".cc:" not in error
    assert "/" not in error


def test_equal_constraints_are_compiled_once(store: GrammarStore) -> None:
    first = compiled(store, constraint(regex="a{3}"))
    assert store.get(constraint(regex="a{3}", after_ids=[[1]])) is first
    assert store.get(constraint(regex="a{4}")) is not first


def test_the_least_recently_used_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledGrammar, "size", property(lambda self: 10 if self.grammar is not None else 0))
    store = GrammarStore(INFO, timeout_s=20, capacity_bytes=25)
    wanted = [constraint(regex=f"a{{{count}}}") for count in (1, 2, 3)]
    first, second = compiled(store, wanted[0]), compiled(store, wanted[1])
    assert store.get(wanted[0]) is first
    compiled(store, wanted[2])
    assert store.get(wanted[0]) is first
    assert store.get(wanted[1]) is not second
    store.close()


def test_a_slow_grammar_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgrammar, "GrammarCompiler", SlowCompiler)
    store = GrammarStore(INFO, timeout_s=0.05, workers=1)
    slow, behind = store.get(constraint(regex="a")), store.get(constraint(regex="b"))
    end = time.monotonic() + 20
    while not (store.overdue(slow) and store.overdue(behind)) and time.monotonic() < end:
        time.sleep(0.01)
    assert "compile_timeout_s" in store.overdue(slow)
    assert store.overdue(behind).startswith(BUSY_PREFIX)
    # while it runs on, asking for it again does not start it again
    assert store.get(constraint(regex="a")) is slow
    store._compiler.go.set()
    store.close()


def test_waiting_grammars_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgrammar, "GrammarCompiler", SlowCompiler)
    monkeypatch.setattr(constraints, "MAX_PENDING", 3)
    store = GrammarStore(INFO, timeout_s=5, workers=1)
    pending = [store.get(constraint(regex=f"a{{{number}}}")) for number in range(9)]
    assert [one.error for one in pending].count("") <= 5
    assert "wait to be compiled" in pending[-1].error
    store._compiler.go.set()
    store.close()


def test_after_ids(store: GrammarStore) -> None:
    grammar = compiled(store, constraint(regex="yes")).grammar
    row = RowConstraint(grammar, [[5, 6], [7]])
    for token in (5, 4, 6, 5):
        assert row.accept(token)
        assert not row.active
        assert len(allowed(row)) == INFO.vocab_size
    assert row.accept(6)
    assert row.active
    assert follow(row, "yes")
    assert RowConstraint(grammar, [[7]]).accept(7)


def test_only_rows_with_a_constraint_are_masked(store: GrammarStore) -> None:
    grammar = compiled(store, constraint(regex="yes")).grammar
    logits = torch.zeros(3, INFO.vocab_size)
    forbid(logits, [None, RowConstraint(grammar), RowConstraint(grammar, [[1]])])
    assert torch.isfinite(logits[0]).all()
    assert torch.isfinite(logits[1]).sum() < 10
    assert torch.isfinite(logits[2]).all()
