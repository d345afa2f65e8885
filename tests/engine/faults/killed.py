"""Engines that kill themselves, and what became of their runs.

`drive…` is run as a process of its own, so that nothing is tidied up on its way out.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from posttrain.engine import Engine, EngineSettings, load, operations
from posttrain.engine.conformance.compare import describe
from posttrain.engine.run.machine import Machine

HERE = Path(__file__).parent
ORDER = ["taken", "carried out", "stored", "answered"]  # how far an order has come


def made(workspace: Path, manifest: str) -> tuple[Engine, str]:
    """A run of one of the manifests beside this file, whose steps note that they ran in `notes/ran`."""
    (workspace / "notes").mkdir(parents=True)
    engine = engine_of(workspace)
    return engine, engine.submit(load(HERE / manifest))


def engine_of(workspace: Path) -> Engine:
    return Engine(workspace, settings=EngineSettings(claims={"notes": str(workspace / "notes")}))


def outcome(engine: Engine, name: str) -> tuple[dict, Counter]:
    """The run as a recorded result has it, and which steps ran how often."""
    described = json.dumps(describe(engine.get(name)), sort_keys=True)
    same = json.loads(re.sub(r"127(\.[0-9]+){3}", "<address>", described))  # every run has its own
    return same, Counter(noted(engine.workspace))


def noted(workspace: Path) -> list[str]:
    """The steps that ran so far."""
    notes = workspace / "notes" / "ran"
    return notes.read_text().split() if notes.exists() else []


def left_over(workspace: Path) -> list[str]:
    """The processes that have to do with the workspace."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(str(workspace) in one for one in process.cmdline()):
                found.append(" ".join(process.cmdline())[:200])
        except psutil.Error:
            continue
    return found


def drive(workspace: Path, name: str, event: int, late: bool) -> None:
    """Drive a run and die at its n-th event: before what follows from it is done, or after."""
    seen = 0

    def count(_: object) -> None:
        nonlocal seen
        seen += 1

    _die_at(lambda: seen >= event, late, count, workspace, name)


def drive_to_a_stop(workspace: Path, name: str, place: int | str, late: bool) -> None:
    """Drive a run that somebody stops, and die at the n-th event after that, or once the order has come so far."""
    seen = 0
    stopping = False

    def count(_: object) -> None:
        nonlocal seen
        seen += stopping

    def stop(*given: Any, **more: Any) -> None:
        nonlocal stopping
        stopping = True
        if place == "taken":
            die()
        ordered(*given, **more)
        if place == "carried out":
            die()

    def answer(*given: Any) -> None:
        if place == "stored":
            die()
        write(*given)
        if place == "answered":
            die()

    ordered, operations.OPERATIONS["stop"] = operations.OPERATIONS["stop"], stop
    write, operations.write_atomic = operations.write_atomic, answer
    _die_at(lambda: isinstance(place, int) and seen >= place, late, count, workspace, name)


def _die_at(due: Callable[[], bool], late: bool, count: Callable, workspace: Path, name: str) -> None:
    def on_event(event: object) -> None:
        count(event)
        if due() and not late:
            die()

    carry_out = Machine.carry_out

    def carry_out_and_die(self: Machine) -> None:
        carry_out(self)
        if due():
            die()

    Machine.carry_out = carry_out_and_die  # type: ignore[method-assign]
    engine_of(workspace).run(name, on_event=on_event)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
