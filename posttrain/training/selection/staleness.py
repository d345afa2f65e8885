"""How old a sample is: the versions of the policy that produced its tokens, against the trainer's.

Invariant: a sample is used only where every token that is trained on is of a version from `version - window` to
`version`; one older token makes the whole sample stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """`tokens` produced tokens, one behind another, by one version of the policy."""

    version: int
    tokens: int


def staleness(spans: Sequence[Span], version: int) -> tuple[int, int]:
    """The most and the least versions that a produced token is behind `version`; negative where it is ahead.

    Spans without tokens do not count, and a sample without any produced token is as new as can be: (0, 0).
    """
    behind = [version - span.version for span in spans if span.tokens]
    return (max(behind), min(behind)) if behind else (0, 0)


def is_stale(spans: Sequence[Span], version: int, *, window: int) -> bool:
    return staleness(spans, version)[0] > window


def is_ahead(spans: Sequence[Span], version: int) -> bool:
    """Whether a token is of a version that the trainer does not have (any more: it was rolled back)."""
    return staleness(spans, version)[1] < 0
