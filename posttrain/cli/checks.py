"""What `validate` and `lint` look at."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from workflows.definition import Definition

JSON = dict[str, Any]


def check(definition: Definition, workspace: Path) -> list[str]:
    """Lines that say what was checked. UserError for the first thing that cannot work.

    Each step's own `check` looks at its configuration beside the world; the rendered manifest is
    linted as the engine would.
    """
    from posttrain import engine

    checked = 0
    manifest = definition.render("check")
    used = {t["container"]["command"][-1] for t in manifest["spec"]["templates"] if "container" in t}
    for item in fields(definition.config):
        config = getattr(definition.config, item.name)
        if is_dataclass(config) and f"steps.{item.name}" in used:
            spec = import_module(f"steps.{item.name}").SPEC
            if spec.check:
                spec.check(config, workspace)
            checked += 1
    engine.lint(manifest)
    return [f"route {definition.route}: {checked} steps, configuration and references are sound"]
