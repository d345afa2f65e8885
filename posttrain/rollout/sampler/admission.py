"""How many groups may begin now, so that each can still be trained on when its turn comes. Pure.

A group that begins under version v of the weights is sampled by v or a later version. It is trained on once all that
stand before it in the stream have been: `ahead` groups at most, those in flight counted as before it. An update takes
`groups_per_update` of them (more, where some are dropped, which brings its turn nearer), so that the trainer will have
made at most `ahead // groups_per_update` more updates by then. One that takes so long that later ones overtake it may
be too old all the same: the sampler does not stand still for it, the trainer drops it and counts it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """`sampling` is the oldest version that an engine samples with, `trained` the newest that the trainer has made.
    `begun` counts groups that were begun, `spent` those that the trainer has used up: trained on or dropped, in
    updates that are done or found wanting in the one that is under way."""

    sampling: int
    trained: int
    begun: int
    spent: int

    @property
    def ahead(self) -> int:
        return max(0, self.begun - self.spent)


def room(now: Situation, *, max_staleness: int, groups_per_update: int, buffer_groups: int = 0) -> int:
    """Groups that may begin now. With `max_staleness` 0 they are those of the next update, under its own version."""
    behind = max(0, now.trained - now.sampling)
    fresh = (max_staleness - behind + 1) * groups_per_update - now.ahead
    bound = buffer_groups - now.ahead if buffer_groups else fresh
    return max(0, min(fresh, bound))
