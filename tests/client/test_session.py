"""What a failure means, when a request goes out again, and which deadline passes next: without a server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tristream.backend.errors import UnavailableError
from tristream.client import (
    ChatError,
    DeadlineExceeded,
    Deadlines,
    ModelNotReady,
    RequestRefused,
    Retries,
    ServerBusy,
    ServerFailed,
    ServerUnreachable,
    StreamBroken,
)
from tristream.client.decode import pack_strings
from tristream.client.session import Session, fold_choices
from tristream.parsers import MessageDelta, RequestError, UsageError

BODY = {"messages": [{"role": "user", "content": "hi"}]}


def session(body: Any = None, deadlines: Deadlines | None = None, retries: Retries | None = None) -> Session:
    made = Session("host:8001", "chat", body or BODY, deadlines or Deadlines(), retries or Retries())
    made.connecting()
    made.next_request()
    return made


def message(error: str = "", *, final: bool = False, **texts: str) -> Any:
    """A `ModelStreamInferResponse`."""
    answer = service_pb2.ModelStreamInferResponse(error_message=error)
    for name, text in texts.items():
        answer.infer_response.outputs.add(name=name, datatype="BYTES", shape=[1, 1])
        answer.infer_response.raw_output_contents.append(pack_strings((text.encode(),)))
    answer.infer_response.parameters["triton_final_response"].bool_param = final
    return answer


# As Triton 2.51 sends them, and as backend/errors.py and responder.py word them.
TEXTS = [
    ("Request for unknown model: 'chat' is not found", ModelNotReady, False),
    ("Request for unknown model: 'chat' has no available versions", ModelNotReady, True),
    ("[request id: 4a] unexpected inference input 'foo' for model 'chat'", RequestRefused, False),
    ("in ensemble 'chat', messages: found nothing; allowed: a list", RequestRefused, False),
    (f"in ensemble 'chat', {UnavailableError('max_streams', '4 live', 'try later')}", ServerBusy, True),
    ("[request id: <id_unknown>] Exceeds maximum queue size", ServerBusy, True),
    ("internal error; the server's log tells more", ServerFailed, False),
    (
        "Failed to process the request(s) for model 'chat_0_0', message: Stub process 'x' is not healthy.",
        ServerFailed,
        False,
    ),
]


@pytest.mark.parametrize(("text", "kind", "transient"), TEXTS)
def test_an_error_text_before_the_first_delta(text: str, kind: type[ChatError], transient: bool) -> None:
    with pytest.raises(ChatError) as caught:
        session().receive(message(text))
    assert type(caught.value) is kind
    assert caught.value.transient is transient
    assert "request id" not in str(caught.value)
    assert "in ensemble" not in str(caught.value)


@pytest.mark.parametrize(("text", "kind", "_transient"), TEXTS)
def test_any_error_text_after_it_is_a_broken_stream(text: str, kind: type[ChatError], _transient: bool) -> None:
    running = session()
    running.receive(message(content="so far"))
    with pytest.raises(StreamBroken) as caught:
        running.receive(message(text))
    assert caught.value.received.content == "so far"
    assert running.retry_delay(caught.value) is None


@pytest.mark.parametrize(
    ("code", "kind", "transient"),
    [
        ("UNAVAILABLE", ServerUnreachable, True),
        ("UNIMPLEMENTED", ServerUnreachable, False),
        ("NOT_FOUND", ModelNotReady, False),
        ("INVALID_ARGUMENT", RequestRefused, False),
        ("RESOURCE_EXHAUSTED", RequestRefused, False),
        ("UNAUTHENTICATED", RequestRefused, False),
        ("INTERNAL", ServerFailed, False),
        ("CANCELLED", ServerFailed, False),
        ("DEADLINE_EXCEEDED", ServerFailed, False),  # not a deadline of ours: none is set
    ],
)
def test_a_failed_call(code: str, kind: type[ChatError], transient: bool) -> None:
    error = session().failed(code, "said gRPC")
    assert type(error) is kind
    assert error.transient is transient
    assert "said gRPC" in str(error)
    running = session()
    running.receive(message(content="x"))
    assert type(running.failed(code, "said gRPC")) is StreamBroken


def test_grpcs_deadline_is_ours_where_total_is_set() -> None:
    running = session(deadlines=Deadlines(total=7))
    error = running.failed("DEADLINE_EXCEEDED", "Deadline Exceeded")
    assert isinstance(error, DeadlineExceeded)
    assert (error.which, error.seconds) == ("total", 7)


def test_every_error_says_what_to_do() -> None:
    running = session()
    errors = [
        running.failed("UNAVAILABLE", "refused"),
        running.failed("NOT_FOUND", "no"),
        running.refused("server busy: limit x reached: y"),
        running.failed("INTERNAL", "bang"),
        running.expired(running.expiry()),
        running.expired(running.expiry(connecting=True)),
    ]
    advice = ("Is it running", "Check its log", "Try again later", "log says more", "Allow more", "Is it running")
    for error, word in zip(errors, advice, strict=True):
        assert word in str(error)


def test_deltas_are_read_and_the_end_is_checked() -> None:
    running = session()
    assert running.receive(message()) is None
    assert running.receive(message(content="a")) == MessageDelta(content="a")
    with pytest.raises(StreamBroken, match="without a finish_reason"):
        running.end()
    assert running.receive(message(finish_reason="stop")) == MessageDelta(finish_reason="stop")
    finals = [running.final]
    assert running.receive(message(final=True)) is None
    assert [*finals, running.final] == [False, True]
    running.end()


def test_each_choice_needs_its_end() -> None:
    running = session({"n": 2})
    running.receive(message(finish_reason="stop"))
    with pytest.raises(StreamBroken):
        running.end()
    running.receive(message(finish_reason="length"))
    running.end()


@pytest.mark.parametrize("n", [None, 0, -1, "two", 1.5, True])
def test_a_wrong_n_is_left_to_the_server(n: Any) -> None:
    running = session({"n": n})
    running.receive(message(finish_reason="stop"))
    running.end()


def test_tensors_of_another_model() -> None:
    with pytest.raises(StreamBroken, match="is 'chat' a chat model"):
        session().receive(message(text_output="x"))


def test_every_try_has_its_own_id_and_the_same_body() -> None:
    running = Session("host:8001", "chat", BODY, Deadlines(), Retries())
    first, second = running.next_request(), running.next_request()
    assert first.id != second.id
    assert len(first.id) == len(second.id) == 32
    assert first.raw_input_contents == second.raw_input_contents
    assert first.parameters["triton_enable_empty_final_response"].bool_param


def test_retries_are_bounded_and_grow() -> None:
    running = session(retries=Retries(tries=3, delay=1.0, max_delay=1.5))
    error = running.failed("UNAVAILABLE", "x")
    delays = []
    while (delay := running.retry_delay(error)) is not None:
        delays.append(delay)
        running.next_request()
    assert len(delays) == 2
    assert 0.5 <= delays[0] <= 1.0
    assert 0.75 <= delays[1] <= 1.5


def test_no_retry_that_the_total_deadline_would_cut() -> None:
    running = session(deadlines=Deadlines(total=0.05), retries=Retries(delay=10.0, max_delay=10.0))
    assert running.retry_delay(running.failed("UNAVAILABLE", "x")) is None


def test_which_deadline_passes_next() -> None:
    limits = Deadlines(connect=1, first_delta=2, idle=3, total=2.5)
    running = session(deadlines=limits)
    assert running.expiry(connecting=True).which == "connect"
    assert running.expiry().which == "first_delta"
    running.receive(message(content="x"))
    running.waiting()
    assert running.expiry().which == "total"
    assert session(deadlines=Deadlines(None, None, None, None)).expiry().remaining is None


def test_a_slow_reader_is_no_silent_server() -> None:
    running = session(deadlines=Deadlines(idle=0.05))
    running.receive(message(content="x"))
    time.sleep(0.1)
    running.waiting()
    remaining = running.expiry().remaining
    assert remaining is not None
    assert remaining > 0


@pytest.mark.parametrize("field", ["connect", "first_delta", "idle", "total"])
def test_deadlines_are_checked(field: str) -> None:
    for value in (0, -1, float("nan")):
        with pytest.raises(UsageError, match=field):
            Deadlines(**{field: value})


def test_a_number_bounds_the_whole_chat() -> None:
    default = Deadlines(connect=1, first_delta=2)
    assert Deadlines.of(9.0, default) == Deadlines(connect=1, first_delta=2, total=9.0)
    assert Deadlines.of(None, default) is default
    assert Deadlines.of(Deadlines(idle=1), default) == Deadlines(idle=1)


def test_retries_are_checked() -> None:
    for wrong in ({"tries": 0}, {"delay": -1.0}, {"max_delay": -1.0}):
        with pytest.raises(UsageError, match="tries"):
            Retries(**wrong)


def test_a_body_must_be_json() -> None:
    for body, said in (
        ({"x": float("nan")}, "JSON"),
        ({"x": object()}, "JSON"),
        ({"x": "\ud800"}, "surrogate"),
        ("hello", "mapping"),
    ):
        with pytest.raises(RequestError, match=said):
            Session("u", "m", body, Deadlines(), Retries())  # type: ignore[arg-type]


def test_choices_are_folded_apart() -> None:
    deltas = [MessageDelta(content="a"), MessageDelta(content="x", choice_index=1), MessageDelta(content="b")]
    assert [whole.content for whole in fold_choices(deltas)] == ["ab", "x"]
    assert len(fold_choices([])) == 1
