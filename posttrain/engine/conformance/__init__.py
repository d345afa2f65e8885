"""The engine held against the real controller: cases, what the controller made of them, and how ours compares.

A case is a manifest with one law in its first line; its result is what Argo made of it. `run_all`
runs cases on this machine and `run_all_on_cluster` on a real Argo; `judge` says how an outcome stands
to a result, `table` and `explanations` show it to a person.
"""

from __future__ import annotations

from posttrain.engine.conformance.cases import Case, find_cases
from posttrain.engine.conformance.cluster import run_all_on_cluster
from posttrain.engine.conformance.compare import differences
from posttrain.engine.conformance.image import busybox_image
from posttrain.engine.conformance.local import Outcome, run_all
from posttrain.engine.conformance.report import CARRIED, Verdict, as_expected, explanations, judge, table

__all__ = [
    "CARRIED", "Case", "Outcome", "Verdict", "as_expected", "busybox_image", "differences", "explanations",
    "find_cases", "judge", "run_all", "run_all_on_cluster", "table",
]  # fmt: skip
