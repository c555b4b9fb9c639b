"""A chat model without an LLM: sends what the request's `script` says, one step after the other.

A step is an object with one of

    deltas     so many deltas of `step`, a MessageDelta as JSON
    delta      one MessageDelta as JSON; its tensors are made as `postprocess` makes them
    strings    {output: [text, ...]}: raw tensors, also such as no chat model sends
    empty      a response without tensors (not FINAL) where true
    sleep      seconds, in slices of 10 ms
    error      a TritonError with this text and the code `code`; it ends the request
    busy       refuse the first so many requests with this `tag`, then go on

`journal` names a file that gets one JSON line per request when it ends: {"id", "tag", "sent", "end"}.
"""

from __future__ import annotations

import json
import pathlib
import threading
import time
from collections import Counter
from typing import Any

import triton_python_backend_utils as pb_utils

from tristream.backend.errors import UnavailableError
from tristream.backend.responder import triton_error
from tristream.backend.tensors import message_tensors, text_tensor
from tristream.parsers import MessageDelta, Notice, ToolCallDelta, Usage

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Script in, responses out; one thread for each request."""

    def initialize(self, args: dict[str, Any]) -> None:
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            threading.Thread(target=self._run, args=(request,), daemon=True).start()

    def _run(self, request: Any) -> None:
        body = json.loads(pb_utils.get_input_tensor_by_name(request, "request").as_numpy()[0])
        sender = request.get_response_sender()
        sent, end = 0, "final"
        try:
            for response in self._responses(body, sender):
                if response is None:
                    end = "cancelled"
                    break
                if response.has_error():
                    end = "error"
                    break
                sender.send(response)
                sent += 1
        finally:
            # An error goes with FINAL in one send: anything sent after an error can kill the server.
            sender.send(response, flags=FINAL) if end == "error" else sender.send(flags=FINAL)
            entry = {"id": request.request_id(), "tag": body.get("tag", ""), "sent": sent, "end": end}
            if "journal" in body:
                with self._lock, pathlib.Path(body["journal"]).open("a", encoding="utf-8") as journal:
                    journal.write(json.dumps(entry) + "\n")

    def _responses(self, body: dict[str, Any], sender: Any) -> Any:
        for step in body.get("script", []):
            if sender.is_cancelled():
                yield None
            if "sleep" in step:
                until = time.monotonic() + step["sleep"]
                while time.monotonic() < until:
                    time.sleep(0.01)
                    if sender.is_cancelled():
                        yield None
            elif "deltas" in step:
                for index in range(step["deltas"]):
                    if index % 16 == 0 and sender.is_cancelled():
                        yield None
                    yield pb_utils.InferenceResponse(message_tensors(pb_utils, delta_of(step["step"])))
            elif "delta" in step:
                yield pb_utils.InferenceResponse(message_tensors(pb_utils, delta_of(step["delta"])))
            elif "strings" in step:
                tensors = [text_tensor(pb_utils, name, values) for name, values in step["strings"].items()]
                yield pb_utils.InferenceResponse(tensors)
            elif "empty" in step:
                yield pb_utils.InferenceResponse([])
            elif "error" in step:
                code = getattr(pb_utils.TritonError, step["code"])
                yield pb_utils.InferenceResponse(error=pb_utils.TritonError(step["error"], code))
            elif "busy" in step:
                with self._lock:
                    self._seen[body["tag"]] += 1
                    busy = self._seen[body["tag"]] <= step["busy"]
                if busy:
                    error = UnavailableError("max_streams", "all 3 in use", "try again later")
                    yield pb_utils.InferenceResponse(error=triton_error(pb_utils, error))


def delta_of(members: dict[str, Any]) -> MessageDelta:
    """A MessageDelta from its JSON form."""
    values = dict(members)
    values["tool_calls"] = tuple(ToolCallDelta(**call) for call in values.get("tool_calls", ()))
    values["notices"] = tuple(Notice(**notice) for notice in values.get("notices", ()))
    if "usage" in values:
        values["usage"] = Usage(**values["usage"])
    for name in ("token_ids", "logprobs", "reasoning_logprobs"):
        values[name] = tuple(values.get(name, ()))
    return MessageDelta(**values)
