"""The data card: what is in the sets, where it came from and what was left out, as a value and as Markdown.

Invariant: it depends on the data and the configuration alone; no time, host or path of a machine is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median_low
from typing import Any

from posttrain.data import quarantine
from posttrain.data.config import TIERS, DataConfig
from posttrain.data.pipeline import Sets, Sound
from posttrain.data.schema import Example

Card = dict[str, Any]
_SHOWN = 3


def describe(
    config: DataConfig, seed: int, sources: list[dict[str, Any]], rows: Sound, sets: Sets, refs: dict[str, str]
) -> Card:
    """The card as a JSON value. `sources` says what each source was, `refs` names the stored tables."""
    kept = {"train": sets.train, "validation": sets.validation, "evaluation": sets.evaluation}
    return {
        "name": config.name,
        "seed": seed,
        "sources": [source | {"rows": rows.read[index]} for index, source in enumerate(sources)],
        "rows": {
            "read": rows.total,
            "quarantined": len(rows.rejected),
            "removed": len(sets.removed),
            "kept": sum(map(len, kept.values())),
            "left_over": len(sets.left_over),
        },
        "quarantined": quarantine.reasons(rows.rejected),
        "removed": dict(sorted(Counter(row.reason for row in sets.removed).items())),
        "sets": {name: _set(examples, name) | {"table": refs[name]} for name, examples in kept.items()},
        "tables": {name: ref for name, ref in refs.items() if name not in kept},
    }


def _set(examples: Sequence[Example], name: str) -> dict[str, Any]:
    with_target = name != "evaluation"
    tiers = Counter(example.tier for example in examples)
    return {
        "rows": len(examples),
        "tiers": {tier: tiers[tier] for tier in TIERS if tiers[tier]},
        "tokens": _spread([example.tokens for example in examples]),
        "answers": len({example.answer for example in examples}),
        "examples": [
            {"id": e.id, "tier": e.tier, "messages": e.messages(with_target=with_target), "answer": e.answer}
            for e in examples[:_SHOWN]
        ],
    }


def _spread(values: Sequence[int]) -> dict[str, int]:
    ordered = sorted(values)
    return {
        "least": ordered[0],
        "median": median_low(ordered),
        "p95": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        "most": ordered[-1],
        "sum": sum(ordered),
    }


def to_markdown(card: Card) -> str:
    """The card for a person."""
    lines = [f"# Data `{card['name']}`", "", "## Sets", ""]
    lines += _table(
        ["set", "rows", *TIERS, "tokens (median, most)", "different answers", "table"],
        [
            [
                name, s["rows"], *(s["tiers"].get(tier, 0) for tier in TIERS),
                f"{s['tokens']['median']}, {s['tokens']['most']}", s["answers"], f"`{_short(s['table'])}`",
            ]
            for name, s in card["sets"].items()
        ],
    )  # fmt: skip
    lines += ["", "## Sources", ""]
    lines += _table(
        ["source", "kind", "goes into", "rows", "what"],
        [[s["name"], s["kind"], s["into"], s["rows"], f"`{s['what']}`"] for s in card["sources"]],
    )
    rows = card["rows"]
    lines += ["", "## What became of the rows", "", f"{rows['read']} rows were read (seed {card['seed']}).", ""]
    became = [[f"quarantined: {reason}", count] for reason, count in card["quarantined"].items()]
    became += [[f"removed: {reason}", count] for reason, count in card["removed"].items()]
    lines += _table(
        ["", "rows"], [*became, ["kept in the sets", rows["kept"]], ["sound, not asked for", rows["left_over"]]]
    )
    lines += ["", *(f"Rows {name}: `{_short(ref)}`" for name, ref in card["tables"].items())]
    for name, described in card["sets"].items():
        lines += ["", f"## Examples: {name}"]
        for example in described["examples"]:
            lines += ["", f"`{example['id']}` ({example['tier']}), answer `{example['answer']}`", ""]
            lines += [
                f"> **{m['role']}**: {m['content'].replace(chr(10), chr(10) + '> ')}  " for m in example["messages"]
            ]
    return "\n".join(lines) + "\n"


def _table(head: list[str], rows: list[list[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines]


def _short(ref: str) -> str:
    """A ref with twelve digits of its digest."""
    head, mark, digest = ref.partition("#sha256:")
    return f"{head}{mark}{digest[:12]}"
