"""No format: everything is content. As reasoning part of a composition: the model does not reason."""

from __future__ import annotations

from typing import Final

from ..format import Format

__all__ = ["IDENTITY"]

IDENTITY: Final = Format(name="identity", source="ours: text is passed on as it is")
