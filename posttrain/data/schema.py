"""The forms a row takes: raw as read, rejected, example, and the stored row that every later step reads.

Stored rows have one schema for training, validation and evaluation. In the first two `messages` ends
with the assistant's message, in the third with the user's; `answer`, `verifier` and `metadata` are what
a verifier needs to judge a completion.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from posttrain.data.config import TIERS

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": text}

ROWS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("messages", pa.string(), nullable=False),  # JSON list of {role, content}
        pa.field("answer", pa.string(), nullable=False),
        pa.field("verifier", pa.string(), nullable=False),  # reasoning_gym:DATASET, exact, numeric, math
        pa.field("metadata", pa.string(), nullable=False),  # JSON object
        pa.field("tier", pa.string(), nullable=False),  # easy, medium, hard
        pa.field("tokens", pa.int32(), nullable=False),  # of the rendered messages; 0 where no tokenizer was given
    ]
)
_COLUMNS = ("source", "place", "reason", "detail", "content")
QUARANTINE = pa.schema([pa.field(name, pa.string(), nullable=False) for name in _COLUMNS])
REMOVED = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "source", "reason", "matched")])


@dataclass(frozen=True)
class Raw:
    """One row as a source gives it. `messages` is given where the row is a conversation already."""

    source: int  # the source's place in the configuration
    place: str  # file:line, or the entry's number
    question: str
    answer: str
    verifier: str
    metadata: dict[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    system: str = ""
    reasoning: str = ""
    id: str = ""
    tier: str = ""


@dataclass(frozen=True)
class Rejected:
    """A bad row: what it was, and in one word why (`reason`), for the quarantine."""

    source: int
    place: str
    reason: str
    detail: str
    content: str


@dataclass(frozen=True)
class Example:
    """A problem as a conversation. `question` is the text that is compared with other problems."""

    id: str
    source: int
    question: str
    prompt: tuple[Message, ...]  # ends with the user's
    target: str  # the assistant's reply
    answer: str
    verifier: str
    metadata: dict[str, Any]
    tier: str = ""
    tokens: int = 0

    def messages(self, *, with_target: bool) -> list[Message]:
        reply = [{"role": "assistant", "content": self.target}] if with_target else []
        return [*self.prompt, *reply]


@dataclass(frozen=True)
class Removed:
    """A sound row that was not wanted: a duplicate, or one of the evaluation's. `matched` is the other row's id."""

    id: str
    source: int
    reason: str
    matched: str


def to_table(examples: list[Example], labels: list[str], *, with_target: bool) -> pa.Table:
    """Stored rows of `examples`; `labels` are the sources' names."""
    return pa.Table.from_pylist(
        [
            {
                "id": example.id,
                "source": labels[example.source],
                "messages": to_json(example.messages(with_target=with_target)),
                "answer": example.answer,
                "verifier": example.verifier,
                "metadata": to_json(example.metadata),
                "tier": example.tier,
                "tokens": example.tokens,
            }
            for example in examples
        ],
        schema=ROWS,
    )


def removed_table(removed: list[Removed], labels: list[str]) -> pa.Table:
    rows = [{"id": r.id, "source": labels[r.source], "reason": r.reason, "matched": r.matched} for r in removed]
    return pa.Table.from_pylist(rows, schema=REMOVED)


def check_row(row: dict[str, Any], *, with_target: bool) -> str | None:
    """What is wrong with a stored row, or None. For tables that come from elsewhere, and for the tests."""
    for name in ROWS.names:
        if row.get(name) is None:
            return f"{name} is missing"
    try:
        messages, metadata = json.loads(row["messages"]), json.loads(row["metadata"])
    except ValueError as problem:
        return f"messages or metadata are no JSON: {problem}"
    if not isinstance(metadata, dict):
        return "metadata is no object"
    if disorder := conversation_problem(messages):
        return disorder
    last = "assistant" if with_target else "user"
    if messages[-1]["role"] != last:
        return f"the last message is not the {last}'s"
    return None if row["tier"] in TIERS else f"tier {row['tier']!r} is none of {', '.join(TIERS)}"


def conversation_problem(messages: Any) -> str | None:
    """Why `messages` is no conversation, or None: an optional system message, then user and assistant in turn."""
    if not isinstance(messages, list | tuple) or not messages:
        return "messages is no list with something in it"
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            return "a message is no object with a role and a text"
    roles = [message.get("role") for message in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    if not turns or any(role != ("user", "assistant")[index % 2] for index, role in enumerate(turns)):
        return "roles are out of order: " + ", ".join(str(role) for role in roles[:8])
    return None


def to_json(value: Any) -> str:
    """One spelling for equal values, so that digests agree. What JSON cannot say is written as text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
