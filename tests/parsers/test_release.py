"""A stream that is dropped gives back its request at once: no cycle of references waits for the collector."""

from __future__ import annotations

import gc
import sys

import pytest

from tristream.parsers import ChatOptions, ChatStream, Delta

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
OUTPUTS = {
    "hermes": '<think>a</think>b<tool_call>\n{"name": "f", "arguments": {"a": "x',
    "qwen3": "<think>a</think>b<tool_call>\n<function=f>\n<parameter=a>\nxyz",
}


@pytest.mark.parametrize("format", OUTPUTS)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_wherever_it_is_dropped(format: str, choice: str) -> None:
    """Megabytes of tools would stay until the next full collection, which idle servers never make."""
    text = OUTPUTS[format]
    options = ChatOptions.from_openai({"tools": TOOLS, "tool_choice": choice})
    held = sys.getrefcount(options)
    gc.disable()
    try:
        for cut in range(len(text) + 1):
            stream = ChatStream(format, options)
            for character in text[:cut]:
                stream.feed(Delta(character))
            del stream
            assert sys.getrefcount(options) == held, repr(text[:cut])
    finally:
        gc.enable()
