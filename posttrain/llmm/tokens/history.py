"""The ids of a trajectory: a tree of turns, each of which goes on from the ids of an earlier one or begins anew.

Invariants: sampled ids are kept as they were sampled and never tokenised again; a prompt that goes on is the ids
before it, followed by the ids of what the template has newly written. Where the template writes the past in other
words than were sampled, or the client has edited it, the turn begins anew: a fork, with its reason. Over all rows
of a trajectory each sampled token is in the loss exactly once.

Whether a turn goes on is decided by the text alone: it does if the rendering begins with the text of the earlier
turn's ids. Messages are looked at only to restore what the wire lost, and to name a fork's reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from posttrain.llmm import ir
from posttrain.llmm.tokens.codec import Codec
from posttrain.llmm.tokens.lower import to_completion, to_tokens
from posttrain.llmm.tokens.messages import TemplateMessages
from posttrain.llmm.tokens.model import Prompt
from posttrain.llmm.tokens.template import Verbatim

Rewrites = Literal["fork", "keep"]


@dataclass(frozen=True)
class Sampled:
    """What the engine sampled. `logprobs` has one entry for each id; `policy` spans are (version, start, end)."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    policy: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class Plan:
    """A prompt for the engine: `ids`, of which `new` come after those of the turn `parent`. `fork` says why the
    turn does not go on from the ids that it seems to; None where it does, or where it begins a conversation."""

    parent: int | None
    ids: tuple[int, ...]
    new: ir.Tokens
    text: str
    keys: tuple[str, ...]
    fork: str | None


@dataclass(frozen=True)
class Taken:
    """What rows are made of: the ids that a turn added to those of its parent, and what was sampled after them."""

    parent: int | None
    new: ir.Tokens
    sampled: Sampled


@dataclass(frozen=True)
class Node(Taken):
    """One turn. `text` is that of all ids up to its end; `keys` stand for the messages up to its answer."""

    text: str
    keys: tuple[str, ...]
    length: int


@dataclass(frozen=True)
class Row:
    """A line of turns from a beginning to an end. `turns` count as `History.nodes` does."""

    turns: tuple[int, ...]
    tokens: ir.Tokens


