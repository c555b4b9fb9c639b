"""Grammars: compiled in workers within a time bound, shared by content, followed row by row.

Compiling is where a hostile schema costs: it runs in a few worker threads (xgrammar lets go of the interpreter
lock) and is given up after a bound, counted in the worker's own CPU time, so that a busy machine refuses nothing that
an idle one serves. A thread cannot be killed, so a grammar that was given up runs on; it is refused at once as long as
it does, and at most `workers` of them can. xgrammar's lazy compilation is not used: it moves the cost to the first
mask (26 s for an enum of 4096 values), where it would stop every stream.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import xgrammar

from tristream.backend.errors import UnavailableError
from tristream.parsers.errors import RequestError

from .base import Constraint

__all__ = ["CompiledGrammar", "GrammarStore", "RowConstraint", "forbid"]

MAX_BLANKS: Final = 16
"""Most blanks in a row between JSON's tokens: a small model likes to write them for ever."""
MAX_PENDING: Final = 256
"""Most grammars that wait for a worker: streams that ask for one and go again must not pile up work."""
TRY_LATER: Final = "try again later"
PATIENCE: Final = 10
"""Most wall time to wait for a grammar, in multiples of the CPU time it may take."""


class CompiledGrammar:
    """A grammar on its way: `ready`, then `grammar` or `error`."""

    __slots__ = ("clock", "error", "grammar", "key", "ready", "started", "submitted")

    def __init__(self, key: str) -> None:
        self.key = key
        self.submitted = time.monotonic()
        self.clock: int | None = None
        self.started = 0.0
        self.ready = False
        self.grammar: Any = None
        self.error = ""

    def cpu_s(self) -> float | None:
        """Seconds of CPU time it has taken; None while it waits for a worker."""
        return None if self.clock is None else time.clock_gettime(self.clock) - self.started

    @property
    def size(self) -> int:
        """Bytes it takes; 0 while it is on its way."""
        return 0 if self.grammar is None else int(self.grammar.memory_size_bytes)


@dataclass(frozen=True, slots=True)
class _Job:
    pending: CompiledGrammar
    constraint: Constraint


