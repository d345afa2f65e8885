"""The TaskServer over HTTP: its document holds, waiting ends when something happens, workers end in good order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from posttrain.rollout.tasks.api import NewTask, Report
from posttrain.rollout.tasks.client import TaskClient
from posttrain.rollout.tasks.model import Outcome, State
from posttrain.rollout.tasks.service import create_app
from posttrain.rollout.tasks.settings import TaskServerSettings
from posttrain.rollout.tasks.worker import Ended, Job, Worker
from posttrain.service import Server
from posttrain.service_client import ServiceAway, ServiceError
from tests.processes import free_port
from tests.rollout.fuzz import fuzz


@contextmanager
def served(app: FastAPI, on_stop: Any) -> Iterator[str]:
    """`app` in a thread of this process."""
    port = free_port()
    server = Server(uvicorn.Config(app, port=port, log_level="warning"), on_stop)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TaskClient]:
    made = TaskServerSettings(
        str(tmp_path / "tasks.db"), lease_seconds=2, backoff_first_seconds=0.05, limits={"one": 1}, largest_bytes=50_000
    )
    app = create_app(made)
    with served(app, app.state.server.close_waits) as url, TaskClient(url, patience=20) as client:
        client.wait_ready(20)
        yield client


@contextmanager
def working(client: TaskClient, handler: Any, *kinds: str, concurrency: int = 4) -> Iterator[Worker]:
    worker = Worker(client, kinds or ("k",), handler, concurrency=concurrency, lease_wait=0.5)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()


def test_what_is_submitted_comes_back_as_it_ended(client):
    def handler(job: Job) -> Any:
        n = job.lease.payload
        if n % 3 == 1:
            raise Ended(Outcome.out_of_memory, "too large", {"n": n})
        if n % 3 == 2 and job.lease.number == 1:
            raise OSError("the handler broke")
        return {"n": n}

    with working(client, handler):
        ids = [t.id for t in client.submit([NewTask(kind="k", payload=n) for n in range(9)])]
        ended = {e.id: e for e in client.as_ended(ids, timeout=60)}
    assert [ended[i].state for i in ids] == [State.succeeded, State.out_of_memory, State.succeeded] * 3
    assert [ended[i].result for i in ids] == [{"n": n} for n in range(9)]
    assert client.task(ids[2]).history[0].reason == "OSError: the handler broke"
    assert {t.id for t in client.list(state="out_of_memory").tasks} == {ids[1], ids[4], ids[7]}
    assert client.result(client.task(ids[0]).result) == {"n": 0}


def test_a_waiting_worker_is_given_a_task_the_moment_it_comes(client):
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(client.lease("w", ["k"], wait=30)))
    thread.start()
    time.sleep(0.3)
    submitted = time.monotonic()
    client.submit([NewTask(kind="k")])
    thread.join()
    assert len(found) == 1 and time.monotonic() - submitted < 10


def test_a_waiting_caller_hears_of_the_end_and_of_an_unknown_task_at_once(client):
    (task,) = client.submit([NewTask(kind="k")])
    (lease,) = client.lease("w", ["k"], wait=10)
    threading.Timer(0.3, lambda: client.complete(lease.attempt, "done")).start()
    began = time.monotonic()
    answer = client.wait([task.id], 60)
    assert answer.tasks[0].result == "done" and time.monotonic() - began < 30
    assert client.wait([task.id, "nobody"], 60).unknown == ["nobody"]


def test_a_cancelled_task_is_told_to_its_handler(client):
    seen = threading.Event()

    def handler(job: Job) -> None:
        if job.over.wait(30):
            seen.set()

    with working(client, handler):
        (task,) = client.submit([NewTask(kind="k")])
        while client.task(task.id).state is not State.leased:
            time.sleep(0.05)
        assert client.cancel(task.id).cancelled == 1
        assert seen.wait(20)
    assert client.task(task.id).state is State.cancelled


def test_results_too_large_for_one_call_go_by_themselves_and_one_too_large_alone_fails_once(client):
    together = threading.Barrier(4)

    def handler(job: Job) -> str:
        together.wait(20)
        return "x" * job.lease.payload

    with working(client, handler):
        sizes = (30_000, 30_000, 30_000, 60_000)  # of at most 50 000 in one call
        ids = [t.id for t in client.submit([NewTask(kind="k", payload=size) for size in sizes])]
        ended = {e.id: e for e in client.as_ended(ids, timeout=60)}
    assert [ended[i].state for i in ids] == [State.succeeded] * 3 + [State.failed]
    assert "cannot be stored: the body is larger than 50000 bytes" in (ended[ids[3]].reason or "")
    assert all(client.task(i).attempts == 1 for i in ids)


def test_a_kind_never_has_more_leases_than_its_limit(client):
    running, most, lock = 0, 0, threading.Lock()

    def handler(job: Job) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    with working(client, handler, "one", concurrency=8):
        ids = [t.id for t in client.submit([NewTask(kind="one") for _ in range(12)])]
        assert all(e.state is State.succeeded for e in client.as_ended(ids, timeout=60))
    assert most == 1


def test_metrics_tell_of_depth_and_of_every_end(client):
    client.submit([NewTask(kind="k", queue="q"), NewTask(kind="k", queue="q")])
    (lease,) = client.lease("w", ["k"], capacity=4)
    client.report([Report(attempt=lease.attempt, outcome=Outcome.timed_out)])
    shown = client.send("GET", "/metrics").text
    for line in (
        'posttrain_tasks_pending{kind="k",queue="q"} 1.0', "posttrain_tasks_workers_capacity 4.0",
        'posttrain_tasks_ended_total{kind="k",outcome="timed_out"} 1.0',
        'posttrain_tasks_submitted_total{kind="k"} 2.0',
    ):  # fmt: skip
        assert line in shown
    status = client.drain("k")
    assert status.drained == ["k"] and status.queues[0].pending == 1 and status.states == {"pending": 1, "timed_out": 1}


def test_refusals_say_what_is_wrong(client):
    with pytest.raises(ServiceError, match="there is no task 'nobody'"):
        client.cancel("nobody")
    client.submit([NewTask(kind="k", key="a", payload=1)])
    with pytest.raises(ServiceError, match="key 'a' was given to another task"):
        client.submit([NewTask(kind="k", key="a", payload=2)])
    with pytest.raises(ServiceError, match="larger than 50000 bytes"):
        client.submit([NewTask(kind="k", payload="x" * 60_000)])
    deep = httpx.post(client.url + "/v1/tasks", content='{"tasks":' + "[" * 20_000, headers={"content-type": "a/json"})
    assert deep.status_code == 422
    with pytest.raises(ServiceAway, match="does not answer"):
        TaskClient(f"http://127.0.0.1:{free_port()}", patience=0.2).status()


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"priority": True}, True), ({"priority": "3"}, True), ({"priority": 3.5}, True), ({"priority": 3.0}, False),
        ({"deadline": True}, True), ({"deadline": "9"}, True), ({"deadline": 9}, False), ({"size": 1}, True),
    ],
)  # fmt: skip
def test_a_value_is_of_its_own_type_and_no_other_is_read_into_it(client, said, refused):
    body = {"tasks": [{"kind": "k"} | said]}
    assert httpx.post(client.url + "/v1/tasks", json=body).status_code == (422 if refused else 200)


def test_the_document_holds_for_whatever_is_sent(tmp_path):
    assert fuzz(create_app(TaskServerSettings(str(tmp_path / "tasks.db"))), 8) >= 15


@pytest.mark.slow
def test_the_document_holds_for_much_more(tmp_path):
    fuzz(create_app(TaskServerSettings(str(tmp_path / "tasks.db"))), 300)
