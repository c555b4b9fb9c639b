"""Streams and their rows: what one request, and each of its n answers, has come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .base import FinishReason, GenerationRequest, Sink, Step
from .constraints import CompiledGrammar, RowConstraint
from .sampling import RowSampler
from .stopping import StopMatcher
from .vocabulary import Vocabulary

__all__ = ["Row", "Stream", "Token"]


class Token(NamedTuple):
    """A generated token, with its entry of `logprobs` where that was asked for."""

    id: int
    logprobs: Mapping[str, Any] | None = None


def _nowhere(_step: Step) -> None:
    """The sink of a stream that has ended."""


class Stream:
    """One request.

    Args:
        request: what was asked.
        sink: where its steps go.
        limit: most tokens of each answer.

    `grammar` is that of its constraint, maybe still on its way; `stopped` that nobody wants more of it.
    """

    __slots__ = ("_ended", "grammar", "limit", "request", "rows", "sink", "stopped")

    def __init__(self, request: GenerationRequest, sink: Sink, limit: int) -> None:
        self.request = request
        self.sink = sink
        self.limit = limit
        self.grammar: CompiledGrammar | None = None
        self.rows: list[Row] = []
        self.stopped = False
        self._ended: set[int] = set()

    @property
    def choices(self) -> int:
        """How many answers it has."""
        return self.request.sampling.n

    @property
    def ended(self) -> bool:
        """Has its last step been sent?"""
        return len(self._ended) == self.choices

    def send(self, index: int, tokens: list[Token], finish_reason: FinishReason | None, error: str, sent: int) -> None:
        """One step of a choice.

        Args:
            index: which choice.
            tokens: new tokens.
            finish_reason: it ends with them.
            error: why, with finish_reason `error`.
            sent: tokens of this choice sent in all.
        """
        if index in self._ended or (not tokens and finish_reason is None):
            return
        if finish_reason is not None:
            self._ended.add(index)
        step = Step(
            tuple(token.id for token in tokens),
            finish_reason,
            error,
            tuple(token.logprobs for token in tokens if token.logprobs is not None),
            index,
            len(self.request.input_ids) if finish_reason is not None else 0,
            sent if finish_reason is not None else 0,
            self.ended,
        )
        try:
            self.sink(step)
        except Exception:  # noqa: BLE001 - whoever listens has gone; the other streams go on
            self.stopped = True
        if self.ended:
            # A stream and its rows refer to each other; what the sink holds (a request of the server, which cannot be
            # unloaded before it is let go) must not wait for the garbage collector.
            self.sink = _nowhere

    def end(self, finish_reason: FinishReason, error: str = "") -> None:
        """End every choice that has not ended."""
        for index in range(self.choices):
            sent = self.rows[index].sent if self.rows else 0
            self.send(index, [], finish_reason, error, sent)


class Row:
    """One answer that is being generated.

    Args:
        stream: whose.
        index: which of its choices.
        sampler: how it chooses.
        constraint: what it is held to.
        vocabulary: of the model.
    """

    __slots__ = (
        "_generated",
        "_stops",
        "_vocabulary",
        "constraint",
        "index",
        "last_token",
        "length",
        "sampler",
        "sent",
        "stream",
    )

    def __init__(
        self,
        stream: Stream,
        index: int,
        sampler: RowSampler,
        constraint: RowConstraint | None,
        vocabulary: Vocabulary,
    ) -> None:
        self.stream = stream
        self.index = index
        self.sampler = sampler
        self.constraint = constraint
        self.length = len(stream.request.input_ids)
        self.last_token = -1
        self.sent = 0
        self._generated = 0
        self._vocabulary = vocabulary
        self._stops: StopMatcher[Token] = StopMatcher(sampler.sampling.stop)

    def take(self, token: Token) -> bool:
        """The row's next token was chosen; send what may be sent.

        Returns:
            Whether the row goes on.
        """
        self._generated += 1
        self.last_token = token.id
        self.sampler.note(token.id)
        if self.constraint is not None and not self.constraint.accept(token.id):
            return self._send([], "error", "the constraint forbids the token that was chosen")
        if self._ends(token.id):
            return self._send([*self._stops.flush(), token], "stop")
        tokens, stopped = self._stops.push(token, self._vocabulary.spelling(token.id))
        if stopped:
            return self._send(tokens, "stop")
        if self._generated >= self.stream.limit:
            return self._send([*tokens, *self._stops.flush()], "length")
        return self._send(tokens)

    def fail(self, error: str) -> None:
        """End this row alone."""
        self._send([], "error", error)

    def _ends(self, token: int) -> bool:
        ends = self._vocabulary.end_ids
        if token in ends and not self.sampler.sampling.ignore_eos:
            return True
        if self.constraint is None:
            return False
        # a model without an end token cannot say that it has come to the end of the grammar
        return self.constraint.ended or (not ends and self.constraint.complete)

    def _send(self, tokens: list[Token], finish_reason: FinishReason | None = None, error: str = "") -> bool:
        self.sent += len(tokens)
        self.stream.send(self.index, tokens, finish_reason, error, self.sent)
        return finish_reason is None and not self.stream.stopped
