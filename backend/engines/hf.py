"""The `transformers` engine: one thread that decodes all live requests together.

Each round admits what fits, runs a piece of the prompts that wait (a long one cannot hold up the others), then one
decoding step of every row. A row that ends leaves the batch at once, one whose prompt is done joins at once. A step
that fails is undone and tried row by row; only rows that fail alone are ended, with an error step.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from tristream.backend.errors import UnavailableError
from tristream.parsers.errors import RequestError

from .base import GenerationRequest, Sink
from .batch import Batch, forward
from .cache import RowCache
from .choosing import next_tokens
from .constraints import GrammarStore, RowConstraint
from .limits import EngineLimits
from .loading import LoadedModel
from .rows import Row, Stream
from .sampling import RowSampler

__all__ = ["EngineLimits", "TransformersEngine"]

FAILED: Final = "the language model failed on this answer; the server's log tells more"
CLOSED: Final = "the language model is being unloaded"
PREFILL_CPU: Final = 128
PREFILL_GPU: Final = 2048
GRAMMAR_POLL_S: Final = 0.02

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Prompt:
    """A stream whose prompt is being run."""

    stream: Stream
    cache: RowCache

    @property
    def left(self) -> int:
        return len(self.stream.request.input_ids) - self.cache.width


class TransformersEngine:
    """See `base.Engine`.

    Args:
        model: what to run.
        limits: what it may take.
    """

    def __init__(self, model: LoadedModel, limits: EngineLimits | None = None) -> None:
        self._model = model
        self._limits = limits or EngineLimits()
        self._chunk = self._limits.prefill_chunk or (PREFILL_CPU if model.device.type == "cpu" else PREFILL_GPU)
        self._changed = threading.Condition()
        self._streams: dict[str, Stream] = {}
        self._incoming: list[Stream] = []
        self._closing = False
        # of the thread alone, from here on
        self._waiting: deque[Stream] = deque()
        self._prompts: list[_Prompt] = []
        self._batches: list[Batch] = []
        self._oldest_first = True
        self._grammars = GrammarStore(
            model.tokenizer_info,
            timeout_s=self._limits.compile_timeout_s,
            capacity_bytes=self._limits.grammar_cache_mb * 1024 * 1024,
            on_ready=self._wake,
        )
        self._thread = threading.Thread(target=self._run, name="decoding", daemon=True)
        self._thread.start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """See `base.Engine.submit`."""
        limit = self._limits.check(request, self._model)
        stream = Stream(request, sink, limit)
        limits = self._limits
        with self._changed:
            if self._closing:
                raise UnavailableError("model", CLOSED, "send the request to another server")
            running = self._streams.get(request.stream_id)
            if running is not None and not running.ended:
                raise RequestError("stream_id", "the id of a stream that runs", "an id that is not in use")
            claimed = sum(live.choices for live in self._streams.values() if not live.ended)
            if claimed + stream.choices > limits.max_concurrent + limits.max_queue:
                found = f"{claimed} answers run or wait; {limits.max_concurrent} may run (max_concurrent)"
                raise UnavailableError("max_queue", f"{found} and {limits.max_queue} wait", "try again later")
            if request.constraint is not None:
                stream.grammar = self._grammars.get(request.constraint)
            self._streams[request.stream_id] = stream
            self._incoming.append(stream)
            self._changed.notify()

    def stop(self, stream_id: str) -> None:
        """See `base.Engine.stop`."""
        with self._changed:
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.stopped = True
                self._changed.notify()

    def close(self) -> None:
        """See `base.Engine.close`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._grammars.close()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        if self._limits.num_threads and self._model.device.type == "cpu":
            torch.set_num_threads(self._limits.num_threads)
        with torch.inference_mode():
            while self._wait():
                try:
                    self._round()
                except Exception:  # a fault of ours must not leave every client hanging
                    log.exception("decoding failed")
                    self._end_all(FAILED)
            self._end_all(CLOSED)

    def _wait(self) -> bool:
        """Until there is something to do; False when the engine closes."""
        with self._changed:
            while not (self._closing or self._incoming or self._batches or self._prompts):
                if self._waiting:
                    # what waits while nothing runs waits for a grammar: its worker wakes us, or its time is up
                    self._changed.wait(GRAMMAR_POLL_S)
                    break
                self._changed.wait()
            self._waiting.extend(self._incoming)
            self._incoming.clear()
            return not self._closing

    def _round(self) -> None:
        self._drop_stopped()
        self._admit()
        self._prefill()
        for batch in list(self._batches):
            self._decode(batch)
        self._batches = [batch for batch in self._batches if batch.rows]
        self._settle()

    def _end_all(self, error: str) -> None:
        with self._changed:
            self._waiting.clear()
            self._incoming.clear()
            streams = list(self._streams.values())
        self._prompts.clear()
        self._batches.clear()
        for stream in streams:
            stream.end("error", error)
        self._settle()

    def _settle(self) -> None:
        """End streams that were stopped (their rows have left by now, or leave next), forget those that have ended."""
        with self._changed:
            stopped = [stream for stream in self._streams.values() if stream.stopped]
        for stream in stopped:
            stream.end("stop")
        with self._changed:
            for stream_id in [name for name, stream in self._streams.items() if stream.ended]:
                del self._streams[stream_id]

    def _drop_stopped(self) -> None:
        for batch in self._batches:
            batch.keep([row for row in batch.rows if not row.stream.stopped])
        self._batches = [batch for batch in self._batches if batch.rows]
        self._prompts = [prompt for prompt in self._prompts if not prompt.stream.stopped]
        self._waiting = deque(stream for stream in self._waiting if not stream.stopped)

    def _admit(self) -> None:
        """Move streams on whose grammar is there, in order, while rows are free."""
        running = sum(len(batch.rows) for batch in self._batches) + sum(p.stream.choices for p in self._prompts)
        held: list[Stream] = []
        while self._waiting:
            stream = self._waiting.popleft()
            grammar = stream.grammar
            error = "" if grammar is None else grammar.error or self._grammars.overdue(grammar)
            if error:
                stream.end("error", error)
            elif grammar is not None and not grammar.ready:
                held.append(stream)
            elif running + stream.choices > self._limits.max_concurrent:
                held.append(stream)
                break
            else:
                running += stream.choices
                self._prompts.append(_Prompt(stream, RowCache(self._model.config)))
        self._waiting.extendleft(reversed(held))

    def _prefill(self) -> None:
        budget = self._chunk
        while self._prompts and budget > 0:
            # the oldest and the shortest take turns: short prompts pass long ones, and none starves
            prompt = self._prompts[0] if self._oldest_first else min(self._prompts, key=lambda one: one.left)
            self._oldest_first = not self._oldest_first
            budget -= self._advance(prompt, budget)

    def _advance(self, prompt: _Prompt, budget: int) -> int:
        """Run the next piece of a prompt; returns its tokens."""
        start = prompt.cache.width
        piece = prompt.stream.request.input_ids[start : start + budget]
        try:
            logits = forward(self._model, prompt.cache, [piece], [start])
            if not prompt.left:
                self._prompts.remove(prompt)
                self._start_rows(prompt, logits)
        except Exception:
            log.exception("the prompt of a stream failed")
            if prompt in self._prompts:
                self._prompts.remove(prompt)
            prompt.stream.end("error", FAILED)
            prompt.stream.stopped = True  # some of its rows may run already
        return len(piece)

    def _start_rows(self, prompt: _Prompt, logits: torch.Tensor) -> None:
        """The prompt is done: choose each answer's first token and let the rows join."""
        stream, model = prompt.stream, self._model
        request = stream.request
        for index in range(stream.choices):
            sampler = RowSampler(request.sampling, index, request.input_ids, logits.shape[-1], model.device)
            constraint = None
            if stream.grammar is not None and request.constraint is not None:
                constraint = RowConstraint(stream.grammar.grammar, request.constraint.after_ids)
            stream.rows.append(Row(stream, index, sampler, constraint, model.vocabulary))
        live = self._take(stream.rows, logits.expand(stream.choices, -1))
        if not live:
            return
        if not prompt.cache.joinable:
            for row, cache in zip(live, prompt.cache.copies(len(live)), strict=True):
                self._batches.append(Batch(model, cache, [row]))
            return
        if len(live) > 1:
            prompt.cache.keep([0] * len(live), prompt.cache.width)
        batch = Batch(model, prompt.cache, live)
        if self._batches:
            self._batches[0].join([batch])
        else:
            self._batches.append(batch)

    def _decode(self, batch: Batch) -> None:
        try:
            logits = batch.decode()
        except Exception:
            log.exception("a decoding step of %d rows failed", len(batch.rows))
            self._rescue(batch)
            return
        batch.keep(self._take(batch.rows, logits))

    def _rescue(self, batch: Batch) -> None:
        """A step failed and was undone: find the rows that cannot go on, keep the others."""
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()
        singles = batch.split() if len(batch.rows) > 1 else []
        if not singles:
            batch.rows[0].fail(FAILED)
            batch.rows = []
            return
        for single in singles:
            self._decode(single)
        survivors = [single for single in singles if single.rows]
        batch.rows = []
        if survivors:
            batch.cache, batch.rows = survivors[0].cache, survivors[0].rows
            batch.join(survivors[1:])

    def _take(self, rows: Sequence[Row], logits: torch.Tensor) -> list[Row]:
        """Choose and send each row's next token; returns the rows that go on."""
        try:
            tokens = next_tokens(rows, logits, self._model.vocabulary)
        except Exception:
            log.exception("choosing tokens of %d rows failed", len(rows))
            if len(rows) == 1:
                rows[0].fail(FAILED)
                return []
            return [row for index, row in enumerate(rows) if self._take([row], logits[index : index + 1])]
        live = []
        for row, token in zip(rows, tokens, strict=True):
            try:
                if isinstance(token, str):
                    row.fail(token)
                elif row.take(token):
                    live.append(row)
            except Exception:
                log.exception("a row failed on its token")
                row.fail(FAILED)
        return live
