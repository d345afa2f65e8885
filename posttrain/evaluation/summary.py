"""The summary of an evaluation: pure over its results, so that it can be computed again from the table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from posttrain.evaluation.schema import Result
from posttrain.evaluation.statistics import clustered_share, pass_at_k

SCHEMA = 1


def summarize(results: Sequence[Result], *, confidence: float = 0.95, shown: int = 0) -> dict[str, Any]:
    """Scores over all results and per tier, and `shown` samples spread evenly over the set.

    `results` are in the order of the set, each prompt's samples together; every prompt has the same number.
    """
    tiers = sorted({r.tier for r in results}, key=_tier_order)
    return {
        "schema": SCHEMA,
        "confidence": confidence,
        **scores(results, confidence),
        "tiers": {tier: scores([r for r in results if r.tier == tier], confidence) for tier in tiers},
        "samples": _shown([r for r in results if r.sample == 0], shown),
    }


def scores(results: Sequence[Result], confidence: float) -> dict[str, Any]:
    """Accuracy with its interval, pass@k for powers of two, format rate, lengths in tokens, share cut short."""
    per_prompt = prompt_successes(results)
    samples = len(results) // len(per_prompt)
    right, low, high = clustered_share(list(per_prompt.values()), samples, confidence)
    lengths = np.array([r.tokens for r in results])
    return {
        "rows": len(per_prompt),
        "samples_per_row": samples,
        "accuracy": right,
        "accuracy_low": low,
        "accuracy_high": high,
        "pass_at": {
            str(k): float(np.mean([pass_at_k(samples, c, k) for c in per_prompt.values()])) for k in _powers(samples)
        },
        "format_rate": float(np.mean([r.well_formed for r in results])),
        "mean_tokens": float(lengths.mean()),
        "tokens": {f"p{q}": float(np.percentile(lengths, q)) for q in (10, 50, 90, 99)},
        "truncated": float(np.mean([r.finish_reason == "length" for r in results])),
    }


def prompt_successes(results: Sequence[Result]) -> dict[str, int]:
    """How many samples of each prompt are right, by id, in the order of the set."""
    return {key: sum(r.correct for r in group) for key, group in groupby(results, key=lambda r: r.id)}


def _powers(samples: int) -> list[int]:
    return [1 << e for e in range(samples.bit_length())]


def _tier_order(tier: str) -> tuple[int, str]:
    known = ("easy", "medium", "hard")
    return (known.index(tier) if tier in known else len(known), tier)


def _shown(results: Sequence[Result], count: int) -> list[dict[str, Any]]:
    places = sorted({i * len(results) // count for i in range(count)}) if count else []
    keys = ("id", "tier", "prompt", "answer", "completion", "correct", "well_formed")
    return [{key: getattr(results[place], key) for key in keys} for place in places]
