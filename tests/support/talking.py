"""Many chats at once with the real client, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from tristream.client import AsyncChatClient, ChatError, Deadlines, Retries
from tristream.parsers import Message, MessageDelta, fold

__all__ = ["DEADLINES", "NO_RETRIES", "ask_all", "collect", "talk"]

DEADLINES: Final = Deadlines(connect=10.0, first_delta=30.0, idle=30.0, total=60.0)
NO_RETRIES: Final = Retries(tries=1)

Result = TypeVar("Result")


def talk(url: str, conversation: Callable[[AsyncChatClient], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine with a client of its own; bounded in time whatever it does."""

    async def run() -> Result:
        async with asyncio.timeout(90), AsyncChatClient(url, timeout=DEADLINES, retries=NO_RETRIES) as client:
            return await conversation(client)

    return asyncio.run(run())


async def collect(client: AsyncChatClient, body: Mapping[str, Any], model: str) -> list[MessageDelta]:
    """All deltas of one chat, in the order of their arrival."""
    async with client.stream(body, model=model) as deltas:
        return [delta async for delta in deltas]


def ask_all(url: str, asked: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Message | ChatError]:
    """Send (model, body) pairs all at once; message or error of each."""

    async def one(client: AsyncChatClient, model: str, body: Mapping[str, Any]) -> Message | ChatError:
        try:
            return fold(await collect(client, body, model))
        except ChatError as error:
            return error

    async def conversation(client: AsyncChatClient) -> list[Message | ChatError]:
        return await asyncio.gather(*(one(client, model, body) for model, body in asked))

    return talk(url, conversation)
