"""The transformers engine, on tiny models: what it decodes together is what each stream would get alone."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
import xgrammar
from transformers import Gemma2Config, Lfm2Config, LlamaConfig, MistralConfig

from support.tiny_llm import END_ID, SIZES, Collector, SlowCompiler, run, tiny_folder, tiny_tokenizer
from tristream.backend.engines.base import Constraint, GenerationRequest, Sampling
from tristream.backend.engines.cache import RowCache
from tristream.backend.engines.constraints import RowConstraint
from tristream.backend.engines.hf import EngineLimits, TransformersEngine
from tristream.backend.engines.loading import LoadedModel, load_model
from tristream.backend.errors import UnavailableError
from tristream.parsers.errors import RequestError

TOKENIZER = tiny_tokenizer()
KNOWN = len(TOKENIZER)
PADDED = SIZES["vocab_size"]
CPU = torch.device("cpu")
CONFIGS: dict[str, Callable[[], Any]] = {
    "full attention": lambda: LlamaConfig(**SIZES),
    "sliding window": lambda: MistralConfig(**SIZES, sliding_window=8),
    "both": lambda: Gemma2Config(**SIZES, sliding_window=8, query_pre_attn_scalar=8),
    "convolution": lambda: Lfm2Config(**SIZES, layer_types=["conv", "full_attention", "conv"]),
}
GREEDY = Sampling(temperature=0, max_tokens=40)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LoadedModel]:
    loaded: dict[str, LoadedModel] = {}

    def get(name: str) -> LoadedModel:
        if name not in loaded:
            folder = tiny_folder(tmp_path_factory.mktemp("model"), CONFIGS[name]())
            loaded[name] = load_model(folder, CPU, "float32")
        return loaded[name]

    return get


@pytest.fixture
def model(models: Callable[[str], LoadedModel]) -> LoadedModel:
    return models("full attention")


Start = Callable[..., TransformersEngine]


@pytest.fixture
def start(model: LoadedModel) -> Iterator[Start]:
    engines = []

    def make(which: LoadedModel = model, **limits: Any) -> TransformersEngine:
        engines.append(TransformersEngine(which, EngineLimits(num_threads=1, **limits)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


class Wrapped:
    """A model whose forward passes a test can watch, delay or break."""

    def __init__(self, model: LoadedModel, before: Callable[[torch.Tensor], None]) -> None:
        self.calls: list[tuple[int, int]] = []
        parts = {name: getattr(model, name) for name in LoadedModel.__dataclass_fields__}
        inner = model.forward

        def forward(**arguments: Any) -> Any:
            ids = arguments["input_ids"]
            self.calls.append((int(ids.shape[0]), int(ids.shape[1])))
            before(ids)
            return inner(**arguments)

        self.model = LoadedModel(**{**parts, "forward": forward})


def prompts(count: int, lengths: tuple[int, ...] = (1, 3, 9, 30, 60), seed: int = 1) -> list[list[int]]:
    source = random.Random(seed)
    return [[source.randrange(3, KNOWN) for _ in range(source.choice(lengths))] for _ in range(count)]


def reference(model: LoadedModel, prompt: list[int], tokens: int = 40) -> list[int]:
    """What transformers' own `generate` says."""
    made = model.forward.generate(  # type: ignore[attr-defined]
        input_ids=torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=tokens,
        do_sample=False,
        suppress_tokens=list(range(KNOWN, PADDED)),
        eos_token_id=END_ID,
        pad_token_id=END_ID,
    )
    ids: list[int] = made[0, len(prompt) :].tolist()
    return ids


def requests(prompts: list[list[int]], sampling: Sampling = GREEDY) -> list[GenerationRequest]:
    return [GenerationRequest(f"s{number}", prompt, sampling) for number, prompt in enumerate(prompts)]


def constraint(**parts: Any) -> Constraint | None:
    return Constraint.from_json(json.dumps(parts))


@pytest.mark.parametrize("name", list(CONFIGS))
def test_together_is_as_alone(name: str, models: Callable[[str], LoadedModel], start: Start) -> None:
    model = models(name)
    assert RowCache(model.config).joinable == (name != "convolution")
    asked = prompts(12)
    expected = [reference(model, prompt) for prompt in asked]
    # five rows, pieces of seven tokens: streams wait, join while others run, and leave
    got = run(start(model, max_concurrent=5, prefill_chunk=7), requests(asked))
    assert [one.ids() for one in got] == expected
    for one, prompt, ids in zip(got, asked, expected, strict=True):
        end = one.end()
        assert end.finish_reason == ("stop" if ids[-1] == END_ID else "length")
        assert (end.prompt_tokens, end.completion_tokens) == (len(prompt), len(ids))
    assert len({tuple(ids) for ids in expected}) > 6, "the reference says too little"


