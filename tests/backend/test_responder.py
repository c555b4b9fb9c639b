from __future__ import annotations

from typing import Any

import pytest

from tristream.backend.errors import BUSY_PREFIX, SettingsError, UnavailableError
from tristream.backend.responder import Responder, triton_error
from tristream.backend.tensors import text_tensor
from tristream.parsers.errors import FormatDefinitionError, RequestError, UsageError


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RequestError("n", "0", "1 to 16"), "INVALID_ARG", "n: found 0; allowed: 1 to 16"),
        (UnavailableError("max_streams", "9 live", "wait"), "UNAVAILABLE", f"{BUSY_PREFIX}limit max_streams reached"),
        (SettingsError("format", "'x'", "'y'"), "INTERNAL", "config.pbtxt parameter 'format'"),
        (FormatDefinitionError("bad"), "INTERNAL", "bad"),
        (UsageError("late"), "INTERNAL", "late"),
        (KeyError("/secret/path"), "INTERNAL", "internal error"),
    ],
)
def test_codes(pb: Any, error: Exception, code: str, text: str) -> None:
    answer = triton_error(pb, error)
    assert answer.code() == getattr(pb.TritonError, code)
    assert answer.message().startswith(text)
    assert "Traceback" not in answer.message()
    assert "secret" not in answer.message()


def test_final_rides_on_the_last_data(pb: Any) -> None:
    sender = pb.request({}).sender
    responder = Responder(pb, sender)
    responder.send([text_tensor(pb, "content", ["a"])])
    responder.send([text_tensor(pb, "content", ["b"])], final=True)
    responder.close()
    assert [response.values() for response in sender.responses] == [{"content": ["a"]}, {"content": ["b"]}]
    assert (sender.sends, sender.finals) == (2, 1)


def test_nothing_to_say(pb: Any) -> None:
    sender = pb.request({}).sender
    responder = Responder(pb, sender)
    responder.send([])
    responder.send([], final=True)
    assert (sender.sends, sender.finals, sender.responses) == (1, 1, [])


def test_leaving_closes(pb: Any) -> None:
    sender = pb.request({}).sender
    with Responder(pb, sender):
        pass
    assert (sender.sends, sender.finals) == (1, 1)


def test_an_exception_becomes_the_answer_and_the_log_has_it(pb: Any) -> None:
    sender = pb.request({}).sender
    with Responder(pb, sender):
        raise KeyError("model text")
    assert sender.finals == 1
    assert sender.responses[0].error().message() == "internal error; the server's log tells more"
    assert "Traceback" in pb.Logger.lines[0]
    assert "model text" in pb.Logger.lines[0]


def test_an_expected_error_is_not_logged(pb: Any) -> None:
    sender = pb.request({}).sender
    with Responder(pb, sender):
        raise RequestError("n", "0", "1")
    assert sender.responses[0].error().code() == pb.TritonError.INVALID_ARG
    assert sender.sends == 1  # error and FINAL in one: apart, they can crash a server (gRPC header triton_grpc_error)
    assert pb.Logger.lines == []


def test_after_final_nothing_is_sent(pb: Any) -> None:
    sender = pb.request({}).sender
    responder = Responder(pb, sender)
    responder.close()
    with pytest.raises(UsageError):
        responder.send([text_tensor(pb, "content", ["a"])])
    with pytest.raises(UsageError):
        responder.fail(RequestError("n", "0", "1"))
    with responder:
        raise RequestError("n", "0", "1")
    assert sender.sends == 1


def test_what_is_no_exception_goes_on(pb: Any) -> None:
    sender = pb.request({}).sender
    with pytest.raises(KeyboardInterrupt), Responder(pb, sender):
        raise KeyboardInterrupt
    assert sender.finals == 1


def test_a_failed_send_still_owes_final(pb: Any) -> None:
    sender = pb.request({}).sender
    send, calls = sender.send, []

    def failing(response: Any = None, flags: int = 0) -> None:
        calls.append(flags)
        if len(calls) == 1:
            raise MemoryError("shared memory")
        send(response, flags)

    sender.send = failing
    with Responder(pb, sender) as responder:
        responder.send([text_tensor(pb, "content", ["a"])], final=True)
    assert sender.finals == 1
    assert sender.responses[0].has_error()


def test_cancellation(pb: Any) -> None:
    request = pb.request({})
    responder = Responder(pb, request.sender)
    assert not responder.is_cancelled()
    request.sender.cancelled = True
    assert responder.is_cancelled()
