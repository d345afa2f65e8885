"""Server and workers are killed at random while tasks are submitted, worked and cancelled: each ends exactly once."""

from __future__ import annotations

import random
import subprocess
import threading

import pytest
from sqlalchemy import func, select

from posttrain.database import connect
from posttrain.rollout.tasks.api import NewTask
from posttrain.rollout.tasks.client import TaskClient
from posttrain.rollout.tasks.model import Outcome, State
from posttrain.rollout.tasks.tables import ATTEMPTS, RESULTS, TASKS
from tests.processes import free_port
from tests.rollout.services import KINDS, start_server, start_worker

OUTCOMES = [Outcome.succeeded] * 6 + [Outcome.failed, Outcome.timed_out, Outcome.out_of_memory, Outcome.over_quota]
SETTINGS = ("lease_seconds=2", "backoff_first_seconds=0.05", "backoff_most_seconds=1", "sweep_seconds=0.1")


class Storm:
    """Kills with SIGKILL and starts again, until left."""

    def __init__(self, database: str, workers: int, concurrency: int, pause: float):
        self._port, self._database, self._pause = free_port(), database, pause
        self.url = f"http://127.0.0.1:{self._port}"
        self._server = start_server(database, self._port, *SETTINGS)
        TaskClient(self.url).wait_ready(60)
        self._concurrency = concurrency
        self._workers = [start_worker(self.url, concurrency) for _ in range(workers)]
        self.kills = {"server": 0, "worker": 0}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._rage)

    def __enter__(self) -> Storm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for process in [*self._workers, self._server]:
            process.terminate()
        for process in [*self._workers, self._server]:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _rage(self) -> None:
        chance = random.Random(7)
        while not self._over.wait(self._pause * (0.5 + chance.random())):
            if sum(self.kills.values()) % 3 == 1:
                self._server.kill()
                self._server.wait()
                self._server = start_server(self._database, self._port, *SETTINGS)
                TaskClient(self.url).wait_ready(60)
                self.kills["server"] += 1
            else:
                index = chance.randrange(len(self._workers))
                self._workers[index].kill()
                self._workers[index].wait()
                self._workers[index] = start_worker(self.url, self._concurrency)
                self.kills["worker"] += 1


def survive(database: str, count: int, *, workers: int, concurrency: int, pause: float, seconds: float) -> None:
    asked = {
        f"task-{n}": NewTask(
            kind=KINDS[n % 2], queue=f"q{n % 3}", key=f"task-{n}", max_attempts=100,
            payload={"n": n, "outcome": OUTCOMES[n % len(OUTCOMES)], "seconds": seconds},
        )
        for n in range(count)
    }  # fmt: skip
    with Storm(database, workers, concurrency, pause) as storm, TaskClient(storm.url, patience=120) as client:
        ids: dict[str, str] = {}
        for start in range(0, count, 250):
            part = list(asked)[start : start + 250]
            ids |= dict(zip(part, [t.id for t in client.submit([asked[k] for k in part])], strict=True))
        assert len(set(ids.values())) == count
        cancelled = {key: client.cancel(ids[key]).state for key in list(asked)[:: count // 40]}
        ended = list(client.as_ended(list(ids.values()), timeout=1800))
        assert storm.kills["server"] and storm.kills["worker"], storm.kills
    assert sorted(e.id for e in ended) == sorted(ids.values())
    by_id = {e.id: e for e in ended}
    for key, task in asked.items():
        told, wanted = by_id[ids[key]], task.payload["outcome"]
        if cancelled.get(key) is State.cancelled:
            wanted = Outcome.cancelled
        assert told.state.value == wanted, (key, told)
        assert told.result == (None if wanted == Outcome.cancelled else {"n": task.payload["n"]})
    _check_what_is_left(database, by_id)


def _check_what_is_left(database: str, ended: dict) -> None:
    """No task without an end, no attempt open, one attempt that counted for each, one result for each value."""
    engine = connect(database, field="database")
    with engine.connect() as db:
        open_tasks = select(func.count()).select_from(TASKS).where(TASKS.c.ended.is_(None) | TASKS.c.due.is_not(None))
        assert db.scalar(open_tasks) == 0
        assert db.scalar(select(func.count()).where(ATTEMPTS.c.outcome.is_(None))) == 0
        counted = (
            select(ATTEMPTS.c.task, func.count())
            .where(ATTEMPTS.c.outcome != Outcome.infrastructure_error)
            .group_by(ATTEMPTS.c.task)
        )
        final = {task: n for task, n in db.execute(counted)}
        for task in ended.values():
            expected = {1} if task.state is not State.cancelled else {0, 1}  # one that waited was never tried
            assert final.get(task.id, 0) in expected
        assert db.scalar(select(func.count()).select_from(RESULTS)) == sum(t.result is not None for t in ended.values())
        assert db.scalar(select(func.max(ATTEMPTS.c.number))) > 1
    engine.dispose()


def test_each_of_a_thousand_tasks_ends_exactly_once(database):
    survive(database, 1000, workers=2, concurrency=50, pause=1.0, seconds=0.05)


@pytest.mark.slow
def test_each_of_ten_thousand_tasks_ends_exactly_once_with_two_hundred_at_once(database):
    survive(database, 10_000, workers=4, concurrency=50, pause=3.0, seconds=0.2)
