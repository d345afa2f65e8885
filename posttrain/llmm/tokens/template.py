"""A model's chat template: rendered with the place of each message in the text known to the character.

Invariants: the text is the one that Transformers' `apply_chat_template` gives for the same arguments; the pieces
of the messages tile it, together with what the template writes of its own accord. Nothing is guessed: the places
come from marks that the template itself is made to write where a round of a loop over the messages begins.

A round is recognised by what it is about at the time of rendering, so that loops over content parts, tool calls or
arguments leave no mark. A message that no round is about (a system message that is put into a preamble) is written
in another's piece, or before the first one.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from posttrain.errors import UserError

Message = Mapping[str, Any]  # role, content, and what the template knows besides (tool_calls, reasoning_content, …)
Tool = Mapping[str, Any]
Taken = Literal["objects", "text", "either"]


class Verbatim(str):
    """Arguments of a call as a model wrote them: a template that takes JSON text is given just that."""


TEMPLATE = -1  # a piece's message, where the template wrote it of its own accord: tools, prompts of generation


@dataclass(frozen=True)
class Piece:
    """Characters [start, end) of a rendering, written for message `message` (or `TEMPLATE`)."""

    message: int
    start: int
    end: int


@dataclass(frozen=True)
class Rendering:
    text: str
    pieces: tuple[Piece, ...]  # in order; they tile the text

    def of(self, message: int) -> Piece | None:
        """The last piece of a message: templates that look through the messages first leave empty ones before."""
        return next((piece for piece in reversed(self.pieces) if piece.message == message), None)


class ChatTemplate:
    """A template with the special tokens that it may name. Raises UserError where it is no template."""

    def __init__(self, source: str, special_tokens: Mapping[str, Any] | None = None, *, field: str = "chat_template"):
        self.source, self._special, self._field = source, dict(special_tokens or {}), field
        self._nonce = secrets.token_hex(4)  # so that no message can carry a mark
        self._mark = re.compile(f"\ue000{self._nonce}:(-?[0-9]+)\ue001")
        try:
            self._template = _Environment().from_string(source)
        except jinja2.TemplateSyntaxError as problem:
            raise UserError(f"is no template: line {problem.lineno}: {problem.message}", field=field) from None
        self._arguments = self._arguments_taken()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool] | None = None, *, generation: bool = True,
        now: datetime | None = None, **arguments: Any,
    ) -> Rendering:  # fmt: skip
        """The conversation as text; with `generation` up to where the model goes on.

        `now` is what a template that writes the date is told; a conversation that lasts over midnight keeps its
        first. Arguments of tool calls may be given as objects or as JSON. Raises UserError (422 for a client)
        where the template refuses the messages.
        """
        given = [_as_taken(message, self._arguments) for message in messages]
        return self._render(given, tools, generation, now or datetime.now(), arguments)

    def _render(
        self, messages: list[dict[str, Any]], tools: Sequence[Tool] | None, generation: bool, now: datetime,
        arguments: Mapping[str, Any],
    ) -> Rendering:  # fmt: skip
        rounds = _Rounds(messages, f"\ue000{self._nonce}:%d\ue001")
        try:
            marked = self._template.render(
                {**self._special, **arguments}, messages=messages, tools=list(tools) if tools else None, documents=None,
                add_generation_prompt=generation, strftime_now=lambda form: now.strftime(form),
                __begin__=rounds.begin, __end__=rounds.end,
            )  # fmt: skip
        except jinja2.TemplateError as problem:
            raise UserError(f"the model's chat template refuses the messages: {problem}", field="messages") from None
        except (TypeError, ValueError, AttributeError, KeyError) as problem:
            raise UserError(
                f"the model's chat template cannot write the messages: {problem}", field="messages"
            ) from problem
        return self._unmarked(marked, len(messages))

    def _unmarked(self, marked: str, count: int) -> Rendering:
        parts = self._mark.split(marked)  # text, number, text, number, …
        text, pieces = [parts[0]], []
        place = len(parts[0])
        if place:
            pieces.append(Piece(TEMPLATE, 0, place))
        for number, part in zip(parts[1::2], parts[2::2], strict=True):
            if part:
                pieces.append(Piece(int(number), place, place + len(part)))
            text.append(part)
            place += len(part)
        return Rendering("".join(text), tuple(_preamble_of(pieces, count)))

    def _arguments_taken(self) -> Taken:
        """What the template makes of a call's arguments: it writes objects, JSON text as it is, or either."""
        objects, text = self._write_call({"a": 1}), self._write_call('{"a":   1}')
        if text is not None and '{"a":   1}' in text:
            return "text" if objects is None else "either"
        return "objects"

    def _write_call(self, arguments: Any) -> str | None:
        call = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": arguments}}
        asked: list[dict[str, Any]] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call00000", "name": "f", "content": "b"},
        ]
        try:
            return self._render(asked, None, False, datetime.now(), {}).text
        except UserError:
            return None