class GrammarStore:
    """Compiles each grammar once.

    Args:
        tokenizer_info: xgrammar's.
        timeout_s: most seconds of CPU time one may take.
        capacity_bytes: most bytes of compiled grammars kept, least recently used go first.
        workers: threads that compile.
        on_ready: called on a worker's thread whenever one is done.
    """

    def __init__(
        self,
        tokenizer_info: Any,
        *,
        timeout_s: float = 1.0,
        capacity_bytes: int = 256 * 1024 * 1024,
        workers: int = 2,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        # Its cache shares parts (the bound on the reasoning) between grammars with other tools. One thread each: more
        # would take the cores that decode, and hide their CPU time.
        self._compiler = xgrammar.GrammarCompiler(tokenizer_info, max_threads=1, cache_limit_bytes=capacity_bytes)
        self._timeout_s = timeout_s
        self._capacity_bytes = capacity_bytes
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._known: OrderedDict[str, CompiledGrammar] = OrderedDict()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._workers = workers
        for number in range(workers):
            # daemons: one that is stuck in a grammar must not keep the process alive
            threading.Thread(target=self._work, name=f"grammar-{number}", daemon=True).start()

    def get(self, constraint: Constraint) -> CompiledGrammar:
        """The grammar of a constraint, compiled or on its way. Never waits."""
        key = hashlib.sha256(f"{constraint.kind}\0{constraint.source}".encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            pending = self._known.get(key)
            if pending is None:
                pending = CompiledGrammar(key)
                if self._jobs.qsize() >= MAX_PENDING:
                    found = f"{MAX_PENDING} grammars wait to be compiled"
                    pending.error, pending.ready = str(UnavailableError("compile_queue", found, TRY_LATER)), True
                    return pending
                self._known[key] = pending
                self._jobs.put(_Job(pending, constraint))
            self._known.move_to_end(key)
        return pending

    def overdue(self, pending: CompiledGrammar) -> str:
        """Why to give this grammar up now, or "" to go on waiting."""
        if pending.ready:
            return ""
        spent = pending.cpu_s()
        if spent is not None and spent > self._timeout_s:
            found = f"a grammar that takes more than {self._timeout_s:g} s to compile (compile_timeout_s)"
            return str(RequestError("constraint", found, "a smaller or simpler one"))
        if time.monotonic() - pending.submitted > PATIENCE * self._timeout_s:
            found = f"a grammar was not compiled within {PATIENCE * self._timeout_s:g} s: compilers are busy"
            return str(UnavailableError("compile_timeout_s", found, TRY_LATER))
        return ""

    def close(self) -> None:
        """Let the workers end."""
        for _ in range(self._workers):
            self._jobs.put(None)

    def _work(self) -> None:
        clock = time.pthread_getcpuclockid(threading.get_ident())
        while (job := self._jobs.get()) is not None:
            pending = job.pending
            # the start before the clock: who sees the clock must see the start
            pending.started = time.thread_time()
            pending.clock = clock
            try:
                pending.grammar = self._compile(job.constraint)
            except Exception as error:  # noqa: BLE001 - xgrammar raises RuntimeError, ValueError and pydantic's own
                pending.error = str(
                    RequestError("constraint", f"no grammar: {_reason(error)}", "what xgrammar compiles")
                )
            pending.ready = True
            with self._lock:
                if pending.error:
                    self._known.pop(pending.key, None)
                self._evict()
            self._on_ready()

    def _evict(self) -> None:
        total = sum(known.size for known in self._known.values())
        for known in list(self._known.values()):
            if total <= self._capacity_bytes:
                return
            if known.ready:
                del self._known[known.key]
                total -= known.size

    def _compile(self, constraint: Constraint) -> Any:
        source = json.loads(constraint.source)
        if constraint.kind == "regex":
            return self._compiler.compile_regex(source)
        if constraint.kind == "json_schema":
            return self._compiler.compile_json_schema(constraint.source, max_whitespace_cnt=MAX_BLANKS)
        if source.get("type") != "structural_tag":
            source = {"type": "structural_tag", "format": source}
        return self._compiler.compile_structural_tag(source)


class RowConstraint:
    """One row's way through a grammar.

    Args:
        grammar: compiled.
        after_ids: start after one of these id sequences; none: at once.
    """

    __slots__ = ("_after", "_grammar", "_matcher", "_reach", "_recent")

    def __init__(self, grammar: Any, after_ids: Sequence[Sequence[int]] = ()) -> None:
        self._grammar = grammar
        self._after = tuple(tuple(ids) for ids in after_ids)
        self._reach = max(map(len, self._after), default=0)
        self._recent: tuple[int, ...] = ()
        self._matcher: Any = None if self._after else xgrammar.GrammarMatcher(grammar)

    @property
    def active(self) -> bool:
        """Does it bind the next token?"""
        return self._matcher is not None and not self._matcher.is_terminated()

    def fill(self, bitmask: torch.Tensor, row: int) -> bool:
        """Write the allowed next tokens into a row of the bitmask; False if all are."""
        return bool(self._matcher.fill_next_token_bitmask(bitmask, row))

    def accept(self, token: int) -> bool:
        """Take the chosen token; False if the grammar forbids it."""
        if self._matcher is not None:
            return bool(self._matcher.accept_token(token))
        self._recent = (*self._recent, token)[-self._reach :]
        if any(self._recent[-len(ids) :] == ids for ids in self._after):
            self._matcher = xgrammar.GrammarMatcher(self._grammar)
        return True

    @property
    def ended(self) -> bool:
        """Is the grammar complete, the end token taken?"""
        return self._matcher is not None and bool(self._matcher.is_terminated())

    @property
    def complete(self) -> bool:
        """Would the output be right if it ended here?"""
        return self._matcher is not None and bool(self._matcher.is_completed())


def forbid(logits: torch.Tensor, constraints: Sequence[RowConstraint | None]) -> None:
    """Set the logits of tokens that a row's constraint forbids to -inf, in place.

    Args:
        logits: float32 [rows, vocabulary].
        constraints: one for each row.
    """
    active = [row for row, constraint in enumerate(constraints) if constraint is not None and constraint.active]
    if not active:
        return
    bitmask = xgrammar.allocate_token_bitmask(len(constraints), logits.shape[-1])
    bound = [row for row in active if _of(constraints, row).fill(bitmask, row)]
    if bound:
        xgrammar.apply_token_bitmask_inplace(logits, bitmask.to(logits.device, non_blocking=True), indices=bound)


def _of(constraints: Sequence[RowConstraint | None], row: int) -> RowConstraint:
    constraint = constraints[row]
    assert constraint is not None
    return constraint


def _reason(error: BaseException) -> str:
    """xgrammar's message without its source positions."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    _, mark, rest = text.partition(".cc:")
    return (rest.partition(": ")[2] if mark else text)[:300]