def test_rows_really_run_together(model: LoadedModel, start: Start) -> None:
    watched = Wrapped(model, lambda _ids: None)
    run(start(watched.model), requests(prompts(8, (4,)), Sampling(temperature=0, max_tokens=30, ignore_eos=True)))
    assert max(rows for rows, _ in watched.calls) == 8


def test_a_long_prompt_lets_others_stream(model: LoadedModel, start: Start) -> None:
    order: list[str] = []
    watched = Wrapped(model, lambda ids: order.append("piece" if ids.shape[1] > 1 else "step"))
    engine = start(watched.model, prefill_chunk=16)
    running = Collector()
    engine.submit(GenerationRequest("a", [5, 6, 7], Sampling(temperature=0, max_tokens=200, ignore_eos=True)), running)
    running.wait_tokens(2)
    order.clear()
    run(engine, [GenerationRequest("b", prompts(1, (160,))[0], Sampling(temperature=0, max_tokens=2))])
    pieces = [at for at, what in enumerate(order) if what == "piece"]
    assert len(pieces) == 10
    assert all(later - earlier >= 2 for earlier, later in pairwise(pieces))
    assert max(columns for _, columns in watched.calls) == 16


def test_short_prompts_pass_long_ones(start: Start, model: LoadedModel) -> None:
    engine = start(Wrapped(model, lambda _ids: time.sleep(0.005)).model, prefill_chunk=8)
    long, short = Collector(), Collector()
    engine.submit(GenerationRequest("long", prompts(1, (200,))[0], Sampling(max_tokens=1)), long)
    engine.submit(GenerationRequest("short", [5, 6], Sampling(max_tokens=1)), short)
    short.wait()
    assert not long.ended.is_set()
    long.wait()


def test_choices(model: LoadedModel, start: Start) -> None:
    prompt = prompts(1, (9,))[0]
    sampling = Sampling(temperature=0, max_tokens=20, n=3)
    same = run(start(), [GenerationRequest("a", prompt, sampling)])[0]
    assert [same.ids(choice) for choice in range(3)] == [reference(model, prompt, 20)] * 3
    drawn = run(start(), [GenerationRequest("a", prompt, Sampling(seed=1, max_tokens=20, n=3))])[0]
    assert len({tuple(drawn.ids(choice)) for choice in range(3)}) == 3
    assert [step.last for step in drawn.steps].count(True) == 1
    assert drawn.steps[-1].last
    assert all(drawn.end(choice).completion_tokens == len(drawn.ids(choice)) for choice in range(3))


def test_choices_of_a_model_whose_rows_do_not_join(models: Callable[[str], LoadedModel], start: Start) -> None:
    model = models("convolution")
    prompt = prompts(1, (9,))[0]
    got = run(start(model), [GenerationRequest("a", prompt, Sampling(temperature=0, max_tokens=20, n=2))])[0]
    assert got.ids(0) == got.ids(1) == reference(model, prompt, 20)


def test_a_seed_repeats_in_any_company(start: Start) -> None:
    asked = prompts(1, (9,))[0]
    sampling = Sampling(seed=11, max_tokens=30, top_p=0.95, temperature=1.3)
    alone = run(start(), [GenerationRequest("a", asked, sampling)])[0].ids()
    company = [GenerationRequest("a", asked, sampling), *requests(prompts(5), Sampling(max_tokens=30))]
    assert run(start(), company)[0].ids() == alone


def test_stop_strings(model: LoadedModel, start: Start) -> None:
    prompt = prompts(1, (30,), seed=4)[0]
    ids = reference(model, prompt)
    text = b"".join(model.vocabulary.spelling(token) for token in ids)
    for token in ids[3:]:
        stop = model.vocabulary.spelling(token).decode("utf-8", "replace")
        if "\ufffd" not in stop:
            break
    got = run(start(), [GenerationRequest("a", prompt, Sampling(temperature=0, max_tokens=40, stop=(stop,)))])[0]
    sent = b"".join(model.vocabulary.spelling(token) for token in got.ids())
    assert got.end().finish_reason == "stop"
    assert got.ids() == ids[: len(got.ids())]
    assert sent == text[: text.index(stop.encode())]
    assert got.end().completion_tokens == len(got.ids())


