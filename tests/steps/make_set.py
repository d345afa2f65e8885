"""Makes an evaluation set whose answers are what the model `able` replies, and evaluates that model on it.

    python make_set.py WORKSPACE ROWS

A program of its own, since vLLM sets the threads of its process for good. Prints the refs of the set and of the
results, and what the same prompts drew in two orders, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from posttrain.data.schema import ROWS
from posttrain.evaluation.evaluate import evaluate
from posttrain.evaluation.rows import read_rows
from posttrain.evaluation.sampler import Sampler
from posttrain.evaluation.schema import How, to_table
from posttrain.evaluation.settings import Sampling
from posttrain.lake import write_table
from posttrain.reward.score import AnswerForm, score
from posttrain.serving.settings import EngineSettings

GREEDY = Sampling(max_tokens=8)
DRAWN = Sampling(samples=3, temperature=1.0, max_tokens=8)


def row(number: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{number} + {number * 7 % 50} = ?"}]
    return {
        "id": f"p{number}", "source": "made", "messages": json.dumps(messages), "answer": "", "verifier": "exact",
        "metadata": "{}", "tier": ("easy", "medium", "hard")[number % 3], "tokens": 0,
    }  # fmt: skip


def ask(sampler: Sampler, rows: list[dict[str, Any]], sampling: Sampling) -> dict[str, list[str]]:
    """The texts of every row's samples by its id."""
    found: dict[str, list[str]] = {}
    names = [r["id"] for r in rows]
    sampler.sample(
        [json.loads(r["messages"]) for r in rows], names, sampling,
        lambda index, completions: found.update({names[index]: [c.text for c in completions]}),
    )  # fmt: skip
    return found


def main(workspace: Path, count: int) -> None:
    sampler = Sampler(workspace / "models/able", EngineSettings(dtype="float32"))
    candidates = [row(number) for number in range(3 * count)]
    replies = ask(sampler, candidates, GREEDY)
    for each in candidates:
        each["answer"] = score("exact", "", "", replies[each["id"]][0]).extracted or ""
    rows = [r for r in candidates if score("exact", r["answer"], "", replies[r["id"]][0]).correct][:count]
    table, how = pa.Table.from_pylist(rows, schema=ROWS), How(GREEDY, AnswerForm())
    results = evaluate(sampler, read_rows(table, field="data"), how)
    told = {
        "data": str(write_table(workspace, "lake/set.lance", table)),
        "results": str(write_table(workspace, "lake/able.lance", to_table(results, how))),
        "drawn": ask(sampler, rows[:4], DRAWN),
        "drawn_in_another_order": ask(sampler, rows[3::-1], DRAWN),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
