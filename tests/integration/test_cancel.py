"""Clients that go away: the LLM stops where it can be told, the state goes everywhere, nobody else notices."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from support.probing import metric, resident_bytes
from support.serving import TIGHT_IDLE_S, TIGHT_STREAMS, ReplayServer
from support.talking import collect, talk
from support.vectors import cases, chat_body, difference, replay_body
from tristream.client import AsyncChatClient, ChatClient, DeadlineExceeded, Deadlines
from tristream.parsers import fold

WORD = " the"
"""What `replay_llm` writes for each of its `words`: one token, so that a client can count."""

PACE_MS = 20
CANCELLED = 100
AT_ONCE = 25
WITHIN_TOKENS = 32
BYSTANDERS = 4


def endless(tag: str, **members: Any) -> dict[str, Any]:
    """A chat that nobody waits the end of."""
    return chat_body({"words": 3000, "delay_ms": PACE_MS, "tag": tag}, format="qwen3", **members)


async def leave_after(client: AsyncChatClient, model: str, body: dict[str, Any], count: int) -> int:
    """Hang up when `count` tokens have come; how many those were."""
    seen = 0
    async with client.stream(body, model=model) as deltas:
        async for delta in deltas:
            seen += (delta.content or "").count(WORD)
            if seen >= count:
                break
    return seen


def test_chat_direct_100_clients_go_and_the_llm_stops_each(replay: ReplayServer) -> None:
    """Their LLM streams end within 32 tokens; streams that run meanwhile stay whole, and no state is left."""
    model, rng = "chat_direct", random.Random(7)
    case = cases("qwen3_coder")[0]
    patience = [rng.randint(1, 40) for _ in range(CANCELLED)]

    async def conversation(client: AsyncChatClient) -> tuple[list[int], list[Any]]:
        room = asyncio.Semaphore(AT_ONCE)

        async def goes(number: int) -> int:
            async with room:
                return await leave_after(client, model, endless(f"gone-{number}"), patience[number])

        bystanders = [
            asyncio.create_task(collect(client, replay_body(case, delay_ms=2 * PACE_MS), model))
            for _ in range(BYSTANDERS)
        ]
        seen = await asyncio.gather(*(goes(number) for number in range(CANCELLED)))
        return seen, await asyncio.gather(*bystanders)

    seen, others = talk(replay.grpc_url, conversation)
    for message in map(fold, others):
        assert difference(case, message) is None
    after = {}
    for number, count in enumerate(seen):
        (entry,) = replay.ended(f"gone-{number}")
        assert entry["end"] in ("cancelled", "stopped"), entry
        after[number] = entry["sent"] - count
    assert max(after.values()) <= WITHIN_TOKENS, f"tokens after the client had gone: {after}"
    replay.wait_empty(model)


@pytest.mark.parametrize("hidden", [False, True], ids=["reasoning shown", "reasoning hidden"])
def test_chat_direct_notices_also_while_it_sends_nothing(hidden: bool, replay: ReplayServer) -> None:
    """Held arguments and hidden reasoning are silent; the client's going must not wait for the next delta."""
    body = chat_body(
        {"text": "<think>\n" + WORD * 3000, "delay_ms": PACE_MS, "tag": f"silent-{hidden}"},
        format="qwen3",
        include_reasoning=not hidden,
    )
    limits = Deadlines(connect=5, first_delta=1, idle=1, total=1)
    with ChatClient(replay.grpc_url, timeout=limits) as client, pytest.raises(DeadlineExceeded):
        client.complete(body, model="chat_direct")
    (entry,) = replay.ended(f"silent-{hidden}")
    assert entry["end"] in ("cancelled", "stopped")
    assert entry["sent"] <= 1000 / PACE_MS + 1 + WITHIN_TOKENS


def test_chat_direct_notices_before_the_first_token(replay: ReplayServer) -> None:
    """The LLM still reads the prompt, or the request waits in its queue."""
    body = chat_body({"words": 3, "fail_after": 0, "fail": "hang", "tag": "prefill"}, format="qwen3")
    limits = Deadlines(connect=5, first_delta=0.5)
    with ChatClient(replay.grpc_url, timeout=limits) as client, pytest.raises(DeadlineExceeded):
        client.complete(body, model="chat_direct")
    (entry,) = replay.ended("prefill", seconds=5)
    assert entry["end"] in ("cancelled", "stopped")
    assert entry["sent"] == 0


def test_chat_direct_a_client_that_dies_is_one_that_went(replay: ReplayServer) -> None:
    code = (
        "import json, sys; from tristream.client import ChatClient\n"
        "for delta in ChatClient(sys.argv[1]).stream(json.loads(sys.stdin.readline()), model='chat_direct'):\n"
        "    print(delta.content, flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, replay.grpc_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(endless("killed")) + "\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.kill()
    (entry,) = replay.ended("killed")
    assert entry["end"] in ("cancelled", "stopped")
    assert entry["sent"] < 3000


def test_chat_the_state_goes_after_its_idle_limit(replay: ReplayServer) -> None:
    """In an ensemble cancelling does not reach the LLM (TRITON.md, ensembles, 9): the idle limit frees the state and
    has the LLM stop; the table has room again, others are untouched.
    """
    replay.wait_empty("postprocess_tight")
    case = cases("qwen3_coder")[0]
    before = metric(replay.server, "tristream_streams_expired_total", model="postprocess_tight")

    async def conversation(client: AsyncChatClient) -> Any:
        bystander = asyncio.create_task(collect(client, replay_body(case, delay_ms=2 * PACE_MS), "chat_tight"))
        gone = (leave_after(client, "chat_tight", endless("ensemble"), 3) for _ in range(TIGHT_STREAMS - 1))
        await asyncio.gather(*gone)
        return await bystander

    assert difference(case, fold(talk(replay.grpc_url, conversation))) is None
    replay.wait_empty("postprocess_tight", TIGHT_IDLE_S + 10)
    expired = metric(replay.server, "tristream_streams_expired_total", model="postprocess_tight") - before
    assert expired == TIGHT_STREAMS - 1
    for entry in replay.ended("ensemble", TIGHT_STREAMS - 1):
        assert entry["end"] == "stopped", entry
        assert entry["sent"] < 500
    with ChatClient(replay.grpc_url, timeout=30) as client:
        assert client.complete(chat_body({"text": "Still here."}, format="qwen3"), model="chat_tight").content == (
            "Still here."
        )


def test_chat_the_memory_of_clients_that_went_comes_back(replay: ReplayServer) -> None:
    properties = {f"field_{number}": {"type": "string", "description": "x" * 300} for number in range(2000)}
    tool = {"type": "function", "function": {"name": "store", "parameters": {"properties": properties}}}
    body = chat_body({"words": 20, "delay_ms": PACE_MS}, format="qwen3", tools=[tool])
    size = len(str(body)) * TIGHT_STREAMS

    async def wave(client: AsyncChatClient) -> None:
        await asyncio.gather(*(leave_after(client, "chat_tight", body, 1) for _ in range(TIGHT_STREAMS)))

    replay.wait_empty("postprocess_tight")
    resident = []
    for _ in range(4):
        talk(replay.grpc_url, wave)
        replay.wait_empty("postprocess_tight", TIGHT_IDLE_S + 10)
        resident.append(resident_bytes(replay.server, "postprocess_tight"))
    # The first waves grow the heap; if each kept its options, two more would add twice their size.
    assert resident[-1] - resident[1] < size, resident
