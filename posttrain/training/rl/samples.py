"""Rows of the stream `experience` as samples. Pure.

Letters: T tokens of a row, P those with loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posttrain.errors import UserError
from posttrain.training.chat import Document
from posttrain.training.experience import Sample
from posttrain.training.objectives.config import ObjectiveConfig
from posttrain.training.rl.config import Reinforcement
from posttrain.training.selection.config import SampleSelection
from posttrain.training.selection.select import Candidate, Selected, select
from posttrain.training.selection.staleness import Span

COLUMNS = (
    "trajectory", "group", "tokens", "loss_mask", "logprobs", "policy_versions", "reward", "status", "group_rows",
)  # fmt: skip


def sample(row: Mapping[str, Any], *, longest: int) -> Sample:
    """One row. Raises UserError for one of more than `longest` tokens, which no row of the trainer could hold."""
    tokens = np.asarray(row["tokens"], np.int32)
    if len(tokens) > longest:
        raise UserError(
            f"trajectory {row['trajectory']} has {len(tokens)} tokens, more than learning.sequence_length ({longest})",
            field="learning.sequence_length", value=longest,
            remedy="raise it, or lower sampling.trajectory_tokens of the sampler",
        )  # fmt: skip
    loss = np.asarray(row["loss_mask"], bool)
    signals = {}
    if row["logprobs"] is not None:
        signals["sampler_logprobs"] = np.asarray(row["logprobs"], np.float32)[loss]
    spans = [Span(span["version"], span["end"] - span["start"]) for span in row["policy_versions"] or ()]
    reward = math.nan if row["reward"] is None else float(row["reward"])
    return Sample(
        Document(row["trajectory"], tokens, loss, signals), row["group"], reward, spans, row["status"] == "truncated"
    )


def teaches(group: Sequence[Sample], config: Reinforcement, *, version: int) -> bool:
    """Whether anything of a group would be trained on at `version`."""
    return bool(_choice(group, config.selection, version=version, window=config.max_staleness).kept)


def _choice(group: Sequence[Sample], config: SampleSelection, *, version: int, window: int) -> Selected:
    candidates = [
        Candidate(s.document.id, s.group, s.reward, 0.0, s.document.loss_tokens, s.truncated, s.spans) for s in group
    ]
    return select(candidates, config, version=version, window=window, seed=0)


def check_signals(samples: Sequence[Sample], config: ObjectiveConfig) -> None:
    """Raise UserError where the sampler's log-probabilities are needed and a sample has none."""
    lacking = [s.document.id for s in samples if "sampler_logprobs" not in s.document.signals]
    if config.correction.mode != "none" and lacking:
        remedy = "let the engine tell them, or set objective.correction.mode to none"
        raise UserError(
            f"trajectory {lacking[0]} has no log-probabilities of the sampler", field="objective.correction.mode",
            value=config.correction.mode, remedy=remedy,
        )  # fmt: skip
