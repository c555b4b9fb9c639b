"""Chat templates as transformers renders them, and those that installed packages carry, unchanged."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from tristream.parsers.detect_turns import Render

TEMPLATES = Path(__file__).parent.parent / "vectors" / "templates"
PACKAGED = TEMPLATES.parent.parent.parent / "build" / "tokenizers"


class _Generation(jinja2.ext.Extension):
    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def renderer(source: str) -> Render:
    """A template as a callable."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=_raise, strftime_now=lambda _format: "1 Dec 2026")
    template = environment.from_string(source)

    def render(messages: Any, *, tools: Any = None, add_generation_prompt: bool = False, **switches: Any) -> str:
        switches = {"bos_token": "<s>", "eos_token": "</s>", **switches}
        return template.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt, **switches)

    return render


def written(name: str) -> Render:
    """A template of tests/vectors/templates."""
    return renderer((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))


def tokenizer_template(name: str) -> Render:
    """The template in a tokenizer's configuration."""
    path = PACKAGED / name / "tokenizer_config.json"
    return renderer(json.loads(path.read_text(encoding="utf-8"))["chat_template"])


def package_templates() -> dict[str, str]:
    """Templates of many models, from the npm package @huggingface/ollama-utils."""
    return dict(_package_templates())


def _package_templates() -> Iterator[tuple[str, str]]:
    path = PACKAGED / "templates" / "chat-template-automap.ts"
    literal = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
    entry = re.compile(rf"^\t\tmodel: ({literal}),\n\t\tgguf:\s*({literal}),$", re.MULTILINE)
    for model, source in entry.findall(path.read_text(encoding="utf-8")):
        yield ast.literal_eval(model).removeprefix("library/"), ast.literal_eval(source)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
