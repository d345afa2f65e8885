"""Laws of the TaskServer's state, on SQLite and on PostgreSQL, with a clock that is put on by hand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from posttrain.database import connect, create_tables, writing
from posttrain.group_commit import Refused, Writer
from posttrain.rollout.tasks.api import Lease, LeaseRequest, NewTask, Report
from posttrain.rollout.tasks.model import Outcome, State
from posttrain.rollout.tasks.reading import Reader
from posttrain.rollout.tasks.settings import TaskServerSettings
from posttrain.rollout.tasks.store import Effects, Store
from posttrain.rollout.tasks.tables import ATTEMPTS, LOCK, METADATA, RESULTS, TASKS

_requests = itertools.count()


@dataclass
class Desk:
    """The store with a clock: each call is a transaction of its own."""

    engine: Engine
    store: Store
    now: float = 1000.0
    effects: Effects = field(default_factory=Effects)

    def submit(self, *tasks: NewTask) -> list[str]:
        with writing(self.engine, LOCK) as db:
            return [t.id for t in self.store.submit(db, tasks, self.now, self.effects)]

    def lease(self, kinds: str = "k", count: int = 1, request: str = "") -> list[Lease]:
        wanted = LeaseRequest(worker="w", kinds=kinds.split(), count=count, request=request or f"r{next(_requests)}")
        with writing(self.engine, LOCK) as db:
            return self.store.lease(db, wanted, self.now, self.effects)

    def report(self, attempt: str, outcome: Outcome = Outcome.succeeded, result: Any = None, reason: str = "") -> str:
        told = Report(attempt=attempt, outcome=outcome, result=result, reason=reason)
        with writing(self.engine, LOCK) as db:
            return self.store.report(db, [told], self.now, self.effects)[0].status

    def heartbeat(self, *attempts: str) -> list[str]:
        with writing(self.engine, LOCK) as db:
            return self.store.heartbeat(db, attempts, self.now)

    def cancel(self, task: str) -> tuple[State, int]:
        with writing(self.engine, LOCK) as db:
            return self.store.cancel(db, task, self.now, self.effects)

    def after(self, seconds: float) -> None:
        self.now += seconds
        with writing(self.engine, LOCK) as db:
            self.store.sweep(db, self.now, self.effects)

    def task(self, task: str) -> Any:
        return Reader(self.engine).task(task)

    def state(self, task: str) -> State:
        return self.task(task).state

    def count(self, table: Any) -> int:
        with self.engine.connect() as db:
            return db.scalar(select(func.count()).select_from(table)) or 0

    def purge(self) -> int:
        with writing(self.engine, LOCK) as db:
            return self.store.purge(db, self.now)


@pytest.fixture
def desk(database: str) -> Iterator[Desk]:
    engine = connect(database, field="database")
    create_tables(engine, METADATA, LOCK)
    settings = TaskServerSettings(limits={"few": 2}, weights={"heavy": 3.0}, keep_seconds=100)
    yield Desk(engine, Store(settings))
    engine.dispose()


def test_a_task_goes_from_submission_to_its_result(desk):
    (task,) = desk.submit(NewTask(kind="k", payload={"x": [1, None, "é"]}))
    (lease,) = desk.lease()
    assert lease.task == task and lease.payload == {"x": [1, None, "é"]} and lease.seconds_left is None
    assert desk.state(task) is State.leased and desk.lease() == []
    assert desk.report(lease.attempt, result={"y": 2}) == "accepted"
    ended, unknown = Reader(desk.engine).ended([task, "other"])
    assert [(e.id, e.state, e.result) for e in ended] == [(task, State.succeeded, {"y": 2})] and unknown == {"other"}


def test_the_same_key_names_the_same_task_and_another_task_is_refused(desk):
    first = desk.submit(NewTask(kind="k", payload=1, key="a"), NewTask(kind="k", payload=1, key="a"))
    assert first[0] == first[1] == desk.submit(NewTask(kind="k", payload=1, key="a"))[0]
    with pytest.raises(Refused) as refused:
        desk.submit(NewTask(kind="k", payload="new", key="b"), NewTask(kind="k", payload=2, key="a"))
    assert refused.value.status == 409
    assert len(Reader(desk.engine).tasks(0, 10).tasks) == 1  # nothing of a refused call is kept


def test_a_lease_call_that_is_repeated_gives_the_same_leases(desk):
    desk.submit(*[NewTask(kind="k") for _ in range(5)])
    first = desk.lease(count=3, request="once")
    again = desk.lease(count=3, request="once")
    assert {lease.attempt for lease in first} == {lease.attempt for lease in again} and len(first) == 3


def test_a_late_result_of_an_expired_lease_is_refused_and_the_new_one_counts(desk):
    (task,) = desk.submit(NewTask(kind="k"))
    (old,) = desk.lease()
    desk.after(31)
    assert desk.state(task) is State.pending and desk.lease() == []  # the pause before the next attempt
    desk.after(2)
    (new,) = desk.lease()
    assert new.number == 2 and desk.report(old.attempt, result="old") == "refused"
    assert desk.report(new.attempt, result="new") == "accepted"
    assert desk.report(old.attempt, result="old") == "refused"
    assert Reader(desk.engine).ended([task])[0][0].result == "new"
    assert desk.effects.refused == ["k", "k"] and desk.effects.expired == ["k"]


def test_a_result_that_is_reported_twice_counts_once(desk):
    (task,) = desk.submit(NewTask(kind="k"))
    (lease,) = desk.lease()
    said = [desk.report(lease.attempt, result=1), desk.report(lease.attempt, result=1)]
    assert said == ["accepted", "repeated"] and desk.report(lease.attempt, result=2) == "refused"
    assert desk.report("nobody") == "unknown" and len(desk.effects.ended) == 1
    assert desk.task(task).result is not None


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.infrastructure_error])
def test_an_outcome_of_the_work_itself_is_final(desk, outcome):
    (task,) = desk.submit(NewTask(kind="k"))
    desk.report(desk.lease()[0].attempt, outcome, reason="so it is")
    assert desk.state(task).value == outcome.value and desk.task(task).reason == "so it is"
    desk.after(1000)
    assert desk.lease() == []


def test_infrastructure_errors_are_retried_so_often_and_no_more(desk):
    (task,) = desk.submit(NewTask(kind="k", max_attempts=3))
    for number in range(1, 4):
        (lease,) = desk.lease()
        assert lease.number == number
        desk.report(lease.attempt, Outcome.infrastructure_error, reason="no sandbox")
        desk.after(60)
    assert desk.state(task) is State.infrastructure_error
    assert [a.outcome for a in desk.task(task).history] == [Outcome.infrastructure_error] * 3


def test_a_heartbeat_keeps_a_lease_and_says_which_are_over(desk):
    kept, gone = desk.submit(NewTask(kind="k"), NewTask(kind="k"))
    first, second = desk.lease(count=2)
    for _ in range(5):
        desk.after(20)
        lost = desk.heartbeat(first.attempt)
    assert lost == [] and desk.state(kept) is State.leased
    assert desk.heartbeat(first.attempt, second.attempt) == [second.attempt]
    assert desk.state(gone) is State.pending


def test_the_timeout_of_an_attempt_is_its_own_end_and_no_retry(desk):
    (task,) = desk.submit(NewTask(kind="k", timeout=50))
    (lease,) = desk.lease()
    assert lease.seconds_left == 50
    desk.after(20)
    desk.heartbeat(lease.attempt)
    desk.after(25)
    desk.heartbeat(lease.attempt)
    desk.after(10)
    assert desk.state(task) is State.timed_out and desk.report(lease.attempt, result=1) == "refused"


def test_a_deadline_counts_waiting_and_bounds_every_attempt(desk):
    waits, runs = desk.submit(NewTask(kind="other", deadline=10), NewTask(kind="k", deadline=10, timeout=50))
    assert desk.lease()[0].seconds_left == 10
    desk.after(11)
    assert desk.state(waits) is State.timed_out and desk.state(runs) is State.timed_out


def test_a_child_ends_within_its_parent_and_is_cancelled_with_it(desk):
    (parent,) = desk.submit(NewTask(kind="k", timeout=100))
    (lease,) = desk.lease()
    early, late = desk.submit(NewTask(kind="c", parent=parent, deadline=5), NewTask(kind="c", parent=parent))
    (grandchild,) = desk.submit(NewTask(kind="c", parent=late, deadline=900))
    assert [desk.task(t).deadline for t in (early, late, grandchild)] == [1005, 1100, 1100]
    desk.lease("c", 3)
    desk.report(lease.attempt, result="done")
    assert [desk.state(t) for t in (parent, early, late, grandchild)] == [State.succeeded] + [State.cancelled] * 3
    for refused in (parent, "nobody"):
        with pytest.raises(Refused):
            desk.submit(NewTask(kind="c", parent=refused))


def test_cancelling_ends_what_waits_and_what_runs_and_changes_nothing_that_ended(desk):
    waits, runs, done = desk.submit(*[NewTask(kind="k", priority=p) for p in (0, 1, 2)])
    first, second = desk.lease(count=2)
    desk.report(first.attempt)
    assert [desk.cancel(t) for t in (waits, runs, done)] == [
        (State.cancelled, 1), (State.cancelled, 1), (State.succeeded, 0)
    ]  # fmt: skip
    assert desk.heartbeat(second.attempt) == [second.attempt] and desk.report(second.attempt) == "refused"
    assert desk.task(runs).history[0].outcome is Outcome.cancelled
    with pytest.raises(Refused):
        desk.cancel("nobody")


def test_limits_priorities_and_shares_hold_over_calls(desk):
    desk.submit(*[NewTask(kind="few", payload=n) for n in range(4)])
    running = [*desk.lease("few k"), *desk.lease("few k", 5)]
    assert len(running) == 2 and desk.lease("few k") == []
    desk.report(running[0].attempt)
    assert len(desk.lease("few", 5)) == 1
    desk.submit(*[NewTask(kind="k", queue=q) for q in ("heavy", "light") for _ in range(40)])
    taken = [desk.lease()[0].queue for _ in range(40)]
    assert taken.count("heavy") == 30
    desk.submit(NewTask(kind="p", payload="late"), NewTask(kind="p", payload="first", priority=5))
    assert desk.lease("p")[0].payload == "first"


def test_a_drained_kind_takes_nothing_new_and_works_off_what_it_has(desk):
    desk.submit(NewTask(kind="k", key="there"))
    with writing(desk.engine, LOCK) as db:
        desk.store.drain(db, "k", True)
    desk.submit(NewTask(kind="k", key="there"), NewTask(kind="other"))
    with pytest.raises(Refused) as refused:
        desk.submit(NewTask(kind="k"))
    assert refused.value.status == 503 and len(desk.lease()) == 1
    with writing(desk.engine, LOCK) as db:
        desk.store.drain(db, "k", False)
    desk.submit(NewTask(kind="k"))


def test_a_server_that_was_away_does_not_blame_the_workers(desk):
    (task,) = desk.submit(NewTask(kind="k"))
    desk.lease()
    desk.now += 500
    with writing(desk.engine, LOCK) as db:
        desk.store.forgive(db, desk.now)
    desk.after(29)
    assert desk.state(task) is State.leased
    desk.after(2)
    assert desk.state(task) is State.pending


def test_equal_results_are_kept_once_and_go_with_their_last_task(desk):
    first, second = desk.submit(NewTask(kind="k", payload=1), NewTask(kind="k", payload=2))
    one, other = desk.lease(count=2)
    desk.report(one.attempt, result={"a": 1, "b": 2})
    desk.after(60)
    desk.report(other.attempt, Outcome.infrastructure_error)
    desk.after(10)
    desk.report(desk.lease()[0].attempt, result={"b": 2, "a": 1})
    assert desk.task(first).result == desk.task(second).result and desk.count(RESULTS) == 1
    desk.now += 50
    assert desk.purge() == 1 and desk.task(first) is None and desk.count(RESULTS) == 1
    desk.now += 200
    assert desk.purge() == 1 and [desk.count(t) for t in (TASKS, ATTEMPTS, RESULTS)] == [0, 0, 0]


def test_an_operation_that_breaks_fails_alone(desk):
    writer, gate = Writer(desk.engine, LOCK), threading.Event()

    def broken(db: Any) -> None:
        raise ZeroDivisionError

    def good(db: Any) -> list[Any]:
        return desk.store.submit(db, [NewTask(kind="k", key="good")], desk.now, Effects())

    def refuses(db: Any) -> None:
        raise Refused(404, "no")

    waiting = writer.do(lambda db: gate.wait())
    futures = [writer.do(operation) for operation in (broken, good, refuses, good)]
    gate.set()
    waiting.result()
    assert isinstance(futures[0].exception(), ZeroDivisionError) and isinstance(futures[2].exception(), Refused)
    assert [futures[1].result()[0].id] == [futures[3].result()[0].id]
    writer.close()
    assert len(Reader(desk.engine).tasks(0, 10).tasks) == 1
