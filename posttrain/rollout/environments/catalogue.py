"""The environments by name, made from settings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from typing import Any

from posttrain.contract.config import resolve
from posttrain.errors import UserError
from posttrain.rollout.environments.base import Environment, Task
from posttrain.rollout.environments.settings import CodeSettings, MathSettings, ResearchSettings

_WHERE: dict[str, tuple[str, str, type]] = {
    "math": ("math", "MathEnvironment", MathSettings),
    "code": ("code", "CodeEnvironment", CodeSettings),
    "research": ("research", "ResearchEnvironment", ResearchSettings),
}
NAMES = tuple(_WHERE)


def make(name: str, overrides: Iterable[str] = (), **layer: Any) -> Environment:
    """The environment `name` with `KEY=VALUE` settings. Raises UserError for an unknown name or key."""
    if name not in _WHERE:
        near = difflib.get_close_matches(name, NAMES, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(NAMES)}"
        raise UserError("no such environment", field="ENVIRONMENT", value=name, remedy=remedy)
    module, kind, settings = _WHERE[name]
    found = getattr(import_module(f"posttrain.rollout.environments.{module}"), kind)
    return found(resolve(settings, layer, overrides=overrides, where=name))


def summary(name: str) -> str:
    module, kind, _ = _WHERE[name]
    return getattr(import_module(f"posttrain.rollout.environments.{module}"), kind).summary


def pick(environment: Environment, task: str) -> Task:
    """The task with the id or, where `task` is a number, at that place. Raises UserError where there is none."""
    if task.isdecimal():
        found = next(islice(environment.tasks(), int(task), None), None)
    else:
        found = next((each for each in environment.tasks() if each.id == task), None)
    if found is None:
        remedy = f"see `posttrain env show {environment.name}`"
        raise UserError(f"{environment.name} has no such task", field="TASK", value=task, remedy=remedy)
    return found
