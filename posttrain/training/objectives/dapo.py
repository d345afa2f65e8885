"""DAPO (Yu et al., arXiv 2503.14476): GRPO with more room above the ratio 1 than below, and each token counted alike.

Two more of its parts are settings of their own: the penalty for long samples (`overlong`) and dynamic sampling, which
drops groups without spread (`selection.spread`).
"""

from __future__ import annotations

from posttrain.training.objectives.grpo import grpo as dapo

__all__ = ["dapo"]
