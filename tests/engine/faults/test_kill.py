"""The engine killed with SIGKILL at every event of several workflows, then resumed.

After each: the same final state as undisturbed, no step ran twice, no process is left.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from posttrain.engine import Engine, load
from posttrain.engine.conformance.compare import describe
from tests.engine.faults.killed import drive, settings

WORKFLOWS = sorted(path.stem for path in (Path(__file__).parent / "workflows").glob("*.yaml"))
JOBS = 6

pytestmark = pytest.mark.xdist_group("kill")


def submitted(workspace: Path, workflow: str) -> tuple[Engine, str]:
    (workspace / "notes").mkdir(parents=True)
    engine = Engine(workspace, settings=settings(workspace))
    return engine, engine.submit(load(Path(__file__).parent / "workflows" / f"{workflow}.yaml"))


def outcome(engine: Engine, name: str) -> tuple[dict, Counter]:
    """The run as a recorded result has it, and which steps ran how often."""
    ran = Counter((engine.workspace / "notes" / "ran").read_text().split())
    described = json.dumps(describe(engine.get(name)), sort_keys=True)
    return json.loads(re.sub(r"127(\.[0-9]+){3}", "<address>", described)), ran  # every run has its own


def left_over(workspace: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(str(workspace) in one for one in process.cmdline()):
                found.append(" ".join(process.cmdline())[:200])
        except psutil.Error:
            continue
    return found


def killed_and_resumed(context, workspace: Path, workflow: str, event: int, late: bool):
    engine, name = submitted(workspace, workflow)
    process = context.Process(target=drive, args=(workspace, name, event, late))
    process.start()
    process.join(60)
    died = process.exitcode
    engine.run(name)
    return died, outcome(engine, name), left_over(workspace)


@pytest.fixture(scope="module")
def context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.engine.faults.killed"])
    return context


def check(tmp_path: Path, context, workflow: str, wanted: Callable[[int], list[bool]]) -> None:
    """Kill at the events that are wanted: for each, before what follows from it is done (False), after it (True)."""
    engine, name = submitted(tmp_path / "calm", workflow)
    events: list = []
    engine.run(name, on_event=events.append)
    calm = outcome(engine, name)
    assert set(calm[1].values()) == {1}, "every step notes once that it ran"

    places = [(place, late) for place in range(1, len(events) + 1) for late in wanted(place)]
    with ThreadPoolExecutor(JOBS) as pool:
        work = [
            pool.submit(killed_and_resumed, context, tmp_path / f"{place}-{late}", workflow, place, late)
            for place, late in places
        ]
    for (place, late), future in zip(places, work, strict=True):
        died, found, left = future.result()
        where = f"killed {'after' if late else 'at'} event {place} of {len(events)}: {events[place - 1]}"
        assert died == -signal.SIGKILL or late, where  # with the last event there is nothing that comes after
        assert found == calm, where
        assert left == [], where
    assert left_over(tmp_path) == []


@pytest.mark.timeout(290)
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_killed_at_some_events(tmp_path: Path, context, workflow: str) -> None:
    check(tmp_path, context, workflow, lambda place: [place % 2 == 0] if place % 7 == 3 else [])


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_killed_at_every_event(tmp_path: Path, context, workflow: str) -> None:
    check(tmp_path, context, workflow, lambda _: [False, True])
