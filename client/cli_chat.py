"""`tristream chat`: one question, or a conversation on a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from tristream.parsers import Message, MessageDelta, fold

from .blocking import ChatClient
from .cli_prompt import ask, enable_line_editing
from .cli_support import (
    EXIT_BROKEN,
    EXIT_INTERRUPTED,
    InputError,
    complain,
    read_text,
    read_tools,
    reported,
    stderr,
    stdout,
)
from .errors import ChatError
from .jsonable import delta_object
from .livetext import visible
from .policy import Deadlines
from .render import Renderer
from .wire import DEFAULT_URL, Endpoint

__all__ = ["chat"]

_PANEL_REQUEST = "The request"
_PANEL_SERVER = "The server"


def chat(
    prompt: Annotated[
        str | None, typer.Argument(help="What to ask; - reads stdin.", show_default="a conversation, or stdin")
    ] = None,
    url: Annotated[
        str,
        typer.Option(envvar="TRISTREAM_URL", help="host:port of the gRPC port.", rich_help_panel=_PANEL_SERVER),
    ] = DEFAULT_URL,
    model: Annotated[str, typer.Option(help="chat or chat_direct.", rich_help_panel=_PANEL_SERVER)] = "chat",
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="gRPC metadata; may be repeated.", rich_help_panel=_PANEL_SERVER),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Seconds for each answer.", show_default="no bound", rich_help_panel=_PANEL_SERVER
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message.", rich_help_panel=_PANEL_REQUEST)] = None,
    tools: Annotated[Path | None, typer.Option(help="JSON file with tools.", rich_help_panel=_PANEL_REQUEST)] = None,
    tool_choice: Annotated[
        str | None,
        typer.Option(help="auto, none, required, or a tool's name.", rich_help_panel=_PANEL_REQUEST),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Most tokens to generate.", rich_help_panel=_PANEL_REQUEST)
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0 always takes the likeliest token.", rich_help_panel=_PANEL_REQUEST)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.", rich_help_panel=_PANEL_REQUEST)] = None,
    format: Annotated[
        str | None, typer.Option(help="The model's format, if not the server's.", rich_help_panel=_PANEL_REQUEST)
    ] = None,
    think: Annotated[
        bool | None,
        typer.Option("--think/--no-think", help="The template's enable_thinking.", rich_help_panel=_PANEL_REQUEST),
    ] = None,
    reasoning: Annotated[
        bool,
        typer.Option("--reasoning/--no-reasoning", help="Send the reasoning.", rich_help_panel=_PANEL_REQUEST),
    ] = True,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=JSON",
            help="Another request field; repeatable.",
            rich_help_panel=_PANEL_REQUEST,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each delta as a JSON line.")] = False,
) -> None:
    """Chat with a model on a Triton server; the answer shows as it comes. Ctrl-C cancels it."""
    with reported():
        body: dict[str, Any] = {
            "tools": None if tools is None else read_tools(tools),
            "tool_choice": _tool_choice(tool_choice),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "format": format,
            "include_reasoning": None if reasoning else False,
            "chat_template_kwargs": None if think is None else {"enable_thinking": think},
        }
        body = {name: value for name, value in body.items() if value is not None}
        body.update(_fields(fields or ()))
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system is not None else []
        endpoint = Endpoint(url, headers=_headers(header or ()))
        with ChatClient(endpoint, timeout=Deadlines(total=timeout)) as client:
            conversation = _Conversation(client, model, body, messages, as_json)
            if prompt is None and stdout.is_terminal and typer.get_text_stream("stdin").isatty():
                conversation.talk()
                return
            question = read_text(None) if prompt in (None, "-") else prompt
            status = conversation.ask(str(question))
    if status:
        raise typer.Exit(status)


class _Conversation:
    """The messages so far, and the way to the next one."""

    def __init__(
        self, client: ChatClient, model: str, body: Mapping[str, Any], messages: list[dict[str, Any]], as_json: bool
    ) -> None:
        self._client = client
        self._model = model
        self._body = body
        self._messages = messages
        self._as_json = as_json

    def ask(self, question: str) -> int:
        """Put one question and show the answer; the exit status."""
        self._messages.append({"role": "user", "content": question})
        message, status = self._answer()
        self._messages.append(_assistant(message))
        return status

    def talk(self) -> None:
        """Questions from the terminal until Ctrl-D; calls are answered by hand."""
        enable_line_editing()
        stdout.print(
            Text(f"{self._model} at {self._client.endpoint.url}; Ctrl-C cancels an answer, Ctrl-D ends\n", "dim")
        )
        while True:
            try:
                question = ask("› ").strip()
            except KeyboardInterrupt:
                stdout.print()
                continue
            except EOFError:
                stdout.print()
                return
            if question:
                self._exchange(question)

    def _exchange(self, question: str) -> None:
        """One question with its answer and the results of the calls in it; taken back where it fails."""
        before = len(self._messages)
        self._messages.append({"role": "user", "content": question})
        try:
            while True:
                stdout.print()
                message, status = self._answer()
                stdout.print()
                if status:
                    del self._messages[before:]
                    return
                self._messages.append(_assistant(message))
                if not self._answer_calls(message):
                    return
        except ChatError as error:
            complain(error)
            del self._messages[before:]

    def _answer_calls(self, message: Message) -> bool:
        """Ask the user for the result of each call; False where there is no call."""
        calls = [call for call in message.tool_calls if call.status == "complete"]
        for call in calls:
            try:
                result = ask(f"result of {visible(call.name)} › ")
            except (KeyboardInterrupt, EOFError):
                stdout.print()
                result = ""
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": result or "no result"})
        return bool(calls)

    def _answer(self) -> tuple[Message, int]:
        """Stream one answer to the terminal: the message, and the exit status."""
        deltas: list[MessageDelta] = []
        renderer = Renderer(stdout)
        waiting = stderr.status(Text("waiting", "dim"), spinner="dots", spinner_style="dim")
        status = 0
        with self._client.stream({**self._body, "messages": self._messages}, model=self._model) as stream:
            try:
                if stderr.is_terminal and not self._as_json:
                    waiting.start()
                for delta in stream:
                    waiting.stop()
                    deltas.append(delta)
                    if self._as_json:
                        typer.echo(json.dumps(delta_object(delta), ensure_ascii=False))
                    else:
                        renderer.show(delta)
            except KeyboardInterrupt:
                stream.cancel()
                status = EXIT_INTERRUPTED
            finally:
                waiting.stop()
                if not self._as_json:
                    renderer.finish()
        message = fold(delta for delta in deltas if delta.choice_index == 0)
        if status:
            stderr.print(Text("cancelled", "yellow"))
        elif any(delta.finish_reason == "error" for delta in deltas):
            status = EXIT_BROKEN
        return message, status


def _assistant(message: Message) -> dict[str, Any]:
    """The answer as a message of the next request."""
    answer: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
    calls = [call for call in message.tool_calls if call.status == "complete"]
    if calls:
        answer["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return answer


def _tool_choice(choice: str | None) -> Any:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _headers(items: list[str] | tuple[()]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not (name and equals):
            raise InputError(f"--header: found {item!r}; allowed: NAME=VALUE")
        headers[name] = value
    return headers


def _fields(items: list[str] | tuple[()]) -> dict[str, Any]:
    """`--set NAME=JSON`; a value that is no JSON is a string."""
    fields: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not (name and equals):
            raise InputError(f"--set: found {item!r}; allowed: NAME=JSON")
        try:
            fields[name] = json.loads(text)
        except ValueError:
            fields[name] = text
    return fields