class _Rounds:
    """Says, as the template asks, which message a round of a loop is about; loops lie in each other."""

    def __init__(self, messages: Sequence[Message], mark: str):
        self._number = {id(message): index for index, message in enumerate(messages)}
        self._mark, self._open = mark, list[tuple[int, int, bool]]()

    def begin(self, loop: int, item: Any, by_number: bool = False) -> str:
        """A round is about `item`; `by_number` where the loop counts and the item is looked up in its body."""
        number = self._number.get(id(item))
        inside = self._open[-1] if self._open else None
        if number is None or (by_number and inside and inside[0] == loop and not inside[2]):
            return ""  # in a loop over the messages, a look at another one
        if inside and inside[0] == loop:
            self._open.pop()
        self._open.append((loop, number, by_number))
        return self._mark % number

    def end(self, loop: int) -> str:
        if not self._open or self._open[-1][0] != loop:
            return ""
        self._open.pop()
        return self._mark % (self._open[-1][1] if self._open else TEMPLATE)


class _Marking(NodeTransformer):
    """Has each loop with a single variable say where its rounds begin, and where it ends."""

    def __init__(self) -> None:
        self._loops, self._inside = 0, list[int]()

    def visit_For(self, node: nodes.For) -> list[nodes.Node]:
        if not isinstance(node.target, nodes.Name):
            self.generic_visit(node)
            return [node]
        self._loops += 1
        number = self._loops
        self._inside.append(number)
        self.generic_visit(node)
        self._inside.pop()
        node.body.insert(0, self._call("__begin__", number, node.lineno, _load(node.target)))
        return [node, self._call("__end__", number, node.lineno)]

    def visit_Assign(self, node: nodes.Assign) -> list[nodes.Node]:
        if not self._inside or not isinstance(node.target, nodes.Name):
            return [node]
        looked_up = (_load(node.target), nodes.Const(True, lineno=node.lineno))
        return [node, self._call("__begin__", self._inside[-1], node.lineno, *looked_up)]

    def _call(self, name: str, loop: int, line: int, *more: nodes.Expr) -> nodes.Output:
        arguments = [nodes.Const(loop, lineno=line), *more]
        called = nodes.Call(nodes.Name(name, "load", lineno=line), arguments, [], None, None, lineno=line)
        return nodes.Output([called], lineno=line)


def _load(name: nodes.Name) -> nodes.Name:
    return nodes.Name(name.name, "load", lineno=name.lineno)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` of templates made for training: what it holds is written as it is."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's interface)

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Environment(ImmutableSandboxedEnvironment):
    """What Transformers offers to a template: the same syntax, filters and functions."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _refuse

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Marking().visit(super()._parse(source, name, filename))


def _to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
             sort_keys: bool = False) -> str:  # fmt: skip
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(reason: str) -> str:
    raise jinja2.TemplateError(reason)


def _as_taken(message: Message, taken: Taken) -> dict[str, Any]:
    """A copy of the message, its calls' arguments as the template takes them."""
    copy = dict(message)
    if copy.get("tool_calls"):
        copy["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _argument(call["function"]["arguments"], taken)}}
            for call in copy["tool_calls"]
        ]
    return copy


def _argument(arguments: Any, taken: Taken) -> Any:
    if taken == "text" or (taken == "either" and isinstance(arguments, Verbatim)):
        return _as_text(arguments)
    return _as_object(arguments)


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _as_object(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except json.JSONDecodeError:  # what a model sampled need not be JSON; the template shows it as it is
        return arguments


def _preamble_of(pieces: list[Piece], count: int) -> list[Piece]:
    """Give the text before the first message to a first message that no loop has written."""
    if count and pieces and pieces[0].message == TEMPLATE and all(piece.message != 0 for piece in pieces):
        pieces[0] = Piece(0, pieces[0].start, pieces[0].end)
    return pieces
