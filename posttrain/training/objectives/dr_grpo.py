"""Dr. GRPO (Liu et al., arXiv 2503.20783): GRPO without its two biases.

The surrogate is GRPO's. What is another's are its defaults: advantages are not divided by the group's spread, which
would favour groups that are all but equal, and the sum is divided by a constant instead of each sample's length,
which would favour short right and long wrong answers.
"""

from __future__ import annotations

from posttrain.training.objectives.grpo import grpo as dr_grpo

__all__ = ["dr_grpo"]
