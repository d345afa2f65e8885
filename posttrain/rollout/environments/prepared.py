"""Tasks of a table that `prepare_data` wrote: the prompt of each row, judged by the row's own verifier."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from posttrain.rollout.environments.base import Task


def tasks_of(rows: Iterable[Mapping[str, Any]]) -> list[Task]:
    """A row's conversation up to its last answer, which the policy is to give itself."""
    tasks = []
    for row in rows:
        messages = json.loads(row["messages"])
        if messages and messages[-1]["role"] == "assistant":
            messages = messages[:-1]
        metadata = json.loads(row["metadata"] or "{}")
        tasks.append(Task(row["id"], tuple(messages), row["verifier"], row["answer"], metadata, row["tier"]))
    return tasks
