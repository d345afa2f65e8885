"""An engine that kills itself: run as a process of its own, so that nothing is tidied up on its way out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from posttrain.engine.engine import Engine
from posttrain.engine.run.machine import Machine
from posttrain.engine.settings import EngineSettings


def settings(workspace: Path) -> EngineSettings:
    return EngineSettings(claims={"notes": str(workspace / "notes")})


def drive(workspace: Path, name: str, event: int, late: bool) -> None:
    """Drive a run and die by SIGKILL at its n-th event: before what follows from it is done, or after."""
    seen = 0

    def count(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == event and not late:
            os.kill(os.getpid(), signal.SIGKILL)

    if late:
        carry_out = Machine.carry_out

        def carry_out_and_die(self: Machine) -> None:
            carry_out(self)
            if seen >= event:
                os.kill(os.getpid(), signal.SIGKILL)

        Machine.carry_out = carry_out_and_die  # type: ignore[method-assign]
    Engine(workspace, settings=settings(workspace)).run(name, on_event=count)
