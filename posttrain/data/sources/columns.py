"""From a record (column -> value) to a raw row, by the configured mapping of columns."""

from __future__ import annotations

import json
from typing import Any

from posttrain.data.config import Source
from posttrain.data.schema import Raw, Rejected, conversation_problem, to_json
from posttrain.data.sources.template import fill
from posttrain.errors import UserError


def mapped(source: Source) -> dict[str, str]:
    """Configuration key below `columns` -> column, for each one that every record must have."""
    columns = source.columns
    roles = ["answer", "system", "reasoning", "id", "tier"]
    found = {role: getattr(columns, role) for role in roles} | {
        f"metadata[{n}]": name for n, name in enumerate(columns.metadata)
    }
    found |= {"messages": columns.messages} if columns.messages else {"question": columns.question}
    if columns.messages and columns.answer == "answer":
        found.pop("answer")  # the default, and a conversation may hold its own answer
    return {role: name for role, name in found.items() if name}


def check_columns(source: Source, where: str, known: set[str]) -> None:
    """UserError naming the key whose column no record has."""
    for role, name in mapped(source).items():
        if name not in known:
            raise UserError("the data has no such column", field=f"{where}.columns.{role}", value=name,
                            remedy=f"it has {', '.join(sorted(known)) or 'none'}")  # fmt: skip


def to_raw(source: Source, index: int, where: str, place: str, record: dict[str, Any]) -> Raw | Rejected:
    """The raw row, or why there is none: `missing_value`, `wrong_type`, `bad_messages`."""

    def reject(reason: str, detail: str) -> Rejected:
        return Rejected(index, place, reason, detail, to_json(record))

    values: dict[str, str] = {}
    for role, name in mapped(source).items():
        value = record.get(name)
        if role.startswith("metadata") or role == "messages":
            continue
        if value is None or value == "":
            if role in ("question", "answer", "id"):
                return reject("missing_value", f"column {name}")
            value = ""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return reject("wrong_type", f"column {name} holds {type(value).__name__}")
        values[role] = _text(value)

    messages: tuple[dict[str, str], ...] = ()
    if source.columns.messages:
        given = _decoded(record.get(source.columns.messages))
        problem = conversation_problem(given)
        if problem:
            return reject("bad_messages", problem)
        messages = tuple({"role": m["role"], "content": m["content"]} for m in given)
        if "answer" not in values and source.columns.answer in record:
            values["answer"] = _text(record[source.columns.answer])
        if "answer" not in values and messages[-1]["role"] == "assistant":
            values["answer"] = messages[-1]["content"]
        if not values.get("answer"):
            return reject("missing_value", "neither an answer nor an assistant's message at the end")
    metadata = {name: record.get(name) for name in source.columns.metadata}
    question = values.get("question", "")
    if source.question and question:
        question = fill(source.question, {"question": question} | metadata, f"{where}.question")
    return Raw(
        source=index, place=place, question=question, answer=values["answer"], verifier=source.verifier,
        metadata=metadata, messages=messages, system=values.get("system", ""), reasoning=values.get("reasoning", ""),
        id=values.get("id", ""), tier=source.tier or values.get("tier", ""),
    )  # fmt: skip


def _text(value: Any) -> str:
    """A number as it would be written: 12.0, as a reader of Parquet or CSV may give it, is 12."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None