def test_the_end_token(model: LoadedModel, start: Start) -> None:
    found = next(prompt for prompt in prompts(200) if END_ID in reference(model, prompt, 20))
    ended, ignored = run(
        start(),
        [
            GenerationRequest("a", found, Sampling(temperature=0, max_tokens=20)),
            GenerationRequest("b", found, Sampling(temperature=0, max_tokens=20, ignore_eos=True)),
        ],
    )
    assert ended.ids()[-1] == END_ID
    assert ended.end().finish_reason == "stop"
    assert len(ignored.ids()) == 20
    assert ignored.end().finish_reason == "length"


def test_the_context_is_the_limit(model: LoadedModel, start: Start) -> None:
    prompt = prompts(1, (9,))[0] * 28
    got = run(start(), [GenerationRequest("a", prompt, Sampling(temperature=0, ignore_eos=True))])[0]
    assert len(prompt) + len(got.ids()) == model.context == 256
    assert got.end().finish_reason == "length"


def test_logprobs(model: LoadedModel, start: Start) -> None:
    prompt = [5, 6, 7, 8]
    sampling = Sampling(temperature=0, max_tokens=5, logprobs=True, top_logprobs=3, presence_penalty=2.0)
    got = run(start(), [GenerationRequest("a", prompt, sampling)])[0]
    with torch.inference_mode():
        logits = model.forward(input_ids=torch.tensor([[*prompt, *got.ids()]])).logits[0, :, :KNOWN].float()
    expected = torch.log_softmax(logits, -1)
    entries = [entry for step in got.steps for entry in step.logprobs]
    assert len(entries) == len(got.ids())
    for place, (token, entry) in enumerate(zip(got.ids(), entries, strict=True)):
        row = expected[len(prompt) - 1 + place]
        assert entry["logprob"] == pytest.approx(float(row[token]), abs=1e-4)
        assert bytes(entry["bytes"]) == model.vocabulary.spelling(token)
        assert entry["token"] == bytes(entry["bytes"]).decode("utf-8", "replace")
        tops = [other["logprob"] for other in entry["top_logprobs"]]
        assert tops == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
    assert all(math.isfinite(entry["logprob"]) for entry in entries)


def test_constraints_in_one_batch(model: LoadedModel, start: Start) -> None:
    schema = {"type": "object", "properties": {"unit": {"enum": ["c", "f"]}}, "required": ["unit"]}
    wanted = [None, constraint(regex="(yes|no)"), constraint(json_schema=schema), None]
    asked = prompts(4, (5,))
    got = run(
        start(),
        [
            GenerationRequest(f"s{number}", prompt, Sampling(seed=number, max_tokens=60), each)
            for number, (prompt, each) in enumerate(zip(asked, wanted, strict=True))
        ],
    )
    texts = [TOKENIZER.decode(one.ids(), skip_special_tokens=True) for one in got]
    assert texts[1] in ("yes", "no")
    assert json.loads(texts[2])["unit"] in ("c", "f")
    assert [got[index].end().finish_reason for index in (1, 2)] == ["stop", "stop"]
    assert got[1].ids()[-1] == END_ID


def test_a_constraint_ends_what_ignores_the_end_token(start: Start) -> None:
    sampling = Sampling(max_tokens=60, ignore_eos=True)
    got = run(start(), [GenerationRequest("a", [5], sampling, constraint(regex="(yes|no)"))])[0]
    assert got.end().finish_reason == "stop"


def test_a_constraint_after_ids(start: Start, model: LoadedModel) -> None:
    prompt = prompts(1, (9,))[0]
    free = reference(model, prompt)
    wanted = constraint(regex="yes", after_ids=[free[2:4]])
    got = run(start(), [GenerationRequest("a", prompt, GREEDY, wanted)])[0]
    assert got.ids()[:4] == free[:4]
    assert TOKENIZER.decode(got.ids()[4:], skip_special_tokens=True) == "yes"


@pytest.mark.parametrize(
    ("wanted", "text"),
    [({"regex": "(a"}, "no grammar"), ({"json_schema": False}, "constraint"), ({"regex": "[^\\s\\S]"}, "constraint")],
)
def test_an_impossible_constraint_is_an_error_step(start: Start, wanted: dict[str, Any], text: str) -> None:
    failed, other = Collector(), Collector()
    engine = start()
    engine.submit(GenerationRequest("a", [5, 6], Sampling(max_tokens=5), constraint(**wanted)), failed)
    engine.submit(GenerationRequest("b", [5, 6], GREEDY), other)
    assert failed.wait().end().finish_reason == "error"
    assert text in failed.end().error
    assert failed.ids() == []
    assert other.wait().end().finish_reason != "error"


