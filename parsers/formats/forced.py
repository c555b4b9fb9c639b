"""Forced JSON: what a guided decoder makes a model write under `tool_choice` required or named.

Not a model's format: `ChatStream` switches it on for a request, and only where content starts with
`[` or `{` (PROTOCOL 5). Forms: SGLang's, TensorRT-LLM's and Dynamo's `required`
(`[{"name": "f", "parameters": {...}}]`), the bare arguments object for a named function.
"""

from __future__ import annotations

from typing import Final

from ..arguments.forced import FORCED_KEYS, NamedObject
from ..arguments.json_calls import JsonCall, call_object_ahead
from ..format import Opener, ToolSyntax
from ..header import Ahead, Blanks, Lit, here

__all__ = ["FORCED_NAMED", "FORCED_REQUIRED"]

_OBJECT: Final = call_object_ahead(FORCED_KEYS)
_ANY: Final = Ahead(((Lit("{"),),))
_LIST: Final = (Lit("["), Blanks(), _OBJECT)
_NEXT: Final = (Lit(","), Blanks(), _OBJECT)

FORCED_REQUIRED: Final = ToolSyntax(
    arguments=JsonCall(),
    unmarked=(_LIST, Opener((_OBJECT,), JsonCall(), wrapper=False)),
    # Llama's own form, bare objects with `;` between them, is read by the same rows.
    inner=(_NEXT, Opener((*here(";"), Blanks(), _OBJECT), JsonCall(), wrapper=False)),
    closers=((Lit("]"),),),
    trusts_unmarked=True,
)

FORCED_NAMED: Final = ToolSyntax(
    arguments=NamedObject(),
    unmarked=((Lit("["), Blanks(), _ANY), Opener((_ANY,), NamedObject(), wrapper=False)),
    inner=((Lit(","), Blanks(), _ANY),),
    closers=((Lit("]"),),),
    trusts_unmarked=True,
)
