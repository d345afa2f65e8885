"""The embedded engine: Argo manifests carried out on one machine.

    manifest = load("workflow.yaml")
    engine = Engine(workspace, settings=EngineSettings(images={...}))
    name = engine.submit(manifest, parameters={"model": "tiny"})
    phase = engine.run(name, on_event=print)

What stands here is what others may use. It is imported when it is asked for, because pods' supervisors
import this package, too, and need none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posttrain.engine.cron.scheduler import Scheduler
    from posttrain.engine.engine import Engine
    from posttrain.engine.linting import lint
    from posttrain.engine.manifest import Finding, Manifest, load
    from posttrain.engine.settings import EngineSettings

_HOMES = {
    "Engine": "engine", "EngineSettings": "settings", "Finding": "manifest", "Manifest": "manifest",
    "Scheduler": "cron.scheduler",
    "lint": "linting", "load": "manifest",
}  # fmt: skip

__all__ = ["Engine", "EngineSettings", "Finding", "Manifest", "Scheduler", "lint", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