def test_a_slow_grammar_does_not_hold_up_others(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = SlowCompiler()
    monkeypatch.setattr(xgrammar, "GrammarCompiler", lambda *_args, **_rest: compiler)
    engine = start(compile_timeout_s=0.05)
    slow, other = Collector(), Collector()
    engine.submit(GenerationRequest("a", [5, 6], GREEDY, constraint(regex="a")), slow)
    engine.submit(GenerationRequest("b", [5, 6], GREEDY), other)
    assert other.wait().end().finish_reason != "error"
    assert "compile_timeout_s" in slow.wait().end().error
    compiler.go.set()


def test_stop(start: Start, model: LoadedModel) -> None:
    engine = start(Wrapped(model, lambda _ids: time.sleep(0.002)).model)
    endless = Sampling(temperature=0, ignore_eos=True)
    stopped, other = Collector(), Collector()
    engine.submit(GenerationRequest("a", [5, 6], endless), stopped)
    engine.submit(GenerationRequest("b", [5, 6, 7], Sampling(temperature=0, max_tokens=60, ignore_eos=True)), other)
    stopped.wait_tokens(3)
    engine.stop("nobody")
    engine.stop("a")
    end = stopped.wait().end()
    assert end.finish_reason == "stop"
    assert end.completion_tokens == len(stopped.ids()) < 60
    assert len(other.wait().ids()) == 60
    assert run(engine, [GenerationRequest("a", [5], Sampling(max_tokens=1))])[0].steps  # its id is free again


def test_stop_of_a_single_stream_that_ends_between_rounds(start: Start, model: LoadedModel) -> None:
    for _ in range(20):
        engine = start(model)
        collector = Collector()
        engine.submit(GenerationRequest("a", [5, 6], Sampling(temperature=0, ignore_eos=True)), collector)
        collector.wait_tokens(1)
        engine.stop("a")
        collector.wait(10)
        engine.close()


def test_a_stream_that_waits_can_be_stopped(start: Start) -> None:
    engine = start(max_concurrent=1)
    first, second = Collector(), Collector()
    engine.submit(GenerationRequest("a", [5, 6], Sampling(ignore_eos=True)), first)
    engine.submit(GenerationRequest("b", [5, 6], Sampling(ignore_eos=True)), second)
    engine.stop("b")
    assert second.wait().ids() == []
    engine.stop("a")
    first.wait()


def test_limits(start: Start) -> None:
    engine = start(max_concurrent=2, max_queue=1)
    endless = Sampling(ignore_eos=True)
    collectors = [Collector() for _ in range(3)]
    for number, collector in enumerate(collectors):
        engine.submit(GenerationRequest(f"s{number}", [5], endless), collector)
    with pytest.raises(UnavailableError, match="max_queue"):
        engine.submit(GenerationRequest("s3", [5], endless), Collector())
    with pytest.raises(RequestError, match="stream_id"):
        engine.submit(GenerationRequest("s1", [5], endless), Collector())
    for number in range(3):
        engine.stop(f"s{number}")
    for collector in collectors:
        collector.wait()
    engine.submit(GenerationRequest("s3", [5], Sampling(max_tokens=1)), collector := Collector())
    collector.wait()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (GenerationRequest("", [5]), "stream_id"),
        (GenerationRequest("a", []), "input_ids"),
        (GenerationRequest("a", [5] * 256), "input_ids"),
        (GenerationRequest("a", [-1]), "input_ids"),
        (GenerationRequest("a", [PADDED]), "input_ids"),
        (GenerationRequest("a", [5], Sampling(n=17)), "sampling.n"),
    ],
)
def test_refusals(start: Start, request_: GenerationRequest, field: str) -> None:
    with pytest.raises(RequestError) as refusal:
        start().submit(request_, Collector())
    assert refusal.value.field == field


@pytest.mark.parametrize("name", ["full attention", "sliding window", "convolution"])
def test_a_row_that_fails_ends_alone(name: str, models: Callable[[str], LoadedModel], start: Start) -> None:
    model = models(name)
    asked = prompts(4, (9, 30))
    expected = [reference(model, prompt) for prompt in asked]
    bad = expected[1][2]
    others = [index for index in (0, 2, 3) if bad not in expected[index]]
    assert others

    def refuse(ids: torch.Tensor) -> None:
        if ids.shape[1] == 1 and bool((ids == bad).any()):
            raise RuntimeError("the device does not like this token")

    got = run(start(Wrapped(model, refuse).model), requests(asked))
    assert got[1].end().finish_reason == "error"
    assert "device" not in got[1].end().error
    assert got[1].ids() == expected[1][: expected[1].index(bad) + 1]
    for index in others:
        assert got[index].ids() == expected[index]


