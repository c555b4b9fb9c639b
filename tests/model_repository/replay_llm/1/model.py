"""A stand-in for `llm`: the same tensors, but it replays texts token by token instead of generating them.

What is replayed stands in the prompt, as `replay:{...}` with these members, all but one of the first three optional:

    case       id of a case in the file `vectors`: its `output`, ended by its `finish`
    text       a text
    words      so many times one token (" the")
    finish     finish_reason: stop (default) or length
    size       tokens per response (1)
    delay_ms   pause before each response (0)
    late       true: `meta` bears the text too, one response later than its ids
    fail_after tokens after which it fails, in the way `fail` says:
    fail       in_band: a step with finish_reason `error`; error: a Triton error; silent: FINAL and no end at all;
               hang: nothing more, until it is stopped or cancelled
    refuse     a text: refuses the request with INVALID_ARG and this text
    gate       [name, k]: begins when k streams of this gate have come
    tag        how the journal names this stream

Like an engine that decodes in batches it has one thread, on which all live streams take turns. `sampling` counts as
far as n, logprobs and max_tokens go. When a stream ends, the journal gets a line:
{"tag", "stream_id", "sent" (tokens), "end" (stop, length, cancelled, stopped, failed), "constraint"}.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

MARK = "replay:"
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
TAIL_TOKENS = 4096  # of the prompt; the directive stands in its last message


class Play:
    """One request that is being replayed."""

    def __init__(self, sender: Any, stream_id: str, directive: dict[str, Any], sampling: dict[str, Any]) -> None:
        self.sender = sender
        self.stream_id = stream_id
        self.directive = directive
        self.sampling = sampling
        self.constraint = ""
        self.steps: list[tuple[list[int], str]] = []  # ids and `meta` of each response
        self.end = "stop"
        self.place = 0
        self.sent = 0
        self.unchecked = 0
        self.stopped = False
        self.due = 0.0


class TritonPythonModel:
    """Prompt in, recorded tokens out."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        settings = {name: value["string_value"] for name, value in parameters.items()}
        self.tokenizer = Tokenizer.from_file(settings["tokenizer"])
        self.check_every = int(settings["cancel_check_tokens"])
        self.journal = settings["journal"]
        self.cases: dict[str, dict[str, Any]] = {}
        if settings["vectors"]:
            for line in Path(settings["vectors"]).read_text(encoding="utf-8").splitlines():
                case = json.loads(line)
                self.cases[case["id"]] = case
        (self.word,) = self.encode(" the")
        self.live: dict[str, Play] = {}
        self.gates: dict[str, list[Play]] = {}
        self.queue: list[tuple[float, int, Play]] = []  # when it is whose turn
        self.numbers = itertools.count()
        self.news = threading.Condition()
        self.closing = False
        self.thread = threading.Thread(target=self.run, name="decoding", daemon=True)
        self.thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.take(request, sender)
            except Exception as error:
                answer = pb_utils.TritonError(f"{type(error).__name__}: {error}", pb_utils.TritonError.INVALID_ARG)
                sender.send(pb_utils.InferenceResponse([], error=answer), flags=FINAL)

    def finalize(self) -> None:
        with self.news:
            self.closing = True
            self.news.notify()
        self.thread.join(timeout=5)

    def take(self, request: Any, sender: Any) -> None:
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        stream_id = inputs["stream_id"][0].decode()
        if "stop" in inputs and inputs["stop"][0]:
            with self.news:
                if stream_id in self.live:
                    self.live[stream_id].stopped = True
            sender.send(flags=FINAL)
            return
        text = self.tokenizer.decode(inputs["input_ids"][-TAIL_TOKENS:].tolist(), skip_special_tokens=False)
        if MARK not in text:
            text += MARK + json.dumps({"text": "no directive", "tag": "no directive"})
        directive, _ = json.JSONDecoder().raw_decode(text, text.rindex(MARK) + len(MARK))
        if "refuse" in directive:
            raise ValueError(directive["refuse"])
        play = Play(sender, stream_id, directive, json.loads(inputs["sampling"][0]) if "sampling" in inputs else {})
        play.constraint = inputs["constraint"][0].decode() if "constraint" in inputs else ""
        steps = list(self.steps(play, inputs["input_ids"].size))
        play.end = str(steps[-1][1].get("finish_reason", "stop"))
        # Written beforehand: replaying should cost little, so that what is measured is not this model.
        play.steps = [(token_ids, json.dumps(meta, ensure_ascii=False) if meta else "") for token_ids, meta in steps]
        with self.news:
            if stream_id in self.live:
                raise ValueError(f"stream_id: found {stream_id}, which is live; allowed: a fresh one")
            self.live[stream_id] = play
            for ready in self.through_gate(play):
                self.schedule(ready)
            self.news.notify()

    def through_gate(self, play: Play) -> list[Play]:
        if "gate" not in play.directive:
            return [play]
        name, size = play.directive["gate"]
        waiting = self.gates.setdefault(name, [])
        waiting.append(play)
        return self.gates.pop(name) if len(waiting) >= size else []

    def schedule(self, play: Play) -> None:
        now = time.monotonic()
        play.due = max((play.due or now) + play.directive.get("delay_ms", 0) / 1000, now)
        heapq.heappush(self.queue, (play.due, next(self.numbers), play))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def steps(self, play: Play, prompt_tokens: int) -> Any:
        """What is sent, response by response; the choices of a request take turns."""
        choices = play.sampling.get("n") or 1
        plans = [list(self.choice_steps(play, prompt_tokens)) for _ in range(choices)]
        for turn in itertools.zip_longest(*plans):
            for index, step in enumerate(turn):
                if step is not None:
                    token_ids, meta = step
                    if choices > 1:
                        meta = {**meta, "choice_index": index}
                    yield token_ids, meta
        if choices > 1:
            yield [], {"last": True, "choice_index": 0}

    def choice_steps(self, play: Play, prompt_tokens: int) -> Any:
        directive, sampling = play.directive, play.sampling
        case = self.cases[directive["case"]] if "case" in directive else {}
        reason = directive.get("finish") or case.get("finish") or "stop"
        if "words" in directive:
            ids = [self.word] * int(directive["words"])
        else:
            ids = self.encode(directive.get("text", case.get("output", "")))
        bound = sampling.get("max_tokens")
        if bound is not None and bound < len(ids):
            ids, reason = ids[:bound], "length"
        late = bool(directive.get("late"))
        size = directive.get("size", 1)
        pieces = [ids[at : at + size] for at in range(0, len(ids), size)] or [[]]
        end = {"finish_reason": reason, "prompt_tokens": prompt_tokens, "completion_tokens": len(ids)}
        shown = 0
        for number, piece in enumerate(pieces, 1):
            meta: dict[str, Any] = {}
            if sampling.get("logprobs"):
                meta["logprobs"] = [self.logprob(token_id) for token_id in piece]
            if late:
                text = self.text(ids[: (number - 1) * size]).rstrip("\ufffd")  # characters that are whole
                meta["text"], shown = text[shown:], max(shown, len(text))
            if number == len(pieces) and not late:
                meta.update(end)
            yield piece, meta
        if late:
            yield [], {"text": self.text(ids)[shown:], **end}

    def text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def logprob(self, token_id: int) -> dict[str, Any]:
        token = self.text([token_id])
        return {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}

    def run(self) -> None:
        while True:
            with self.news:
                while not self.closing and (not self.queue or self.queue[0][0] > time.monotonic()):
                    pause = self.queue[0][0] - time.monotonic() if self.queue else None
                    self.news.wait(pause if pause is None else max(pause, 0))
                if self.closing:
                    return
                play = heapq.heappop(self.queue)[2]
            try:
                ended = self.advance(play)
            except Exception as error:
                pb_utils.Logger.log_error(f"replay_llm: {type(error).__name__}: {error}")
                ended = "failed"
            with self.news:
                if ended:
                    del self.live[play.stream_id]
                else:
                    self.schedule(play)
            if ended:
                self.note(play, ended)

    def advance(self, play: Play) -> str:
        """One response of a stream; how the stream ended, or "" while it goes on."""
        directive = play.directive
        if play.stopped:
            end = {"finish_reason": "stop", "completion_tokens": play.sent, "last": True}
            self.send(play, [], json.dumps(end), final=True)
            return "stopped"
        if play.unchecked >= self.check_every:
            play.unchecked = 0
            if play.sender.is_cancelled():
                play.sender.send(flags=FINAL)
                return "cancelled"
        token_ids, meta = play.steps[play.place]
        if play.sent >= directive.get("fail_after", 1 << 31):
            if directive.get("fail") == "hang":
                play.unchecked = self.check_every
                directive["delay_ms"] = 50
                return ""
            self.fail(play, directive.get("fail", "in_band"))
            return "failed"
        play.place += 1
        play.sent += len(token_ids)
        play.unchecked += len(token_ids)
        final = play.place == len(play.steps)
        self.send(play, token_ids, meta, final=final)
        return play.end if final else ""

    def fail(self, play: Play, way: str) -> None:
        if way == "in_band":
            meta = {"finish_reason": "error", "error": "CUDA out of memory", "last": True}
            self.send(play, [], json.dumps(meta), final=True)
        elif way == "error":
            error = pb_utils.TritonError("CUDA out of memory", pb_utils.TritonError.INTERNAL)
            play.sender.send(pb_utils.InferenceResponse([], error=error), flags=FINAL)
        else:
            play.sender.send(flags=FINAL)

    def send(self, play: Play, token_ids: list[int], meta: str, *, final: bool) -> None:
        tensors = [
            pb_utils.Tensor("stream_id", np.array([[play.stream_id.encode()]], np.object_)),
            pb_utils.Tensor("token_ids", np.array([token_ids], np.int32).reshape(1, len(token_ids))),
            pb_utils.Tensor("meta", np.array([[meta.encode()]], np.object_)),
        ]
        response = pb_utils.InferenceResponse(tensors)
        if final:
            play.sender.send(response, flags=FINAL)
        else:
            play.sender.send(response)

    def note(self, play: Play, end: str) -> None:
        if not self.journal:
            return
        entry = {
            "tag": play.directive.get("tag", ""),
            "stream_id": play.stream_id,
            "sent": play.sent,
            "end": end,
            "constraint": play.constraint,
        }
        # One write: other streams' lines and readers see it whole.
        handle = os.open(self.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(handle, (json.dumps(entry) + "\n").encode())
        os.close(handle)
