"""What users do first: `curl` on `generate_stream`."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from support.serving import ReplayServer
from support.vectors import chat_body

both = pytest.mark.parametrize("model", ["chat", "chat_direct"])

WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}},
}
TEXT = """<think>
The user wants the weather.
</think>

I look it up.
<tool_call>
{"name": "get_weather", "arguments": {"city": "Zürich"}}
</tool_call>"""


def curl(replay: ReplayServer, model: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The server-sent events of a real curl."""
    url = f"{replay.server.http_url}/v2/models/{model}/generate_stream"
    payload = json.dumps({"request": json.dumps(body)})
    command = ["curl", "--silent", "--show-error", "--no-buffer", "--max-time", "30", "--data-binary", "@-", url]
    done = subprocess.run(command, input=payload, capture_output=True, text=True, encoding="utf-8", check=True)
    assert not done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines), lines
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def joined(events: list[dict[str, Any]], name: str) -> str:
    values = [event[name] for event in events if name in event]
    return "".join("".join(value) if isinstance(value, list) else value for value in values)


@both
def test_curl_streams_reasoning_content_and_a_call(model: str, replay: ReplayServer) -> None:
    events = curl(replay, model, chat_body({"text": TEXT, "delay_ms": 5}, format="qwen3+hermes", tools=[WEATHER]))
    assert len(events) > 5
    assert joined(events, "reasoning") == "The user wants the weather."
    assert joined(events, "content") == "I look it up."
    assert joined(events, "tool_call_name") == "get_weather"
    assert json.loads(joined(events, "tool_call_arguments")) == {"city": "Zürich"}
    assert joined(events, "tool_call_status") == "complete"
    assert joined(events, "finish_reason") == "tool_calls"
    assert json.loads(joined(events, "usage"))["completion_tokens"] > 10


@both
def test_curl_is_told_what_is_wrong(model: str, replay: ReplayServer) -> None:
    (event,) = curl(replay, model, {"messages": []})
    assert "messages: found an empty list; allowed: at least one" in event["error"]


def test_curl_hangs_up_and_chat_direct_stops_the_llm(replay: ReplayServer) -> None:
    body = chat_body({"words": 3000, "delay_ms": 20, "tag": "curl"}, format="qwen3")
    url = f"{replay.server.http_url}/v2/models/chat_direct/generate_stream"
    command = ["curl", "--silent", "--no-buffer", "--max-time", "1", "--data-binary", "@-", url]
    done = subprocess.run(
        command, input=json.dumps({"request": json.dumps(body)}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 28, "curl gave up after its second"
    assert done.stdout.startswith("data: ")
    (entry,) = replay.ended("curl")
    assert entry["end"] in ("cancelled", "stopped")
    assert entry["sent"] < 300
