"""Checks of a whole route before anything starts: every step's configuration against its schema and the world.

Invariant: all that is wrong is found in one pass, and nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from posttrain.contract import StepSpec
from posttrain.contract.config import resolve
from posttrain.errors import UserError


def check_route(steps: Iterable[tuple[StepSpec, Any]], workspace: Path) -> list[UserError]:
    """What is wrong, one error a step at most.

    `steps` pairs each spec with its configuration, as a mapping or resolved.
    """
    problems = []
    for spec, given in steps:
        try:
            config = resolve(spec.Config, given, where=spec.name) if isinstance(given, dict) else given
            if spec.check:
                spec.check(config, workspace)
        except UserError as problem:
            problems.append(problem)
    return problems
