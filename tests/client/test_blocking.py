"""`ChatClient` against the same server: what differs from the asyncio client is the waiting."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.scripts import END, fail, say
from tristream.client import (
    ChatClient,
    ChatError,
    DeadlineExceeded,
    Deadlines,
    ModelNotReady,
    RequestRefused,
    Retries,
    ServerUnreachable,
    StreamBroken,
)
from tristream.parsers import UsageError

pytestmark = pytest.mark.server

LONG = [say("x"), {"sleep": 30.0}, END]
NOWHERE = "127.0.0.1:1"


def test_a_whole_answer_and_a_stream(scripted: Any) -> None:
    with ChatClient(scripted.url) as client:
        body = scripted.body(say("a"), {"empty": True}, say("b"), END, tag="sync")
        assert client.complete(body, model=scripted.model).content == "ab"
        with client.stream(body, model=scripted.model) as stream:
            assert [delta.content for delta in stream] == ["a", "b", None]
            assert len(stream.request_id) == 32
            assert next(stream, None) is None
        assert not stream.cancelled
    assert {entry["end"] for entry in scripted.ended("sync", 2)} == {"final"}


def test_many_threads_share_one_client(scripted: Any) -> None:
    with ChatClient(scripted.url) as client, ThreadPoolExecutor(32) as pool:

        def one(number: int) -> str | None:
            script = [say(f"{number}.{index} ") for index in range(30)]
            return client.complete(scripted.body(*script, END), model=scripted.model).content

        for number, content in enumerate(pool.map(one, range(64))):
            assert content == "".join(f"{number}.{index} " for index in range(30))
    assert not [thread for thread in threading.enumerate() if thread.name == "tristream-deadline"]


def test_every_way_to_leave_cancels_on_the_server(scripted: Any) -> None:
    with ChatClient(scripted.url) as client:

        def stream(tag: str) -> Any:
            return client.stream(scripted.body(*LONG, tag=tag), model=scripted.model)

        with stream("sync context") as deltas:
            next(deltas)

        dropped = stream("sync dropped")
        next(dropped)
        del dropped
        gc.collect()

        reading = stream("sync thread")
        timer = threading.Timer(0.3, reading.cancel)
        timer.start()
        assert [delta.content for delta in reading] == ["x"]
        assert reading.cancelled

        def interrupted() -> None:
            with stream("sync interrupt") as deltas:
                for _ in deltas:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()

    for tag in ("sync context", "sync dropped", "sync thread", "sync interrupt"):
        assert [entry["end"] for entry in scripted.ended(tag)] == ["cancelled"]


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ([fail("messages: found nothing", "INVALID_ARG")], RequestRefused, "messages: found nothing"),
        ([say("a"), fail("bang")], StreamBroken, "bang"),
        ([say("a")], StreamBroken, "without a finish_reason"),
    ],
)
def test_a_failure_has_its_class(scripted: Any, script: list[Any], kind: type[ChatError], said: str) -> None:
    with ChatClient(scripted.url) as client, pytest.raises(ChatError, match=said) as caught:
        client.complete(scripted.body(*script), model=scripted.model)
    assert type(caught.value) is kind


def test_absent_models_and_readiness(scripted: Any) -> None:
    with ChatClient(scripted.url) as client:
        assert client.model_ready(scripted.model)
        assert not client.model_ready("absent")
        with pytest.raises(ModelNotReady):
            client.complete({}, model="absent")


def test_a_busy_server_is_tried_again(scripted: Any) -> None:
    with ChatClient(scripted.url, retries=Retries(tries=3, delay=0.05)) as client:
        body = scripted.body({"busy": 2}, say("at last"), END, tag="sync busy")
        assert client.complete(body, model=scripted.model).content == "at last"
    assert len({entry["id"] for entry in scripted.ended("sync busy", 3)}) == 3


@pytest.mark.parametrize(
    ("script", "deadlines", "which"),
    [
        ([{"sleep": 20.0}, END], Deadlines(first_delta=0.3), "first_delta"),
        ([say("a"), {"sleep": 20.0}, END], Deadlines(idle=0.3), "idle"),
        ([say("a"), {"sleep": 20.0}, END], Deadlines(total=0.3), "total"),
    ],
)
def test_each_deadline_cancels(scripted: Any, script: list[Any], deadlines: Deadlines, which: str) -> None:
    with ChatClient(scripted.url) as client, pytest.raises(DeadlineExceeded) as caught:
        client.complete(scripted.body(*script, tag=f"sync {which}"), model=scripted.model, timeout=deadlines)
    assert caught.value.which == which
    assert [entry["end"] for entry in scripted.ended(f"sync {which}")] == ["cancelled"]


def test_a_reader_slower_than_idle_loses_nothing(scripted: Any) -> None:
    body = scripted.body(*(say(f"{index} ") for index in range(5)), END)
    with ChatClient(scripted.url) as client:
        texts = []
        for delta in client.stream(body, model=scripted.model, timeout=Deadlines(idle=0.2)):
            time.sleep(0.3)
            texts.append(delta.content or "")
    assert "".join(texts) == "0 1 2 3 4 "


def test_no_server() -> None:
    started = time.monotonic()
    with ChatClient(NOWHERE, retries=Retries(tries=3, delay=0.01)) as client:
        with pytest.raises(ServerUnreachable, match="after 3 tries"):
            client.complete({})
        with pytest.raises(ServerUnreachable):
            client.model_ready()
        pausing = client.stream({})
        pausing.cancel()
        assert list(pausing) == []
    assert time.monotonic() - started < 10


def test_cancel_between_tries() -> None:
    with ChatClient(NOWHERE, retries=Retries(tries=9, delay=60.0, max_delay=60.0)) as client:
        stream = client.stream({})
        timer = threading.Timer(0.3, stream.cancel)
        timer.start()
        started = time.monotonic()
        assert list(stream) == []
        assert time.monotonic() - started < 10


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "stream.cancel()"])
def test_a_script_that_forgets_to_close_ends(scripted: Any, ending: str) -> None:
    """At exit gRPC's own clean-up would wait for threads that no longer run."""
    script = f"""
from tristream.client import ChatClient, ServerUnreachable
client = ChatClient({scripted.url!r})
stream = client.stream({scripted.body(*LONG)!r}, model={scripted.model!r})
next(stream)
nowhere = ChatClient({NOWHERE!r})
try:
    nowhere.complete({{}})
except ServerUnreachable:
    print("told")
{ending}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


def test_a_closed_client(scripted: Any) -> None:
    client = ChatClient(scripted.url)
    stream = client.stream(scripted.body(*LONG, tag="sync closed"), model=scripted.model)
    next(stream)
    timer = threading.Timer(0.2, client.close)
    timer.start()
    with pytest.raises(StreamBroken, match="closed"):
        next(stream)
    assert next(stream, None) is None
    with pytest.raises(UsageError, match="was closed"):
        client.complete(scripted.body(END), model=scripted.model)
    assert [entry["end"] for entry in scripted.ended("sync closed")] == ["cancelled"]
