"""Messages -> the prompt's text and token ids, by a chat template, as transformers renders it.

What a template reads is found out when it is loaded: which variables, and whether it wants a call's
arguments as objects or as JSON text. Loading renders once, so that the first request does not pay for it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from tristream.parsers.errors import RequestError

from .errors import SettingsError
from .json_text import shown
from .null_content import PRELUDE, without_content
from .request_body import ChatMessage
from .tokenizer_facts import added_bos, context_length, end_ids

__all__ = ["ChatTemplate", "check_variables"]

RENDERERS_OWN: Final = frozenset(
    {
        "messages", "conversation", "tools", "documents", "add_generation_prompt", "continue_final_message",
        "chat_template", "tokenize", "sanitize_control_tokens", "padding", "truncation", "max_length",
        "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
        "raise_exception", "strftime_now", "reasoning_effort",
        "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
        "additional_special_tokens",
    }
)  # fmt: skip
"""What the renderer passes itself (`apply_chat_template` of transformers 4.56 to 5.24): a client that could set
these would replace the template or the conversation. `reasoning_effort` is a member of the body."""

MAX_TEMPLATE_MESSAGE: Final = 300

_WITHOUT_AND_WITH_TOOLS: Final[tuple[list[dict[str, Any]] | None, ...]] = (None, [{}])

_PROBE: Final = {"probe_key": "probe value"}


class _Generation(jinja2.ext.Extension):
    """transformers' `{% generation %}` block, for parsing only."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """The block is what it contains."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A tokenizer and the chat template that goes with it; immutable once loaded, shared by all requests.

    Args:
        folder: a Hugging Face folder with a tokenizer.
        template: file of the chat template; None takes the tokenizer's own.
        max_context: the model's context in tokens; None takes what config.json or the tokenizer says.

    Raises:
        SettingsError: no tokenizer, no template, or one that does not compile.
    """

    def __init__(self, folder: Path, template: Path | None = None, max_context: int | None = None) -> None:
        self._tokenizer = _load_tokenizer(folder)
        self._source = _read_template(template)
        self._text = "\n".join(self._sources())
        self.variables = self._find_variables()
        """Names that a client may set in `chat_template_kwargs`."""
        self.reads_effort = "reasoning_effort" in self._read
        self.reads_tools = "tools" in self._read
        self.max_context = max_context or context_length(folder, self._tokenizer)
        """Most tokens of prompt and answer together; None where nobody says."""
        self.added_ids = {token.content: number for number, token in self._tokenizer.added_tokens_decoder.items()}
        """Added tokens of the tokenizer: spelling -> id."""
        self.added_spellings = frozenset(self.added_ids)
        self.special_spellings = frozenset(
            token.content for token in self._tokenizer.added_tokens_decoder.values() if token.special
        )
        """Spellings of the tokens that the tokenizer flags special."""
        self.end_ids = end_ids(folder, self._tokenizer)
        """Tokens that end an answer."""
        self.added_bos = added_bos(self._tokenizer)
        """The token that begins every text where the tokenizer is asked for special tokens; "" if none does."""
        self._null_content = False
        self._as_objects = self._find_form_of_calls()

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> str:
        """The prompt's text.

        Args:
            messages: the conversation.
            tools: OpenAI's tool objects as they came; None where there are none.
            variables: further variables of the template, checked by the caller.
            add_generation_prompt: end where the assistant's turn begins.
            continue_final_message: end within the last message.

        Raises:
            RequestError: the template does not take this conversation; with its own words where it has some.
        """
        conversation = [self._message(message) for message in messages]
        return self._render(conversation, tools, variables, add_generation_prompt, continue_final_message)

    def render_as_is(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **switches: Any,
    ) -> str:
        """The prompt's text of messages that are already in the template's own terms (detection, self-check).

        Raises:
            RequestError: the template does not take this conversation.
        """
        return self._render([dict(message) for message in messages], tools, switches, add_generation_prompt, False)

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered prompt. The template has written what begins it: no BOS is added."""
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _render(
        self,
        conversation: list[dict[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
        add_generation_prompt: bool,
        continue_final_message: bool,
    ) -> str:
        source = self._source
        if self._null_content:
            conversation = list(without_content(conversation))
            source = PRELUDE + self._tokenizer.get_chat_template(source, tools)
        try:
            text: str = self._tokenizer.apply_chat_template(
                conversation,
                tools=list(tools) if tools else None,
                chat_template=source,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tokenize=False,
                **variables,
            )
        except jinja2.TemplateError as error:  # `raise_exception` in the template
            found = f"a conversation that the chat template refuses: {str(error.message)[:MAX_TEMPLATE_MESSAGE]}"
            raise RequestError("messages", found, "what the model's chat template takes") from None
        except Exception as error:  # a template is code: concatenating None, a missing key, ...
            found = f"a conversation that the chat template cannot render ({type(error).__name__})"
            raise RequestError("messages", found, "what the model's chat template takes") from error
        return text

    def _message(self, message: ChatMessage) -> dict[str, Any]:
        """A message as templates know it; members that are absent stay absent."""
        role = message.role
        if role == "developer" and "developer" not in self._text:
            role = "system"  # what OpenAI renamed; templates that know both keep them apart
        rendered: dict[str, Any] = {"role": role, "content": message.content or ""}
        for name in ("name", "tool_call_id"):
            if getattr(message, name) is not None:
                rendered[name] = getattr(message, name)
        reasoning = message.reasoning_content if message.reasoning is None else message.reasoning
        if reasoning is not None:
            rendered["reasoning_content"] = reasoning
        if message.tool_calls:
            rendered["tool_calls"] = [
                {
                    **({"id": call.id} if call.id is not None else {}),
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": self._arguments(call.function.arguments)},
                }
                for call in message.tool_calls
            ]
        return rendered

    def _arguments(self, arguments: Any) -> Any:
        """Arguments in the form the template wants; text that is no JSON object stays text."""
        if not self._as_objects:
            return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        if not isinstance(arguments, str):
            return arguments or {}
        try:
            value = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return arguments
        return value if isinstance(value, dict) else arguments

    def _sources(self) -> list[str]:
        """The templates that may be used: some tokenizers have one of their own for tools."""
        try:
            found = [self._tokenizer.get_chat_template(self._source, tools) for tools in _WITHOUT_AND_WITH_TOOLS]
        except ValueError as error:
            allowed = "a jinja file, or a tokenizer with a template"
            raise SettingsError("chat_template", f"no template ({str(error)[:120]})", allowed) from None
        return list(dict.fromkeys(found))

    def _find_variables(self) -> frozenset[str]:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(extensions=[_Generation, jinja2.ext.loopcontrols])
        read: set[str] = set()
        for source in self._sources():
            try:
                read |= jinja2.meta.find_undeclared_variables(environment.parse(source))
            except jinja2.TemplateSyntaxError as error:
                found = f"a template that does not compile (line {error.lineno}: {error.message})"
                raise SettingsError("chat_template", found, "a jinja chat template") from None
        self._read = frozenset(read)
        own = {*RENDERERS_OWN, *environment.globals, *self._tokenizer.special_tokens_map}
        return frozenset(name for name in read if name not in own and not name.startswith("_"))

    def _find_form_of_calls(self) -> bool:
        """Render a call in the history both ways: does the template write arguments itself, or want them as text?

        Qwen's `| tojson` and loops over `arguments.items()` want objects; DeepSeek's concatenates text, and V3's
        only where the content is none.
        """
        as_text = json.dumps(_PROBE)
        forms = [(form, null) for null in (False, True) for form in (_PROBE, as_text)]
        for form, self._null_content in forms:
            call = {"id": "call00000", "type": "function", "function": {"name": "probe", "arguments": form}}
            conversation: list[dict[str, Any]] = [
                {"role": "user", "content": "probe"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
            ]
            try:
                text = self._render(conversation, None, {}, False, False)
            except RequestError:
                continue
            # str() of a dict, or JSON text quoted once more, is not what the model was trained on
            if _PROBE["probe_key"] in text and "'probe_key'" not in text and '\\"probe_key' not in text:
                return form is _PROBE
        self._null_content = False
        return True


@functools.cache
def _load_tokenizer(folder: Path) -> Any:
    """Once per process."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not folder.is_dir() or not (folder / "tokenizer.json").is_file():
        raise SettingsError("tokenizer", f"no tokenizer.json in {folder}", "a Hugging Face folder with a tokenizer")
    try:
        if (folder / "tokenizer_config.json").is_file():
            return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    except Exception as error:  # noqa: BLE001 - the library raises whatever the file provokes
        found = f"{folder}, which cannot be read ({type(error).__name__}: {str(error)[:120]})"
        raise SettingsError("tokenizer", found, "a Hugging Face folder with a tokenizer") from None


def _read_template(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("chat_template", f"{path} ({error})", "a jinja file") from None


def check_variables(template: ChatTemplate, variables: Mapping[str, Any], field: str) -> None:
    """Check the names in `chat_template_kwargs`.

    Raises:
        RequestError: a name that the template does not read, or that is the renderer's own.
    """
    for name in variables:
        if name not in template.variables:
            allowed = ", ".join(sorted(template.variables)) or "none: this model's template reads no variables"
            raise RequestError(f"{field}.{name[:64]}", shown(variables[name]), f"the names {allowed}")
