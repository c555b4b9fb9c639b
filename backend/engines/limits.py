"""What an engine may take, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from tristream.parsers.errors import RequestError

from .base import GenerationRequest
from .loading import LoadedModel

__all__ = ["EngineLimits"]


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine may take.

    Args:
        max_concurrent: most answers decoded at once.
        max_queue: most answers that wait for their turn; further requests are refused.
        prefill_chunk: most prompt tokens between two decoding steps; 0 is 128 on a CPU, 2048 on a GPU.
        compile_timeout_s: most seconds of CPU time for a grammar.
        grammar_cache_mb: most MiB of compiled grammars.
        num_threads: threads of a CPU's forward pass; 0 leaves it to torch.
    """

    max_concurrent: int = 16
    max_queue: int = 64
    prefill_chunk: int = 0
    compile_timeout_s: float = 1.0
    grammar_cache_mb: int = 256
    num_threads: int = 0

    def check(self, request: GenerationRequest, model: LoadedModel) -> int:
        """Refuse what can never be served.

        Returns:
            The most tokens of an answer.

        Raises:
            RequestError: no stream_id, no prompt or one longer than the context, an unknown id, too many answers.
        """
        length, context = len(request.input_ids), model.context
        if not request.stream_id:
            raise RequestError("stream_id", "an empty text", "an id that no other live stream has")
        if not 0 < length < context:
            raise RequestError("input_ids", f"{length} tokens", f"1 to {context - 1}: the context has {context}")
        lowest, highest = min(request.input_ids), max(request.input_ids)
        if lowest < 0 or highest >= model.vocab_size:
            found = str(lowest if lowest < 0 else highest)
            raise RequestError("input_ids", f"the id {found}", f"0 to {model.vocab_size - 1}")
        if request.sampling.n > self.max_concurrent:
            allowed = f"at most {self.max_concurrent} (max_concurrent)"
            raise RequestError("sampling.n", str(request.sampling.n), allowed)
        return min(context - length, request.sampling.max_tokens or context)
