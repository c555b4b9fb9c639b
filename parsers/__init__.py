"""tristream.parsers: model output in, message deltas out. Pure: stdlib only, no I/O, no clock, no random.

This file is the whole public API; start reading at `chat.py`.
"""

from __future__ import annotations

from .chat import ChatStream, parse
from .errors import FormatDefinitionError, RequestError, TristreamError, UsageError
from .events import Delta, Notice
from .format import Format, compose
from .formats import format_names, load_format
from .message import Message, MessageDelta, ToolCall, ToolCallDelta, Usage, fold
from .request import ChatOptions, ToolDefinition

__all__ = [
    "ChatOptions",
    "ChatStream",
    "Delta",
    "Format",
    "FormatDefinitionError",
    "Message",
    "MessageDelta",
    "Notice",
    "RequestError",
    "ToolCall",
    "ToolCallDelta",
    "ToolDefinition",
    "TristreamError",
    "Usage",
    "UsageError",
    "compose",
    "fold",
    "format_names",
    "load_format",
    "parse",
]
