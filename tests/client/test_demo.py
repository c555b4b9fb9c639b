"""The demonstration: what it holds an answer to. That it runs is shown on a real server."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from tristream.client import demo as module
from tristream.client.demo import WEATHER, fits
from tristream.parsers import Message, ToolCall


@pytest.mark.parametrize(
    "value",
    [
        {"city": "Paris", "unit": "celsius"},
        {"city": "", "unit": "fahrenheit"},
        {"city": "Paris"},
        {"city": "Paris", "unit": "kelvin"},
        {"city": 1, "unit": "celsius"},
        {"city": "Paris", "unit": "celsius", "day": "today"},
        {},
        [],
        "Paris",
        None,
    ],
)
def test_fits_agrees_with_a_validator(value: Any) -> None:
    assert fits(value, WEATHER) == jsonschema.Draft202012Validator(dict(WEATHER)).is_valid(value)


def call(arguments: str, status: Any = "complete") -> Message:
    return Message(tool_calls=[ToolCall("call_1", "get_weather", arguments, status)])


@pytest.mark.parametrize(
    ("answer", "called", "said"),
    [
        (Message(), call("{}"), "no content"),
        (Message(content="Paris"), Message(), "no complete tool call"),
        (Message(content="Paris"), call('{"city":', "incomplete"), "no complete tool call"),
        (Message(content="Paris"), call('{"city":'), "no JSON"),
        (Message(content="Paris"), call('{"city": "Paris"}'), "do not fit"),
        (Message(content="Paris"), call('{"city": "Paris", "unit": "celsius"}'), ""),
    ],
)
def test_what_is_not_shown_is_a_failure(
    answer: Message, called: Message, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([answer, called])
    monkeypatch.setattr(module, "_show", lambda *_arguments: next(answers))
    result = CliRunner().invoke(app(), [])
    assert result.exit_code == (1 if said else 0)
    assert (said or "fit the declared schema") in result.stdout


def test_no_server_is_said_with_status_1() -> None:
    result = CliRunner().invoke(app(), ["--url", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no Triton server reached at 127.0.0.1:1" in result.stdout


def app() -> Any:
    import typer

    application = typer.Typer()
    application.command()(module.demo)
    return application
