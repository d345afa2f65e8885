"""A worker: takes leases, runs a handler for each, keeps the leases alive, reports how it ended.

Invariants: an attempt that the server has given up is told to its handler and never reported; what the handler raises
is the outcome of its class, and an unknown exception is an infrastructure error, never a result; a worker that is told
to stop leases nothing more, and ends what it has.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from posttrain.rollout.tasks.api import LARGEST_BATCH, Lease, Report
from posttrain.rollout.tasks.client import TaskClient
from posttrain.rollout.tasks.model import Outcome
from posttrain.service_client import ServiceError

log = logging.getLogger(__name__)
_MANY = 200  # reports in one call


class Ended(Exception):
    """Raised by a handler to end its task otherwise than `succeeded`; `result` may hold what there is."""

    def __init__(self, outcome: Outcome, reason: str = "", result: Any = None):
        super().__init__(f"{outcome.value}: {reason}")
        self.outcome, self.reason, self.result = outcome, reason, result


@dataclass
class Job:
    """A lease under way. `over` is set once its result is no longer wanted; a handler that runs long looks at it."""

    lease: Lease
    started: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def seconds_left(self) -> float | None:
        """Until the attempt's deadline by this machine's clock; None for no deadline."""
        left = self.lease.seconds_left
        return None if left is None else max(0.0, left - (time.monotonic() - self.started))


Handler = Callable[[Job], Any]


class Worker:
    """`run()` works until `stop()`. Handlers run in threads, `concurrency` of them at once."""

    def __init__(
        self, client: TaskClient, kinds: Sequence[str], handler: Handler, *, concurrency: int = 1, name: str = "",
        lease_wait: float = 20.0,
    ):  # fmt: skip
        self._client, self._kinds, self._handler = client, list(kinds), handler
        self._concurrency, self._lease_wait = concurrency, lease_wait
        self.name = name or f"worker-{uuid.uuid4().hex[:12]}"
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._room = threading.Semaphore(concurrency)
        self._reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._beat = 1.0  # seconds between heartbeats; a lease says how often it must be heard of

    def stop(self) -> None:
        """Lease nothing more; `run` returns once what is under way has ended."""
        self._stopping.set()

    def run(self) -> None:
        """Raises ServiceAway where the server does not come back."""
        reporter = threading.Thread(target=self._report_for_ever, name=f"{self.name}-reports", daemon=True)
        heart = threading.Thread(target=self._beat_for_ever, name=f"{self.name}-heart", daemon=True)
        self._ending = threading.Event()
        reporter.start()
        heart.start()
        try:
            with ThreadPoolExecutor(self._concurrency, thread_name_prefix=self.name) as pool:
                try:
                    while not self._stopping.is_set():
                        for lease in self._lease():
                            pool.submit(self._do, self._begin(lease))
                except BaseException:
                    for job in list(self._jobs.values()):
                        job.over.set()
                    raise
        finally:
            self._reports.put(None)
            self._ending.set()
            reporter.join()
            heart.join()

    def _lease(self) -> Sequence[Lease]:
        """Leases for all the room there is, at least one."""
        if not self._room.acquire(timeout=0.5):
            return ()
        room = 1
        while self._room.acquire(blocking=False):
            room += 1
        leases: Sequence[Lease] = ()
        try:
            leases = self._client.lease(
                self.name, self._kinds, min(room, LARGEST_BATCH), wait=self._lease_wait, capacity=self._concurrency
            )
        finally:
            if room > len(leases):
                self._room.release(room - len(leases))
        return leases

    def _begin(self, lease: Lease) -> Job:
        job = Job(lease)
        self._beat = lease.lease_seconds / 3
        with self._lock:
            self._jobs[lease.attempt] = job
        return job

    def _do(self, job: Job) -> None:
        outcome, reason, result = Outcome.succeeded, "", None
        try:
            if not job.over.is_set():
                result = self._handler(job)
        except Ended as ended:
            outcome, reason, result = ended.outcome, ended.reason, ended.result
        except Exception as problem:  # whatever a handler breaks on must not be taken for the work's own end
            log.exception("the handler of %s failed", job.lease.task)
            outcome, reason = Outcome.infrastructure_error, f"{type(problem).__name__}: {problem}"
        if job.over.is_set():
            self._forget([job.lease.attempt])
        else:
            try:
                self._reports.put(
                    Report(attempt=job.lease.attempt, outcome=outcome, reason=_clean(reason), result=result)
                )
            except ValueError as problem:
                self._reports.put(_unstorable(job.lease.attempt, str(problem)))
        self._room.release()

    def _report_for_ever(self) -> None:
        """What has ended, in as few calls as the time of one allows."""
        while (first := self._reports.get()) is not None:
            batch, last = [first], False
            while len(batch) < _MANY and not self._reports.empty():
                more = self._reports.get()
                if more is None:
                    last = True
                    break
                batch.append(more)
            try:
                self._report(batch)
            except Exception:  # whatever it was: what ends later must still be reported
                log.exception("%d results could not be reported; their leases will run out", len(batch))
            self._forget([report.attempt for report in batch])
            if last:
                return

    def _report(self, batch: list[Report]) -> None:
        """Results that are too large together go one by one; one that is too large by itself is its task's failure."""
        try:
            answers = self._client.report(batch)
        except ServiceError as refused:
            if refused.status != 413:
                raise
            if len(batch) > 1:
                for report in batch:
                    self._report([report])
                return
            answers = self._client.report([_unstorable(batch[0].attempt, refused.problem)])
        for answer in answers:
            if answer.status in ("refused", "unknown"):
                log.warning("attempt %s was over: its result is dropped", answer.attempt)

    def _beat_for_ever(self) -> None:
        while not self._ending.wait(self._beat):
            with self._lock:
                attempts = list(self._jobs)
            try:
                lost = self._client.heartbeat(self.name, attempts, self._concurrency)
            except Exception as problem:
                log.warning("no heartbeat: %s", problem)
                continue
            with self._lock:
                for attempt in lost:
                    if attempt in self._jobs:  # else it was reported meanwhile
                        self._jobs[attempt].over.set()

    def _forget(self, attempts: Sequence[str]) -> None:
        with self._lock:
            for attempt in attempts:
                self._jobs.pop(attempt, None)


def _unstorable(attempt: str, why: str) -> Report:
    return Report(attempt=attempt, outcome=Outcome.failed, reason=_clean(f"the result cannot be stored: {why}"))


def _clean(reason: str) -> str:
    return reason.replace("\0", "").encode(errors="replace").decode()[:20_000]
