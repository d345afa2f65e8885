"""The typed client of the TaskServer, for those who submit and for those who work.

with TaskClient("http://127.0.0.1:8300") as tasks:
    submitted = tasks.submit([NewTask(kind="python", payload={"code": "print(1)"}, key="run-7/3")])
    for ended in tasks.as_ended([task.id for task in submitted]):
        print(ended.state, ended.result)
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from posttrain.rollout.tasks.api import (
    LARGEST_BATCH,
    Cancelled,
    Draining,
    Ended,
    EndedAll,
    Heartbeat,
    HeartbeatAnswer,
    Lease,
    LeaseRequest,
    Leases,
    NewTask,
    Report,
    Reported,
    ReportedAll,
    Reports,
    Status,
    Submission,
    Submitted,
    SubmittedAll,
    TaskDetail,
    TaskList,
    WaitFor,
)
from posttrain.rollout.tasks.model import Outcome
from posttrain.service_client import ServiceClient, in_parts


class TaskClient(ServiceClient):
    """Raises ServiceError for a refusal and ServiceAway where the server is not there for `patience` seconds."""

    def __init__(self, url: str, *, patience: float = 60.0, field: str = "tasks.url"):
        super().__init__(url, field=field, patience=patience)

    def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """A task without a key gets one, so that a repeated call submits nothing twice."""
        keyed = [t if t.key else t.model_copy(update={"key": f"auto:{uuid.uuid4().hex}"}) for t in tasks]
        answers: list[Submitted] = []
        for part in in_parts(keyed, LARGEST_BATCH):
            answers += self.call("POST", "/v1/tasks", SubmittedAll, Submission(tasks=part)).tasks
        return answers

    def wait(self, ids: Sequence[str], seconds: float = 30.0) -> EndedAll:
        """The ended ones of at most 1000 `ids`, once there are any, or none after `seconds` (60 at most)."""
        return self.call("POST", "/v1/tasks/wait", EndedAll, WaitFor(ids=list(ids), wait=seconds))

    def as_ended(self, ids: Sequence[str], timeout: float = float("inf")) -> Iterator[Ended]:
        """Each task once, as it ends. Raises TimeoutError after `timeout` seconds, KeyError for an unknown id."""
        left, until = dict.fromkeys(ids), time.monotonic() + timeout
        while left:
            patience = until - time.monotonic()
            if patience <= 0:
                raise TimeoutError(f"{len(left)} tasks have not ended in {timeout:g} s")
            # Those asked for move to the back, so that with more than one batch all have their turn.
            asked = list(left)[:LARGEST_BATCH]
            answer = self.wait(asked, min(30.0 if len(left) <= LARGEST_BATCH else 0.2, patience))
            if answer.unknown:
                raise KeyError(answer.unknown[0])
            for task in answer.tasks:
                del left[task.id]
                yield task
            for task_id in asked:
                if task_id in left:
                    del left[task_id]
                    left[task_id] = None

    def task(self, task: str) -> TaskDetail:
        return self.call("GET", f"/v1/tasks/{task}", TaskDetail)

    def list(self, *, after: int = 0, limit: int = 100, **equal: str | int | None) -> TaskList:
        """A page in the order of submission; `equal` may give kind, queue, state and parent."""
        return self.call("GET", "/v1/tasks", TaskList, query={"after": after, "limit": limit} | equal)

    def result(self, digest: str) -> Any:
        return self.send("GET", f"/v1/results/{digest}").json()

    def cancel(self, task: str) -> Cancelled:
        return self.call("POST", f"/v1/tasks/{task}/cancel", Cancelled)

    def drain(self, kind: str = "*", on: bool = True) -> Status:
        return self.call("PUT", "/v1/drain", Status, Draining(kind=kind, drain=on))

    def status(self) -> Status:
        return self.call("GET", "/v1/status", Status)

    def lease(
        self, worker: str, kinds: Sequence[str], count: int = 1, *, wait: float = 0.0, capacity: int = 0
    ) -> Sequence[Lease]:
        """At most `count` leases; none where none came within `wait` seconds (60 at most)."""
        wanted = LeaseRequest(
            worker=worker, kinds=list(kinds), count=count, wait=wait, request=uuid.uuid4().hex, capacity=capacity
        )
        return self.call("POST", "/v1/leases", Leases, wanted).leases

    def heartbeat(self, worker: str, attempts: Sequence[str], capacity: int = 0) -> Sequence[str]:
        """Those of `attempts` that are over."""
        body = Heartbeat(worker=worker, attempts=list(attempts), capacity=capacity)
        return self.call("POST", "/v1/heartbeats", HeartbeatAnswer, body).lost

    def report(self, reports: Sequence[Report]) -> Sequence[Reported]:
        answers: list[Reported] = []
        for part in in_parts(reports, LARGEST_BATCH):
            answers += self.call("POST", "/v1/attempts", ReportedAll, Reports(reports=part)).reports
        return answers

    def complete(self, attempt: str, result: Any = None) -> Reported:
        """End one attempt as succeeded. A refusal is an answer here, not an error."""
        return self.report([Report(attempt=attempt, outcome=Outcome.succeeded, result=result)])[0]

    def fail(self, attempt: str, outcome: Outcome, reason: str = "", result: Any = None) -> Reported:
        return self.report([Report(attempt=attempt, outcome=outcome, reason=reason, result=result)])[0]
