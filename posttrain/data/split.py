"""Choosing which row goes into which set.

Invariants: the choice depends on the seed and the rows' ids, not on their order; the counts are exact and
the tiers keep their shares; with one tier, adding rows never moves an old row towards an earlier set of
`evaluation, validation, train`, and moves at most as many out of each as were added.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

from posttrain.data.schema import Example


def order_key(identity: str, seed: int) -> bytes:
    """Where a row stands in the order that the seed gives."""
    return hashlib.sha256(f"{seed}\0{identity}".encode()).digest()


def shuffled(examples: list[Example], seed: int) -> list[Example]:
    return sorted(examples, key=lambda example: (order_key(example.id, seed), example.id))


def take(examples: list[Example], count: int, seed: int) -> tuple[list[Example], list[Example]]:
    """`count` of the rows, each tier by its share, and the rest; both in the seed's order.

    Raises ValueError where there are fewer rows.
    """
    if count > len(examples):
        raise ValueError(f"{count} of {len(examples)} rows")
    tiers: dict[str, list[Example]] = defaultdict(list)
    for example in shuffled(examples, seed):
        tiers[example.tier].append(example)
    shares = quotas({tier: len(rows) for tier, rows in tiers.items()}, count)
    chosen = [example for tier, rows in tiers.items() for example in rows[: shares[tier]]]
    rest = [example for tier, rows in tiers.items() for example in rows[shares[tier] :]]
    return shuffled(chosen, seed), shuffled(rest, seed)


def quotas(sizes: dict[str, int], count: int) -> dict[str, int]:
    """`count` shared out in proportion to `sizes`, by largest remainder (Hamilton); never more than a size."""
    total = sum(sizes.values())
    if not total:
        return dict.fromkeys(sizes, 0)
    whole = {name: size * count // total for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: (-(sizes[name] * count % total), name))
    for name in by_remainder[: count - sum(whole.values())]:
        whole[name] += 1
    return whole
