"""The model's format at load: named in the settings, or read from the chat template; and does it fit the model?

What is checked here costs nothing per request: the tokens that the format needs, and a round trip through the
chat template (`tristream.parsers.self_check`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from tristream.parsers import FormatDefinitionError, RequestError, load_format
from tristream.parsers.detect import detect
from tristream.parsers.detect_markers import missing_tokens
from tristream.parsers.formats import spelled
from tristream.parsers.formats.loading import CHECKPOINT, load_checkpoint, load_file
from tristream.parsers.self_check import self_check

from .errors import SettingsError
from .pb import PbModule
from .rendering import ChatTemplate
from .settings import StreamSettings

if TYPE_CHECKING:
    from .prompt_settings import PromptSettings

__all__ = ["AUTO", "Choice", "Remark", "check_default", "check_template", "choose_format", "log_remarks"]

AUTO: Final = "auto"
"""The setting `format` that reads the chat template."""


_CHECKPOINT_NAMES: Final = frozenset({CHECKPOINT, "response_template"})


class Remark(NamedTuple):
    """A line for the server's log."""

    text: str
    warning: bool = False


class Choice(NamedTuple):
    """The model's format, and what to say about it."""

    name: str
    remarks: tuple[Remark, ...] = ()


def choose_format(settings: StreamSettings, template: ChatTemplate) -> Choice:
    """The format of the setting, or with `auto` the one that the chat template writes.

    Raises:
        SettingsError: there is no such format, none was found, or the tokenizer lacks its tokens.
    """
    if settings.format != AUTO:
        check_default(settings, template.added_spellings)
        return Choice(spelled(settings.format, template.added_spellings))
    _load_own(settings)
    found = detect(
        template.render_as_is,
        special_spellings=template.special_spellings,
        added_spellings=template.added_spellings,
    )
    if found.format is None and _load_checkpoint(settings):
        return Choice(CHECKPOINT, (Remark(f"format auto: {found}; so the checkpoint's response_template is read"),))
    if found.format is None:
        raise SettingsError("format", f"'auto', and the model's format is {found}", "the format's name")
    _check_tokens(settings, found.format, template.added_spellings)
    evidence = "; ".join(found.evidence)
    return Choice(found.format, (Remark(f"format auto: {found}{f' ({evidence})' if evidence else ''}"),))


def check_default(settings: StreamSettings, added: frozenset[str], *, needed: bool = True) -> None:
    """Is the setting `format` a format that this tokenizer can write?

    Args:
        settings: the model's parameters.
        added: spellings of the tokenizer's added tokens.
        needed: streams come that name no format of their own: then `auto` will not do.

    Raises:
        SettingsError: it is not.
    """
    _load_own(settings)
    if settings.format == AUTO or not _CHECKPOINT_NAMES.isdisjoint(settings.format.split("+")):
        # Where `preprocess` finds no family that the template writes it may name the checkpoint's own format.
        _load_checkpoint(settings)
    if settings.format == AUTO:
        if needed:
            allowed = "the format's name: no model here reads the chat template"
            raise SettingsError("format", "'auto' with implicit_open", allowed)
        return
    try:
        load_format(settings.format)
    except (RequestError, FormatDefinitionError) as error:
        found = error.found if isinstance(error, RequestError) else str(error)
        allowed = error.allowed if isinstance(error, RequestError) else "a format that can be loaded"
        raise SettingsError("format", found, f"auto, or {allowed}") from None
    _check_tokens(settings, settings.format, added)


def check_template(settings: PromptSettings, template: ChatTemplate, name: str) -> tuple[Remark, ...]:
    """Does the format read what the chat template writes?

    Raises:
        SettingsError: it does not, and `strict_self_check` is set.
    """
    result = self_check(template.render_as_is, name, template.special_spellings)
    if not result.problems:
        return ()
    if settings.strict_self_check:
        raise SettingsError("format", f"{name!r}; {result}", "a format that fits, or strict_self_check: false")
    return (Remark(str(result), warning=True),)


def log_remarks(pb: PbModule, remarks: Iterable[Remark]) -> None:
    """Write them to the server's log."""
    for remark in remarks:
        log = pb.Logger.log_warn if remark.warning else pb.Logger.log_info
        log(f"tristream: {remark.text}")


def _load_own(settings: StreamSettings) -> None:
    if settings.formats is None:
        return
    try:
        load_file(settings.formats)
    except FormatDefinitionError as error:
        raise SettingsError("formats", str(error), "a file that docs/formats.md describes") from None


def _load_checkpoint(settings: StreamSettings) -> bool:
    """Make the format known that the checkpoint's own metadata describes; False where it describes none.

    Raises:
        SettingsError: it does, in a way that no format can follow.
    """
    tokenizer = getattr(settings, "tokenizer", None)
    if tokenizer is None:
        return False
    try:
        return load_checkpoint(tokenizer if tokenizer.is_dir() else tokenizer.parent) is not None
    except FormatDefinitionError as error:
        if settings.format == AUTO:
            return False
        raise SettingsError("format", f"{CHECKPOINT!r}; {error}", "a format's name") from None


def _check_tokens(settings: StreamSettings, name: str, added: frozenset[str]) -> None:
    """Are the format's markers tokens of this tokenizer, where they count as tokens only?"""
    if settings.match == "text":
        return
    missing = missing_tokens(load_format(spelled(name, added)), added)
    if missing:
        found = f"{name!r}, whose markers {', '.join(missing)} are no tokens of the tokenizer"
        raise SettingsError("format", found, "the format of this model, or match: text where it spells its markers out")
