"""Cron cases: minutes of a CronWorkflow, by a clock that is put on from one minute to the next."""

from __future__ import annotations

import threading
import time
from typing import Any

from posttrain.engine.conformance.cases import Case
from posttrain.engine.cron.rules import OF_CRON
from posttrain.engine.cron.scheduler import Scheduler
from posttrain.engine.engine import Engine
from posttrain.engine.manifest import load
from posttrain.engine.nodes import FULFILLED

JSON = dict[str, Any]
_LOOK = 130.0  # seconds that a case is looked at where it does not say
_LONG = 5.0  # a run that has been running for so long is one that runs on past the next minute


class _Clock:
    """Seconds since the epoch, ten seconds before a full minute to begin with."""

    def __init__(self) -> None:
        self.now = time.time() // 60 * 60 + 50
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now

    def put_on(self, now: float) -> None:
        """Set it, and wait until the scheduler has done what follows: it looks at the clock once a round."""
        self.now = now
        before = self.reads
        while self.reads < before + 3:
            time.sleep(0.05)


def run_scheduled(case: Case, engine: Engine) -> JSON:
    """What became of a CronWorkflow and the workflows it made, in the form of a recorded result."""
    clock = _Clock()
    scheduler = Scheduler(engine, clock=clock)
    name = scheduler.add(load(case.file))
    work = threading.Thread(target=scheduler.run, daemon=True)
    work.start()
    end = clock.now + (case.seconds or _LOOK)
    clock.put_on(clock.now)  # a start that was missed is made up for at once
    while clock.now < end:
        clock.put_on(min((clock.now // 60 + 1) * 60 + 1, end))
        _settle(scheduler, engine, name)
    scheduler.stop()
    work.join()
    result = described(scheduler.get(name), _runs(engine, name))
    _end(engine, name)
    return {"cron": result}


def described(cron: JSON, runs: list[JSON]) -> JSON:
    """A CronWorkflow and the runs it made ({phase} each), in the form of a recorded result."""
    status = cron.get("status") or {}
    return {
        "conditions": sorted(one["type"] for one in status.get("conditions") or []),
        "failed": status.get("failed", 0),
        "phase": status.get("phase", ""),
        "succeeded": status.get("succeeded", 0),
        "workflows": sorted(one["phase"] for one in runs),
    }


def _runs(engine: Engine, name: str) -> list[JSON]:
    return [one for one in engine.list() if one["labels"].get(OF_CRON) == name]


def _settle(scheduler: Scheduler, engine: Engine, name: str) -> None:
    """Until every run has ended and is counted, or has been running for long."""
    began: dict[str, float] = {}
    until = time.monotonic() + 60
    while time.monotonic() < until:
        active = [one["name"] for one in scheduler.get(name)["status"].get("active") or []]
        for run in active:
            if engine.phase(run) == "Running":
                began.setdefault(run, time.monotonic())
        if all(run in began and time.monotonic() - began[run] > _LONG for run in active):
            return
        time.sleep(0.2)


def _end(engine: Engine, name: str) -> None:
    names = [one["name"] for one in _runs(engine, name)]
    for one in names:
        if engine.phase(one) not in FULFILLED:
            engine.terminate(one)
    until = time.monotonic() + 20
    while time.monotonic() < until and any(engine.store(one).held() for one in names):
        time.sleep(0.1)
