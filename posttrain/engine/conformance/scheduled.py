"""Cron cases: minutes of a CronWorkflow, with a clock that goes faster than the world's."""

from __future__ import annotations

import threading
import time
from typing import Any

from posttrain.engine.conformance.cases import Case
from posttrain.engine.cron.scheduler import Scheduler
from posttrain.engine.engine import Engine
from posttrain.engine.manifest import load

JSON = dict[str, Any]
SPEED = 10.0
_LOOK = 130.0  # seconds that a case is looked at where it does not say


class FastClock:
    """Seconds since the epoch, `SPEED` times as fast; begins shortly before a full minute."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._at = time.time() // 60 * 60 + 50

    def __call__(self) -> float:
        return self._at + (time.monotonic() - self._began) * SPEED


def run_scheduled(case: Case, engine: Engine) -> JSON:
    """What became of a CronWorkflow and the workflows it made, in the form of a recorded result."""
    clock = FastClock()
    scheduler = Scheduler(engine, clock=clock)
    name = scheduler.add(load(case.file))
    scheduler.run(until=clock() + (case.seconds or _LOOK))
    cron, status = scheduler.get(name), scheduler.get(name)["status"]
    runs = [one for one in engine.list() if one["labels"].get("workflows.argoproj.io/cron-workflow") == name]
    result = {
        "conditions": sorted(one["type"] for one in status.get("conditions") or []),
        "failed": status.get("failed", 0),
        "phase": cron["status"].get("phase", ""),
        "succeeded": status.get("succeeded", 0),
        "workflows": sorted(one["phase"] for one in runs),
    }
    _end(engine, [one["name"] for one in runs])
    return {"cron": result}


def _end(engine: Engine, names: list[str]) -> None:
    for name in names:
        if engine.phase(name) in ("", "Running"):
            engine.terminate(name)
    until = time.monotonic() + 20
    while time.monotonic() < until and any(engine.store(name).held() for name in names):
        threading.Event().wait(0.1)
