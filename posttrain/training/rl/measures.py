"""What the samples of an update were like: all of them, before any was left out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posttrain.training.experience import Chosen, Sample
from posttrain.training.selection.staleness import staleness


def measures(samples: Sequence[Sample], chosen: Chosen, *, policy: int) -> dict[str, float]:
    """`policy` is the trainer's version before the update. `staleness` is of the samples that were trained on;
    `distinct` the share of answers that no other of their group is the same as, counted once each."""
    rewards = np.array([s.reward for s in samples], np.float64)
    kept = {document.id for document in chosen.documents}
    ages = [staleness(s.spans, policy)[0] for s in samples if s.document.id in kept]
    answers = {(s.group, s.document.tokens[s.document.loss].tobytes()) for s in samples}
    return {
        "reward": float(np.nanmean(rewards)) if not np.isnan(rewards).all() else float("nan"),
        "unscored": float(np.isnan(rewards).mean()),
        "length": float(np.mean([s.document.loss_tokens for s in samples])),
        "truncated": float(np.mean([s.truncated for s in samples])),
        "staleness": float(np.mean(ages)) if ages else 0.0,
        "staleness_max": float(max(ages, default=0)),
        "distinct": len(answers) / len(samples),
        "samples_trained": float(len(chosen.documents)),
    }