def test_a_prompt_that_fails_ends_alone(model: LoadedModel, start: Start) -> None:
    def refuse(ids: torch.Tensor) -> None:
        if ids.shape[1] == 5:
            raise RuntimeError("out of memory")

    got = run(start(Wrapped(model, refuse).model), requests([[7] * 9, [7] * 5, [8] * 9]))
    assert [one.end().finish_reason == "error" for one in got] == [False, True, False]


def test_no_number_is_an_error_step(model: LoadedModel, start: Start) -> None:
    broken = Wrapped(model, lambda _ids: None)
    inner = broken.model.forward

    def forward(**arguments: Any) -> Any:
        output = inner(**arguments)
        if tuple(arguments["input_ids"].shape) == (2, 1):
            output.logits[0] = float("nan")
        return output

    parts = {name: getattr(broken.model, name) for name in LoadedModel.__dataclass_fields__}
    engine = start(LoadedModel(**{**parts, "forward": forward}))
    for sampling in (GREEDY, Sampling(max_tokens=40, top_p=0.9, logprobs=True, ignore_eos=True)):
        got = run(engine, requests([[7, 8, 9], [8, 9, 9]], sampling))
        assert "no number" in got[0].end().error
        assert got[1].end().finish_reason != "error"


def test_a_row_that_chokes_on_its_token_ends_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    accept = RowConstraint.accept

    def choke(row: RowConstraint, token: int) -> bool:
        if row.active:
            raise RuntimeError("the grammar's state is broken")
        return accept(row, token)

    monkeypatch.setattr(RowConstraint, "accept", choke)
    wanted = [constraint(regex="yes"), None]
    asked = [GenerationRequest(f"s{number}", [5, 6], GREEDY, each) for number, each in enumerate(wanted)]
    got = run(start(), asked)
    assert [one.end().finish_reason == "error" for one in got] == [True, False]
    assert "grammar" not in got[0].end().error


def test_a_prompt_that_fails_at_its_last_choice_ends_whole(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    join = RowCache.join

    def run_out(cache: RowCache, others: list[RowCache]) -> None:
        if others[0].past.layers[0].keys.shape[0] == 3:
            raise MemoryError
        join(cache, others)

    monkeypatch.setattr(RowCache, "join", run_out)
    engine = start()
    running, failed = Collector(), Collector()
    engine.submit(GenerationRequest("a", [5, 6], Sampling(temperature=0, max_tokens=240, ignore_eos=True)), running)
    running.wait_tokens(2)
    engine.submit(GenerationRequest("b", [5, 6], Sampling(max_tokens=50, n=3, ignore_eos=True)), failed)
    assert {failed.wait().end(choice).finish_reason for choice in range(3)} == {"error"}
    assert len(running.wait().ids()) == 240


def test_a_fault_of_the_engine_ends_its_streams_and_it_goes_on(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = start()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_admit", lambda: 1 / 0)
        got = run(engine, requests(prompts(2)))
    assert [one.end().finish_reason for one in got] == ["error", "error"]
    assert "ZeroDivisionError" not in got[0].end().error
    assert run(engine, requests(prompts(2)))[0].end().finish_reason != "error"


def test_a_sink_that_fails_ends_its_stream_alone(start: Start) -> None:
    def broken(_step: object) -> None:
        raise ConnectionError

    engine = start()
    engine.submit(GenerationRequest("x", [5, 6], Sampling(ignore_eos=True)), broken)
    assert run(engine, requests(prompts(2)))[1].end().finish_reason != "error"
    deadline = time.monotonic() + 10
    while engine._streams and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not engine._streams


def test_close_ends_streams(start: Start) -> None:
    engine = start(max_concurrent=1)
    collectors = [Collector(), Collector()]
    for number, collector in enumerate(collectors):
        engine.submit(GenerationRequest(f"s{number}", [5], Sampling(ignore_eos=True)), collector)
    engine.close()
    for collector in collectors:
        assert "unloaded" in collector.wait().end().error
    with pytest.raises(UnavailableError, match="unloaded"):
        engine.submit(GenerationRequest("x", [5]), Collector())
    engine.close()
