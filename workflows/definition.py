"""From what a user wrote to a manifest: route, preset, files, overrides, profile.

Invariants: everything is resolved and checked against its schema before a manifest exists; later
layers win (defaults, preset, files in order, `KEY=VALUE`); keys below `profile.` set the profile.
Reading a configuration does not import Hera; rendering does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from posttrain.contract.config import load_yaml, resolve
from posttrain.errors import UserError
from workflows import config as configs
from workflows.profile import Profile, load_profile

PRESETS = Path(__file__).parent / "presets"
PROFILE = "profile"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")  # a label's value, too: pods are found by it

ROUTES: dict[str, type] = {
    "sft": configs.Sft, "standard": configs.Standard, "pure_rl": configs.Reinforced,
    "cold_start_rl": configs.ColdStart, "evaluation": configs.Evaluation,
}  # fmt: skip


@dataclass(frozen=True)
class Definition:
    """A route with everything resolved. `config` is an instance of the route's dataclass."""

    route: str
    config: Any
    profile: Profile

    def render(self, run: str | None = None) -> dict[str, Any]:
        """The Argo manifest, called `run` or by a generated name. UserError where Kubernetes takes no such name."""
        if run is not None and not _NAME.fullmatch(run):
            remedy = "write at most 63 lower case letters, digits, - and ., a letter or digit at both ends"
            raise UserError("is no name of a run", field="--name", value=run, remedy=remedy)
        built = import_module(f"workflows.{self.route}").build(self.config, self.profile, run=run)
        return built.to_dict()


def define(
    route: str,
    profile: str,
    *,
    preset: str | None = None,
    files: Iterable[Path] = (),
    overrides: Iterable[str] = (),
) -> Definition:
    """Resolve `route`; UserError for whatever does not exist or does not fit its schema."""
    if route not in ROUTES:
        raise UserError("no such route", field="ROUTE", value=route, remedy=f"known: {', '.join(ROUTES)}")
    layers = [_preset(route, preset)] if preset else []
    layers += [load_yaml(path, field="--file") for path in files]
    of_profile = [layer.pop(PROFILE) for layer in layers if PROFILE in layer]
    overrides = list(overrides)
    for_profile = tuple(o.removeprefix(f"{PROFILE}.") for o in overrides if o.startswith(f"{PROFILE}."))
    for_config = [o for o in overrides if not o.startswith(f"{PROFILE}.")]
    chosen = load_profile(profile, *of_profile, overrides=for_profile)
    return Definition(route, _resolved(ROUTES[route], layers, for_config), _checked(chosen))


def presets(route: str) -> list[str]:
    return sorted(path.stem for path in (PRESETS / route).glob("*.yaml"))


def _preset(route: str, name: str) -> dict[str, Any]:
    path = PRESETS / route / f"{name}.yaml"
    if not path.is_file():
        raise UserError("no such preset", field="--preset", value=name, remedy=f"known: {', '.join(presets(route))}")
    return load_yaml(path, field="--preset")


def _resolved(schema: type, layers: list[dict[str, Any]], overrides: list[str]) -> Any:
    """The configuration. Section by section first: a step's objection to a value does not say whose key it is."""
    for name, default in vars(schema()).items():
        if is_dataclass(default):
            given = [layer[name] for layer in layers if isinstance(layer.get(name), dict)]
            own = [o.removeprefix(f"{name}.") for o in overrides if o.startswith(f"{name}.")]
            with _below(name):
                resolve(type(default), *given, overrides=own)
    return resolve(schema, *layers, overrides=overrides)


@contextmanager
def _below(section: str) -> Iterator[None]:
    """Put `section` before the key that a UserError names, where it is not there yet."""
    try:
        yield
    except UserError as problem:
        if problem.field and not problem.field.startswith(f"{section}."):
            problem = UserError(
                problem.problem, field=f"{section}.{problem.field}", value=problem.value, remedy=problem.remedy
            )
        raise problem from None


def _checked(profile: Profile) -> Profile:
    """`profile`, once it is sure that it speaks of steps that exist."""
    known = {name for schema in ROUTES.values() for name, value in vars(schema()).items() if is_dataclass(value)}
    known.add("validate")
    for name in profile.steps:
        if name not in known:
            raise UserError("no such step", field=f"profile.steps.{name}", remedy=f"known: {', '.join(sorted(known))}")
    return profile
