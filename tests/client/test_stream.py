"""`AsyncChatClient` against a real server whose model does as it is told."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from support.scripts import END, fail, say
from tristream.client import (
    AsyncChatClient,
    ChatError,
    DeadlineExceeded,
    Deadlines,
    ModelNotReady,
    RequestRefused,
    Retries,
    ServerBusy,
    ServerUnreachable,
    StreamBroken,
)
from tristream.client.stream import AsyncDeltaStream
from tristream.parsers import MessageDelta, Notice, ToolCall, Usage, UsageError

pytestmark = pytest.mark.server

LONG = [say("x"), {"sleep": 30.0}, END]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_every_field_of_a_delta_arrives(scripted: Any) -> None:
    async def run() -> None:
        script = [
            {"delta": {"reasoning": "hm 日本"}},
            {"empty": True},
            {"delta": {"content": "Grüße", "token_ids": [1, 2], "logprobs": [{"token": "G", "logprob": -1.5}]}},
            {"delta": {"tool_calls": [{"index": 0, "id": "call_1", "name": "f", "arguments": '{"a":'}]}},
            {"delta": {"tool_calls": [{"index": 0, "arguments": " 1}", "status": "complete"}]}},
            {
                "delta": {
                    "finish_reason": "tool_calls",
                    "usage": {"prompt_tokens": 3, "completion_tokens": 9, "reasoning_tokens": 2},
                    "notices": [{"code": "stray_marker", "count": 1, "offset": 4}],
                }
            },
        ]
        async with AsyncChatClient(scripted.url) as client:
            message = await client.complete(scripted.body(*script), model=scripted.model)
        assert (message.reasoning, message.content) == ("hm 日本", "Grüße")
        assert message.tool_calls == [ToolCall("call_1", "f", '{"a": 1}', "complete")]
        assert message.finish_reason == "tool_calls"
        assert message.usage == Usage(3, 9, 2)
        assert message.notices == [Notice("stray_marker", 1, 4)]
        assert message.token_ids == [1, 2]
        assert message.logprobs == [{"token": "G", "logprob": -1.5}]

    asyncio.run(run())


def test_many_streams_at_once_each_in_order(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:

            async def one(name: str) -> None:
                script = [say(f"{name}:{index} ") for index in range(40)]
                message = await client.complete(scripted.body(*script, END), model=scripted.model)
                assert message.content == "".join(f"{name}:{index} " for index in range(40))

            await asyncio.gather(*(one(f"s{number}") for number in range(64)))

    asyncio.run(run())


def test_cancelling_some_stops_them_on_the_server_and_touches_no_other(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:

            async def whole() -> None:
                script = [step for index in range(20) for step in (say(f"{index} "), {"sleep": 0.02})]
                message = await client.complete(scripted.body(*script, END, tag="kept"), model=scripted.model)
                assert message.content == "".join(f"{index} " for index in range(20))

            async def cancelled() -> None:
                stream = client.stream(scripted.body(*LONG, tag="gone"), model=scripted.model)
                received = [delta async for delta in stopping(stream)]
                assert received == [MessageDelta(content="x")]
                assert stream.cancelled

            await asyncio.gather(*(whole() for _ in range(8)), *(cancelled() for _ in range(24)))

    asyncio.run(run())
    assert {entry["end"] for entry in scripted.ended("gone", 24)} == {"cancelled"}
    assert {entry["end"] for entry in scripted.ended("kept", 8)} == {"final"}


async def stopping(stream: AsyncDeltaStream) -> Any:
    """Cancel after the first delta."""
    async for delta in stream:
        yield delta
        stream.cancel()


def test_every_way_to_leave_cancels_on_the_server(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:

            def stream(tag: str) -> AsyncDeltaStream:
                return client.stream(scripted.body(*LONG, tag=tag), model=scripted.model)

            async with stream("context") as deltas:
                async for _ in deltas:
                    break

            async def consume() -> None:
                async for _ in stream("task"):
                    pass

            task = asyncio.create_task(consume())
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            async with asyncio.timeout(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await client.complete(scripted.body(*LONG, tag="timeout"), model=scripted.model)

            dropped = stream("dropped")
            await anext(dropped)
            del dropped
            gc.collect()

            reading = stream("other task")
            asyncio.get_running_loop().call_later(0.3, reading.cancel)
            assert [delta.content async for delta in reading] == ["x"]
            assert [delta async for delta in reading] == []
            await asyncio.sleep(0.2)

    asyncio.run(run())
    for tag in ("context", "task", "timeout", "dropped", "other task"):
        assert [entry["end"] for entry in scripted.ended(tag)] == ["cancelled"]


def test_a_finished_stream_is_not_cancelled_on_the_server(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:
            for _ in range(20):
                async with client.stream(scripted.body(say("a"), END, tag="whole"), model=scripted.model) as stream:
                    assert [delta async for delta in stream][-1].finish_reason == "stop"
                    assert not stream.cancelled

    asyncio.run(run())
    assert {entry["end"] for entry in scripted.ended("whole", 20)} == {"final"}


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ([fail("messages: found nothing; allowed: a list", "INVALID_ARG")], RequestRefused, "messages: found nothing"),
        ([say("a"), say("b"), fail("the GPU is on fire")], StreamBroken, "the GPU is on fire"),
        ([say("a"), say("b")], StreamBroken, "without a finish_reason"),
        ([], StreamBroken, "after 0 deltas"),
        ([{"strings": {"unheard_of": ["x"]}}], StreamBroken, "'unheard_of'"),
    ],
)
def test_a_failure_has_its_class_and_keeps_what_came(
    scripted: Any, script: list[Any], kind: type[ChatError], said: str
) -> None:
    async def run() -> ChatError:
        async with AsyncChatClient(scripted.url) as client:
            with pytest.raises(ChatError) as caught:
                await client.complete(scripted.body(*script), model=scripted.model)
        return caught.value

    error = asyncio.run(run())
    assert type(error) is kind
    assert said in str(error)
    assert (error.received.content or "") == "".join(step["delta"]["content"] for step in script if "delta" in step)


def test_an_llm_that_fails_is_an_answer(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:
            script = [say("a"), {"delta": {"finish_reason": "error", "notices": []}}]
            message = await client.complete(scripted.body(*script), model=scripted.model)
        assert (message.content, message.finish_reason) == ("a", "error")

    asyncio.run(run())


def test_absent_models_and_readiness(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:
            assert await client.model_ready(scripted.model)
            assert not await client.model_ready("absent")
            with pytest.raises(ModelNotReady, match="'absent'"):
                await client.complete(scripted.body(), model="absent")

    asyncio.run(run())


def test_a_busy_server_is_tried_again_under_a_fresh_id(scripted: Any) -> None:
    async def run() -> None:
        retries = Retries(tries=4, delay=0.05)
        async with AsyncChatClient(scripted.url, retries=retries) as client:
            body = scripted.body({"busy": 3}, say("at last"), END, tag="busy")
            assert (await client.complete(body, model=scripted.model)).content == "at last"
            with pytest.raises(ServerBusy, match=r"4 tries.*limit max_streams reached"):
                await client.complete(scripted.body({"busy": 9}, tag="too busy"), model=scripted.model)

    asyncio.run(run())
    entries = scripted.ended("busy", 4)
    assert [entry["end"] for entry in entries] == ["error", "error", "error", "final"]
    assert len({entry["id"] for entry in entries}) == 4
    assert len(scripted.ended("too busy", 4)) == 4


def test_nothing_is_tried_again_after_the_first_delta(scripted: Any) -> None:
    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:
            body = scripted.body(say("a"), {"busy": 1}, tag="once")
            with pytest.raises(StreamBroken):
                await client.complete(body, model=scripted.model)

    asyncio.run(run())
    assert len(scripted.ended("once")) == 1


@pytest.mark.parametrize(
    ("script", "deadlines", "which", "received"),
    [
        ([{"sleep": 20.0}, say("a"), END], Deadlines(first_delta=0.3), "first_delta", None),
        ([say("a"), {"sleep": 20.0}, END], Deadlines(idle=0.3), "idle", "a"),
        ([say("a"), {"sleep": 20.0}, END], Deadlines(total=0.3), "total", "a"),
        ([{"sleep": 20.0}, END], Deadlines(total=0.3), "total", None),
    ],
)
def test_each_deadline_cancels(
    scripted: Any, script: list[Any], deadlines: Deadlines, which: str, received: str | None
) -> None:
    tag = f"{which} {received}"

    async def run() -> None:
        async with AsyncChatClient(scripted.url) as client:
            with pytest.raises(DeadlineExceeded) as caught:
                await client.complete(scripted.body(*script, tag=tag), model=scripted.model, timeout=deadlines)
        assert caught.value.which == which
        assert caught.value.received.content == received

    asyncio.run(run())
    assert [entry["end"] for entry in scripted.ended(tag)] == ["cancelled"]


def test_no_server_is_found_out_at_once_and_tried_again() -> None:
    async def run() -> None:
        async with AsyncChatClient(f"127.0.0.1:{closed_port()}", retries=Retries(tries=3, delay=0.01)) as client:
            async with asyncio.timeout(10):
                with pytest.raises(ServerUnreachable, match="after 3 tries"):
                    await client.complete({})
                with pytest.raises(ServerUnreachable):
                    await client.model_ready()

    asyncio.run(run())


def test_a_server_that_comes_up_in_time_is_reached(scripted: Any) -> None:
    host, port = scripted.url.split(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, upstream_writer), pump(upstream_reader, writer))

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()

    async def run() -> None:
        local = closed_port()
        async with AsyncChatClient(f"127.0.0.1:{local}", retries=Retries(tries=20, delay=0.2, max_delay=0.3)) as client:
            answer = asyncio.create_task(client.complete(scripted.body(say("up"), END), model=scripted.model))
            await asyncio.sleep(0.7)
            async with await asyncio.start_server(forward, "127.0.0.1", local):
                assert (await answer).content == "up"

    asyncio.run(run())


def test_a_connection_that_dies_mid_way(scripted: Any) -> None:
    host, port = scripted.url.split(":")
    writers: list[asyncio.StreamWriter] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        writers.extend((writer, upstream_writer))
        await asyncio.gather(pump(reader, upstream_writer), pump(upstream_reader, writer))

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)

    async def run() -> None:
        async with await asyncio.start_server(forward, "127.0.0.1", 0) as relay:
            local = relay.sockets[0].getsockname()[1]
            async with AsyncChatClient(f"127.0.0.1:{local}") as client:
                stream = client.stream(scripted.body(*LONG, tag="line"), model=scripted.model)
                assert (await anext(stream)).content == "x"
                for writer in writers:
                    writer.transport.abort()
                with pytest.raises(StreamBroken) as caught:
                    await anext(stream)
                assert caught.value.received.content == "x"
            relay.close()

    asyncio.run(run())
    assert [entry["end"] for entry in scripted.ended("line")] == ["cancelled"]


def test_a_server_that_never_speaks_meets_the_connect_deadline(silent_port: int) -> None:
    async def run() -> None:
        async with AsyncChatClient(f"127.0.0.1:{silent_port}", timeout=Deadlines(connect=0.3)) as client:
            async with asyncio.timeout(5):
                with pytest.raises(ServerUnreachable, match=r"no connection within 0\.3 s"):
                    await client.complete({})
                with pytest.raises(ServerUnreachable):
                    await client.model_ready()

    asyncio.run(run())


def test_cancel_while_connecting_and_between_tries(silent_port: int) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5):
            async with AsyncChatClient(f"127.0.0.1:{silent_port}", timeout=Deadlines(connect=60)) as client:
                connecting = client.stream({})
                loop.call_later(0.2, connecting.cancel)
                assert [delta async for delta in connecting] == []
            slow = Retries(tries=9, delay=60.0, max_delay=60.0)
            async with AsyncChatClient(f"127.0.0.1:{closed_port()}", retries=slow) as client:
                pausing = client.stream({})
                loop.call_later(0.2, pausing.cancel)
                assert [delta async for delta in pausing] == []
                assert pausing.cancelled

    asyncio.run(run())


def test_the_http_port_is_no_grpc_port(scripted: Any) -> None:
    async def run() -> None:
        address = scripted.http_url.removeprefix("http://")
        async with AsyncChatClient(address, retries=Retries(tries=1)) as client:
            with pytest.raises(ServerUnreachable, match="not the HTTP port"):
                await client.complete({})

    asyncio.run(run())


def test_n_choices(scripted: Any) -> None:
    async def run() -> None:
        script = [{"delta": {"content": text, "choice_index": index}} for index, text in ((0, "a"), (1, "x"), (0, "b"))]
        ends = [{"delta": {"finish_reason": "stop", "choice_index": index}} for index in (1, 0)]
        async with AsyncChatClient(scripted.url) as client:
            body = scripted.body(*script, *ends, n=2)
            choices = await client.complete_choices(body, model=scripted.model)
            assert [message.content for message in choices] == ["ab", "x"]
            with pytest.raises(StreamBroken):
                await client.complete_choices(scripted.body(*script, ends[0], n=2), model=scripted.model)

    asyncio.run(run())


def test_one_client_for_each_loop(scripted: Any) -> None:
    client = AsyncChatClient(scripted.url)

    async def use() -> None:
        await client.model_ready(scripted.model)

    asyncio.run(use())
    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(use())


def test_a_closed_client(scripted: Any) -> None:
    async def run() -> None:
        client = AsyncChatClient(scripted.url)
        stream = client.stream(scripted.body(*LONG, tag="closed"), model=scripted.model)
        assert (await anext(stream)).content == "x"
        asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(client.close()))
        with pytest.raises(StreamBroken, match="this client was closed"):
            await anext(stream)
        assert await anext(stream, None) is None
        with pytest.raises(UsageError, match="was closed"):
            await client.complete(scripted.body(END), model=scripted.model)

    asyncio.run(run())
    assert [entry["end"] for entry in scripted.ended("closed")] == ["cancelled"]
