"""Which rows a cold start is made of. Pure but for the verifiers.

Invariants: the same rows, settings and seed choose the same; every row that is not chosen is counted under a
reason; with `balance` no tier has more than one row more than another that still had some to give.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from posttrain.contract.digest import digest_value
from posttrain.errors import UserError
from posttrain.reward.score import score
from posttrain.training.chat import read_messages
from posttrain.training.config import Selection
from posttrain.training.documents import Row

Verify = Callable[[Row, str], bool]  # (row, what the assistant says) -> right, and in the form asked for


class Chosen(NamedTuple):
    rows: list[Row]  # in the order of the table
    left_out: Counter[str]
    tiers: Counter[str]


def select(rows: Sequence[Row], config: Selection, *, seed: int, verify: Verify) -> Chosen:
    """The rows of a cold start. Raises UserError where none passes."""
    left_out: Counter[str] = Counter()
    passed: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        reason = _fault(row, config, verify)
        if reason:
            left_out[reason] += 1
        else:
            passed[row["tier"] if config.balance else ""].append(row)
    if not passed:
        counts = ", ".join(f"{reason}: {count}" for reason, count in left_out.most_common())
        raise UserError(f"lets none of {len(rows)} rows pass ({counts})", field="selection", remedy="loosen it")
    for tier in passed.values():
        tier.sort(key=lambda row: digest_value([seed, row["id"]]))
    shares = _shares({tier: len(found) for tier, found in passed.items()}, config.size)
    names = {row["id"] for tier, found in passed.items() for row in found[: shares[tier]]}
    chosen = [row for row in rows if row["id"] in names]
    left_out["not needed"] += sum(map(len, passed.values())) - len(chosen)
    return Chosen(chosen, +left_out, Counter(row["tier"] for row in chosen))


def by_verifier(row: Row, text: str) -> bool:
    """Whether the row's own verifier holds `text` to be right and well formed."""
    verdict = score(row["verifier"], row["answer"], row["metadata"], text)
    return verdict.correct and verdict.well_formed


def _fault(row: Row, config: Selection, verify: Verify) -> str | None:
    """Why the row cannot be chosen."""
    messages = read_messages(row["messages"], row_id=row["id"])
    if messages[-1]["role"] != "assistant":
        return "does not end with the assistant"
    text = messages[-1]["content"]
    if not config.min_characters <= len(text.strip()) <= config.max_characters:
        return "too short or too long"
    if any(unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn") and c not in "\n\t" for c in text) or "\ufffd" in text:
        return "unreadable characters"
    if _repeated_share(text) > config.max_repeat:
        return "repeats itself"
    if config.required and not re.search(config.required, text):
        return "lacks what is required"
    if config.verified and not verify(row, text):
        return "not verified"
    return None


def _repeated_share(text: str) -> float:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def _shares(counts: dict[str, int], size: int) -> dict[str, int]:
    """How many of each: as even as the counts allow, `size` together (0: all); the first names get what is over."""
    if not size:
        return dict(counts)
    shares = dict.fromkeys(counts, 0)
    left = min(size, sum(counts.values()))
    while left:
        hungry = sorted(tier for tier in counts if shares[tier] < counts[tier])
        each, over = divmod(left, len(hungry))
        for index, tier in enumerate(hungry):
            given = min(each + (index < over), counts[tier] - shares[tier])
            shares[tier] += given
            left -= given
    return shares
