"""The work of `validate`: finds the steps by their names and has `check_route` look at them all."""

from __future__ import annotations

import difflib
import logging
import pkgutil
from importlib import import_module

import steps
from posttrain.contract import Nothing, StepContext, StepSpec
from posttrain.errors import UserError
from posttrain.validation import check_route
from steps.validate import Config, Outputs

log = logging.getLogger(__name__)


def run(context: StepContext, inputs: Nothing, config: Config) -> Outputs:
    if not config.config:
        raise UserError("names no step", field="validate.config", remedy="give the configuration of each step")
    pairs = [(_spec(name), given or {}) for name, given in config.config.items()]
    problems = check_route(pairs, context.workspace)
    for problem in problems[1:]:
        log.error("%s", problem)
    if problems:
        raise problems[0]
    of_route = f"route {config.route}: " if config.route else ""
    return Outputs(f"{of_route}{len(pairs)} steps, configuration and references are sound")


def _spec(name: str) -> StepSpec:
    known = sorted(module.name for module in pkgutil.iter_modules(steps.__path__))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise UserError("no such step", field=f"validate.config.{name}", remedy=remedy)
    return import_module(f"steps.{name}").SPEC
