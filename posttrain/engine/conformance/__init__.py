"""The engine held against the real controller: cases, what the controller made of them, and how ours compares.

A case is a manifest with one law in its first line; its result is what Argo made of it. `run_all`
runs cases on this machine, `agreement` says where they differ, `table` shows it to a person.
"""

from __future__ import annotations

from posttrain.engine.conformance.cases import Case, find_cases
from posttrain.engine.conformance.compare import differences
from posttrain.engine.conformance.local import Outcome, run_all
from posttrain.engine.conformance.report import table

__all__ = ["Case", "Outcome", "differences", "find_cases", "run_all", "table"]
