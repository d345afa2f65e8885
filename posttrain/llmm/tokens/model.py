"""What the gateway knows of a model besides its weights: tokenizer, chat template, format of answers, ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from posttrain.contract.digest import digest_bytes
from posttrain.errors import UserError
from posttrain.llmm import ir
from posttrain.llmm.tokens.codec import Codec, load_codec
from posttrain.llmm.tokens.messages import TemplateMessages, template_messages
from posttrain.llmm.tokens.parsers import Format, detect
from posttrain.llmm.tokens.parsers.formats import named
from posttrain.llmm.tokens.template import ChatTemplate, Rendering


@dataclass(frozen=True)
class Prompt:
    """A request as the model's text. `thinking`: it leaves reasoning open, so that the answer goes on in it."""

    given: TemplateMessages
    rendering: Rendering
    thinking: bool

    @property
    def text(self) -> str:
        return self.rendering.text


@dataclass(frozen=True)
class ChatModel:
    """`ends` are the ids that end an answer: all that the model declares, not only the tokenizer's one."""

    codec: Codec
    template: ChatTemplate
    format: Format
    ends: frozenset[int]
    context_length: int  # tokens of prompt and answer together
    arguments: dict[str, Any] = field(default_factory=dict)  # of the template, in every rendering
    name_media: bool = False  # in place of refusing an image or the like

    @cached_property
    def template_digest(self) -> str:
        return digest_bytes(self.template.source.encode())

    def prompt(
        self, request: ir.ChatRequest, *, now: datetime | None = None,
        restore: Callable[[TemplateMessages], TemplateMessages] = lambda given: given,
    ) -> Prompt:  # fmt: skip
        """`restore` puts back what the wire lost (see `History.restore`).

        Raises UserError where the model or its template cannot take the request.
        """
        developer = "developer" in self.template.source
        given = restore(template_messages(request, developer=developer, name_media=self.name_media))
        none = request.tool_choice is not None and request.tool_choice.mode == "none"
        arguments = self.arguments | _thinking(request.thinking)
        rendering = self.template.render(given.messages, () if none else given.tools, now=now, **arguments)
        return Prompt(given, rendering, self.format.opens_reasoning(rendering.text[-200:]))


def load_model(
    directory: Path, *, template: str = "", format: str = "", arguments: dict[str, Any] | None = None,
    name_media: bool = False, field: str = "model",
) -> ChatModel:  # fmt: skip
    """The model in `directory` (Hugging Face's layout). `template` is a file that replaces its own chat template,
    `format` names how it writes reasoning and calls where the template does not tell. Raises UserError."""
    if not directory.is_dir():
        raise UserError("no such directory", field=field, value=str(directory))
    codec = load_codec(directory, field=field)
    source = _template_source(directory, template, field)
    config = _read(directory / "config.json")
    context = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    return ChatModel(
        codec, ChatTemplate(source, codec.special_tokens), named(format) if format else detect(source),
        frozenset(_ends(directory, config, codec)), int(context or 0), dict(arguments or {}), name_media,
    )  # fmt: skip


def _template_source(directory: Path, template: str, field: str) -> str:
    if template:
        if not Path(template).is_file():
            raise UserError("no such file", field="template", value=template)
        return Path(template).read_text()
    beside = directory / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text()
    found = _read(directory / "tokenizer_config.json").get("chat_template")
    if isinstance(found, list):  # several by name
        found = {entry["name"]: entry["template"] for entry in found}.get("default")
    if not found:
        remedy = "put a chat_template.jinja beside its tokenizer, or name a file of one"
        raise UserError("has no chat template", field=field, value=str(directory), remedy=remedy)
    return found


def _ends(directory: Path, config: dict[str, Any], codec: Codec) -> set[int]:
    found: set[int] = set()
    for declared in (_read(directory / "generation_config.json").get("eos_token_id"), config.get("eos_token_id")):
        found |= set(declared) if isinstance(declared, list) else {declared} if declared is not None else set()
    own = codec.token_id(codec.special_tokens.get("eos_token", ""))
    return found | ({own} if own is not None else set())


def _thinking(asked: ir.Thinking | None) -> dict[str, Any]:
    """The words of the templates that can be told how much to think."""
    told: dict[str, Any] = {}
    if asked is not None and asked.enabled is not None:
        told |= {"enable_thinking": asked.enabled, "thinking": asked.enabled}
    if asked is not None and asked.effort is not None:
        told["reasoning_effort"] = asked.effort
    return told


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.is_file() else {}