class History:
    """`rewrites`: where the template would write sampled text otherwise, "fork", or "keep" the ids as they are and
    append what follows the answer (the model then sees what it sampled, not what its template makes of it)."""

    def __init__(self, codec: Codec, *, rewrites: Rewrites = "fork"):
        self._codec, self._rewrites = codec, rewrites
        self.nodes: list[Node] = []
        self.forks: dict[str, int] = {}  # reason -> count
        self._counted: Plan | None = None  # whose fork was counted last
        self._thoughts: dict[str, str] = {}  # answer without its reasoning -> reasoning
        self._arguments: dict[str, str] = {}  # call -> its arguments as they were sampled

    def restore(self, given: TemplateMessages) -> TemplateMessages:
        """Put back into answers of this trajectory what the client's wire has no place for: the reasoning, and the
        arguments of calls to the letter. The template decides what it shows of them."""
        return replace(given, messages=tuple(self._restored(message) for message in given.messages))

    def plan(self, prompt: Prompt) -> Plan:
        """How the engine is to be asked. `prompt` was made with `restore`."""
        text, keys = prompt.text, tuple(map(_key, prompt.given.messages))
        parent, text_of_tail = self._goes_on(prompt, keys)
        fork = self._fork(parent, keys, prompt)
        if parent is None:
            new = to_tokens(to_completion(prompt.rendering, prompt.given), self._codec)
            return Plan(None, new.ids, new, text, keys, fork)
        before = self.nodes[parent]
        new = self._tail(prompt, text_of_tail)
        return Plan(parent, self.ids(parent) + new.ids, new, before.text + text_of_tail, keys, fork)

    def add(self, plan: Plan, sampled: Sampled, answer: dict[str, Any]) -> int:
        """The turn's number. `answer` is the sampled message as a template takes it; there may be several to a plan."""
        if plan.fork and plan is not self._counted:
            self.forks[plan.fork] = self.forks.get(plan.fork, 0) + 1
            self._counted = plan
        text = plan.text + self._codec.decode(sampled.ids)
        length = len(plan.ids) + len(sampled.ids)
        self.nodes.append(Node(plan.parent, plan.new, sampled, text, (*plan.keys, _key(answer)), length))
        if thought := answer.get("reasoning_content"):
            self._thoughts[_key(_without_thought(answer))] = thought
        for call in answer.get("tool_calls") or ():
            if isinstance(call["function"]["arguments"], str):
                self._arguments[_call_key(call)] = call["function"]["arguments"]
        return len(self.nodes) - 1

    def ids(self, turn: int) -> tuple[int, ...]:
        """All ids up to the end of `turn`."""
        line = [self.nodes[index] for index in _line(self.nodes, turn)]
        return tuple(i for node in line for i in (*node.new.ids, *node.sampled.ids))

    def rows(self) -> list[Row]:
        return rows_of(self.nodes)

    def _goes_on(self, prompt: Prompt, keys: tuple[str, ...]) -> tuple[int | None, str]:
        """The turn that the prompt goes on from, and the text after it."""
        best: int | None = None
        for index, node in enumerate(self.nodes):
            if prompt.text.startswith(node.text) and (best is None or node.length >= self.nodes[best].length):
                best = index
        if self._rewrites == "keep":
            kept = [i for i, node in enumerate(self.nodes) if keys[: len(node.keys)] == node.keys]
            deepest = max(kept, key=lambda i: (len(self.nodes[i].keys), i), default=None)
            if deepest is not None and (best is None or len(self.nodes[deepest].keys) > len(self.nodes[best].keys)):
                return deepest, self._after(prompt, self.nodes[deepest])
        return best, "" if best is None else prompt.text[len(self.nodes[best].text) :]

    def _after(self, prompt: Prompt, node: Node) -> str:
        """What the template writes after the node's answer, from the end of its turn on."""
        place = prompt.rendering.of(len(node.keys) - 1)
        if place is None:
            return ""
        written = prompt.text[place.start : place.end]
        specials = [self._codec.token_text(i) for i in self._codec.specials]
        end, text = max(((written.rfind(text), text) for text in specials), default=(-1, ""))
        closing = written[end:] if end >= 0 else ""
        ended = bool(node.sampled.ids) and self._codec.token_text(node.sampled.ids[-1]) == text
        return (closing[len(text) :] if ended else closing) + prompt.text[place.end :]

    def _tail(self, prompt: Prompt, tail: str) -> ir.Tokens:
        """`tail` as ids; it is the end of the rendering, or ends with the same text as that."""
        completion = to_completion(prompt.rendering, prompt.given)
        shift = len(prompt.text) - len(tail)
        spans = [
            ir.Span(max(span.start - shift, 0), span.end - shift, span.author, message=span.message)
            for span in completion.spans
            if span.end > shift
        ]
        return to_tokens(ir.Completion(text=tail, spans=tuple(spans)), self._codec)

    def _restored(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["role"] != "assistant":
            return message
        restored = dict(message)
        if message.get("tool_calls"):
            restored["tool_calls"] = [self._restored_call(call) for call in message["tool_calls"]]
        if "reasoning_content" not in message and (thought := self._thoughts.get(_key(message))):
            restored |= {"reasoning_content": thought, "thinking": thought}
        return restored

    def _restored_call(self, call: dict[str, Any]) -> dict[str, Any]:
        sampled = self._arguments.get(_call_key(call))
        if sampled is None:
            return call
        return {**call, "function": {**call["function"], "arguments": Verbatim(sampled)}}

    def _fork(self, parent: int | None, keys: tuple[str, ...], prompt: Prompt) -> str | None:
        if not self.nodes:
            return None
        if parent is not None and all(node.parent != parent for node in self.nodes):
            return None
        near = max(range(len(self.nodes)), key=lambda i: (_common(self.nodes[i].keys, keys), i))
        node = self.nodes[near]
        if parent is None and not any(json.loads(key)["role"] == "assistant" for key in keys):
            return None  # a conversation of its own: a sub-agent, a title for the first one
        common = _common(node.keys, keys)
        if common in (len(node.keys), len(keys)):
            return "sampled_again" if parent is not None else _rewrite(node.text, prompt.text)
        if keys[common] in node.keys[common + 1 :]:
            return "history_cut"
        return _edit(json.loads(node.keys[common]), json.loads(keys[common]))


def rows_of(turns: Sequence[Taken]) -> list[Row]:
    """A row for each turn that none goes on from, in order."""
    inner = {turn.parent for turn in turns}
    trained: set[int] = set()
    rows = []
    for leaf in (index for index in range(len(turns)) if index not in inner):
        line = _line(turns, leaf)
        rows.append(Row(line, _tokens(turns, line, trained)))
        trained |= set(line)
    return rows


def tokens_of(turns: Sequence[Taken], turn: int) -> ir.Tokens:
    """All ids up to the end of `turn`, all that was sampled in the loss."""
    return _tokens(turns, _line(turns, turn), set())


def _line(turns: Sequence[Taken], turn: int) -> tuple[int, ...]:
    line: list[int] = []
    at: int | None = turn
    while at is not None:
        line.append(at)
        at = turns[at].parent
    return tuple(reversed(line))


def _tokens(turns: Sequence[Taken], line: Sequence[int], trained: set[int]) -> ir.Tokens:
    ids: list[int] = []
    logprobs: list[float] = []
    spans: list[ir.Span] = []
    for index in line:
        turn, loss = turns[index], index not in trained
        spans += [_moved(span, len(ids)) for span in turn.new.spans]
        ids += turn.new.ids
        logprobs += [0.0] * len(turn.new.ids)
        spans += _sampled_spans(turn.sampled, len(ids), index, loss)
        ids += turn.sampled.ids
        given = turn.sampled.logprobs or (0.0,) * len(turn.sampled.ids)
        logprobs += given if loss else (0.0,) * len(given)
    known = all(turns[index].sampled.logprobs is not None for index in line)
    return ir.Tokens(
        ids=tuple(ids), spans=tuple(spans), logprobs=tuple(logprobs) if known else None,
        tokenizer=turns[line[0]].new.tokenizer,
    )  # fmt: skip


def _sampled_spans(sampled: Sampled, shift: int, turn: int, loss: bool) -> list[ir.Span]:
    versions = sampled.policy or ((-1, 0, len(sampled.ids)),)
    return [
        ir.Span(start + shift, end + shift, "policy", loss, turn=turn, policy=None if version < 0 else version)
        for version, start, end in versions
    ]


def _moved(span: ir.Span, shift: int) -> ir.Span:
    return ir.Span(span.start + shift, span.end + shift, span.author, message=span.message)


def _rewrite(sampled: str, rendered: str) -> str:
    """Why a template's text of the same messages is another one."""
    at = _common(sampled, rendered)
    if "".join(sampled.split()) == "".join(rendered.split())[: len("".join(sampled.split()))]:
        return "whitespace"
    opened = max(sampled.rfind(mark, 0, at + 10) for mark in ("<think>", "[THINK]", "<|channel"))
    closed = max(sampled.rfind(mark, 0, at) for mark in ("</think>", "[/THINK]", "<|end|>", "<channel|>"))
    return "reasoning_dropped" if opened > closed else "template_rewrote"


def _edit(was: dict[str, Any], now: dict[str, Any]) -> str:
    """What a client did to a message."""
    if was["role"] != now["role"]:
        return "history_cut"
    if was["role"] in ("system", "developer"):
        return "system_changed"
    if was["role"] == "tool":
        return "tool_result_changed"
    if was.get("calls") and not now.get("calls"):
        return "tool_calls_cleared"
    if was.get("thought") and not now.get("thought") and {**was, "thought": None} == {**now, "thought": None}:
        return "reasoning_dropped"
    return "message_edited"


def _key(message: dict[str, Any]) -> str:
    """What a message says, in one form: calls without their ids, arguments as JSON values."""
    calls = [_call_value(call) for call in message.get("tool_calls") or ()]
    said = {"role": message["role"], "content": message["content"], "calls": calls}
    return json.dumps(said | {"thought": message.get("reasoning_content") or None}, sort_keys=True)


def _call_key(call: dict[str, Any]) -> str:
    return json.dumps(_call_value(call), sort_keys=True)


def _call_value(call: dict[str, Any]) -> list[Any]:
    arguments = call["function"]["arguments"]
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except json.JSONDecodeError:
        value = arguments
    return [call["function"]["name"], value]


def _without_thought(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "reasoning_content"}


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Length of the longest common beginning."""
    if isinstance(one, str) and isinstance(other, str) and other.startswith(one):
        return len(one)
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
