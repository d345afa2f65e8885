"""What the TaskServer tells Prometheus. Depth, age and leases are read from the database when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from posttrain.rollout.tasks.api import QueueView
from posttrain.rollout.tasks.store import Effects

_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 5, 20, 60, 300, 1200, 3600)
_FORGET = 60.0  # seconds after which a worker that says nothing is no longer counted


class Metrics:
    """One server's registry. `queues` reads the queues; workers are those heard of within a minute."""

    def __init__(self, queues: Callable[[], list[QueueView]]):
        self.registry = CollectorRegistry()
        self._queues, self._workers = queues, dict[str, tuple[int, int, float]]()
        self.submitted = self._counter("submitted", "Tasks taken in")
        self.retried = self._counter("retried", "Attempts that ended by an infrastructure error and are made again")
        self.expired = self._counter("lease_expired", "Leases whose worker fell silent")
        self.refused = self._counter("late_result", "Results that came after their attempt was over")
        self.ended = Counter(
            "tasks_ended", "Tasks by their outcome", ["kind", "outcome"], registry=self.registry, namespace="posttrain"
        )
        self.waited = self._histogram("wait_seconds", "From when a task could start to its lease")
        self.ran = self._histogram("run_seconds", "Of a task's last attempt")
        self.registry.register(self)

    def heard(self, worker: str, capacity: int, busy: int) -> None:
        """A worker has spoken: how many tasks it can do at once, how many it is doing."""
        self._workers[worker] = (capacity, busy, time.monotonic())

    @property
    def workers(self) -> tuple[int, int, int]:
        """Live workers, what they can do at once, what they do."""
        limit = time.monotonic() - _FORGET
        self._workers = {name: w for name, w in self._workers.items() if w[2] > limit}
        return len(self._workers), sum(w[0] for w in self._workers.values()), sum(w[1] for w in self._workers.values())

    def tell(self, effects: Effects) -> None:
        for counter, kinds in (
            (self.submitted, effects.submitted), (self.retried, effects.retried),
            (self.expired, effects.expired), (self.refused, effects.refused),
        ):  # fmt: skip
            for kind in kinds:
                counter.labels(kind).inc()
        for kind, _, waited in effects.leased:
            self.waited.labels(kind).observe(max(0.0, waited))
        for _, kind, state, seconds in effects.ended:
            self.ended.labels(kind, state.value).inc()
            if seconds is not None:
                self.ran.labels(kind).observe(max(0.0, seconds))

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("posttrain_tasks_pending", "Tasks that wait", labels=["kind", "queue"])
        leased = GaugeMetricFamily("posttrain_tasks_leased", "Tasks under a lease", labels=["kind", "queue"])
        age = GaugeMetricFamily(
            "posttrain_tasks_oldest_seconds", "Age of the oldest task that waits", labels=["kind", "queue"]
        )
        for view in self._queues():
            depth.add_metric([view.kind, view.queue], view.pending)
            leased.add_metric([view.kind, view.queue], view.leased)
            age.add_metric([view.kind, view.queue], view.oldest_seconds)
        yield from (depth, leased, age)
        count, capacity, busy = self.workers
        for name, text, value in (
            ("workers", "Workers heard of within a minute", count),
            ("workers_capacity", "Tasks that those workers can do at once", capacity),
            ("workers_busy", "Tasks that those workers do", busy),
        ):
            yield GaugeMetricFamily(f"posttrain_tasks_{name}", text, value=value)

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not read the database."""
        yield from ()

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"tasks_{name}", text, ["kind"], registry=self.registry, namespace="posttrain")

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"tasks_{name}", text, ["kind"], registry=self.registry, namespace="posttrain", buckets=_SECONDS
        )
