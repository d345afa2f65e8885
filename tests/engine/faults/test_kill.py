"""The engine killed with SIGKILL at every event of several workflows, and in the midst of a stop; then resumed.

After each: the same final state as undisturbed, no step ran twice, no process is left.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine.faults.killed import HERE, ORDER, drive, drive_to_a_stop, left_over, made, noted, outcome

WORKFLOWS = sorted(path.stem for path in (HERE / "workflows").glob("*.yaml"))
RUNNING = 7  # so many steps of stopped.yaml run until they are stopped
JOBS = 6

pytestmark = pytest.mark.xdist_group("kill")


@pytest.fixture(scope="module")
def context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.engine.faults.killed"])
    return context


def killed_and_resumed(context, workspace: Path, workflow: str, event: int, late: bool):
    engine, name = made(workspace, f"workflows/{workflow}.yaml")
    process = context.Process(target=drive, args=(workspace, name, event, late))
    process.start()
    process.join(60)
    died = process.exitcode
    engine.run(name)
    return died, outcome(engine, name), left_over(workspace)


def check(tmp_path: Path, context, workflow: str, wanted: Callable[[int], list[bool]]) -> None:
    """Kill at the events that are wanted: for each, before what follows from it is done (False), after it (True)."""
    engine, name = made(tmp_path / "calm", f"workflows/{workflow}.yaml")
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
    killed = 0
    for (place, late), future in zip(places, work, strict=True):
        died, found, left = future.result()
        where = f"killed {'after' if late else 'at'} event {place} of {len(events)}: {events[place - 1]}"
        assert died in (-signal.SIGKILL, 0), where  # a run may have an event less: a pod was never seen to run
        assert found == calm, where
        assert left == [], where
        killed += died != 0
    assert killed >= 0.8 * len(places)
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


def stopped(context, workspace: Path, place: int | str, late: bool = False):
    """A run that is stopped once all of it is under way; its engine dies at `place`, and another takes the run up."""
    engine, name = made(workspace, "stopped.yaml")
    process = context.Process(target=drive_to_a_stop, args=(workspace, name, place, late))
    process.start()
    while len(noted(workspace)) < RUNNING and process.is_alive():
        time.sleep(0.02)
    engine.stop(name)
    process.join(60)
    engine.run(name)
    return process.exitcode, outcome(engine, name), left_over(workspace), engine


def check_stop(tmp_path: Path, context, wanted: Callable[[int], list[tuple[int | str, bool]]]) -> None:
    _, calm, left, engine = stopped(context, tmp_path / "calm", "nowhere")
    assert calm[0]["message"] == "Stopped with strategy 'Stop'" and not left
    assert set(calm[1].values()) == {1}, "every step notes once that it ran"

    places = wanted(len(list(engine.events("stopped"))))
    with ThreadPoolExecutor(JOBS) as pool:
        work = [pool.submit(stopped, context, tmp_path / f"{place}-{late}", place, late) for place, late in places]
    for (place, late), future in zip(places, work, strict=True):
        died, found, left, _ = future.result()
        where = f"killed {'after' if late else 'at'} {place} of a stop"
        assert died == -signal.SIGKILL or (isinstance(place, int) and died == 0), where
        assert found == calm, where
        assert left == [], where


@pytest.mark.timeout(290)
def test_killed_in_the_midst_of_a_stop(tmp_path: Path, context) -> None:
    check_stop(
        tmp_path, context, lambda events: [*((place, False) for place in ORDER), (1, True), (events // 2, False)]
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_every_event_of_a_stop(tmp_path: Path, context) -> None:
    check_stop(tmp_path, context, lambda events: [(n, late) for n in range(1, events + 1) for late in (False, True)])
