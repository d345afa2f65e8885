"""Which characters of a rendered conversation the model has to produce.

Invariant: a span starts where the prompt of generation ends and holds the assistant's message as the
template writes it; what it takes for granted about the template is checked on each conversation, and
one that cannot be read this way is an error, never a guess.

Two views of the same text are laid side by side: the conversation with one message of the assistant's
replaced by a mark (which shows where the message stands), and the conversation up to that message with
the prompt of generation (which shows what the model is given). Pure: `render` is all it knows of a template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from posttrain.errors import UserError

Message = dict[str, str]
Render = Callable[[Sequence[Message], bool], str]  # (messages, with the prompt of generation?) -> text


class Span(NamedTuple):
    """Character offsets. The turn's text ends at `content_end`; None where only its `limit` is known."""

    start: int
    content_end: int | None
    limit: int


def assistant_spans(render: Render, messages: Sequence[Message]) -> tuple[str, list[Span]]:
    """The rendered conversation, and the span of each of the assistant's messages in it.

    Raises UserError where the template rewrites the text so that a message cannot be found.
    """
    text = render(messages, False)
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return text, [_span(render, messages, index, text) for index in turns]


def _span(render: Render, messages: Sequence[Message], index: int, text: str) -> Span:
    prompt = render(messages[:index], True)
    given = len(prompt) if text.startswith(prompt) else None
    limit = len(text)
    if index + 1 < len(messages):
        until = render(messages[: index + 1], False)
        limit = len(until) if text.startswith(until) else limit
    content = _content(render, messages, index, text)
    if content is not None:
        start, end = content
        return Span(start if given is None or given > start else given, end, max(limit, end))
    if given is None or (limit == len(text) and index + 1 < len(messages)):
        raise UserError(
            f"rewrites the conversation so that message {index} (assistant) cannot be found in it",
            field="chat_template",
            remedy="put {% generation %} … {% endgeneration %} around the assistant's part of the template",
        )
    return Span(given, None, limit)


def _content(render: Render, messages: Sequence[Message], index: int, text: str) -> tuple[int, int] | None:
    """Where message `index` stands in `text`; None where other text than its own changes with it."""
    mark = _mark(text)
    marked = render([*messages[:index], {**messages[index], "content": mark}, *messages[index + 1 :]], False)
    before, found, after = marked.partition(mark)
    if not found or mark in after or not text.startswith(before) or not text.endswith(after):
        return None
    start, end = len(before), len(text) - len(after)
    # A template may trim a message or take its thoughts out: what lies between must be of the message, no more.
    return (start, end) if text[start:end].strip() in messages[index]["content"] else None


def _mark(text: str) -> str:
    mark = "messageofassistant"
    while mark in text:
        mark += "x"
    return mark
