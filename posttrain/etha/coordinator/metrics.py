"""What the coordinator tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from posttrain.etha.coordinator.state import State
from posttrain.etha.wire import RankReport

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)


class Metrics:
    """One coordinator's registry; gauges are read from the state when they are asked for."""

    def __init__(self, state: Callable[[], State]):
        self.registry = CollectorRegistry()
        self._state = state
        self._heard: dict[str, tuple[int, int]] = {}
        self.versions = self._counter("versions", "Versions that ended, by how", "state")
        self.failures = self._counter("failures", "Transfers and changes of weights that failed", "replica")
        self.bytes = self._counter("bytes", "Bytes that arrived", "replica")
        self.resent = self._counter("resent_buckets", "Buckets that came damaged, and again", "replica")
        self.moved = self._histogram("version_seconds", "From a version's begin to its end")
        self.paused = self._histogram("pause_seconds", "For an engine to change its weights")
        self.planned = self._histogram("plan_seconds", "In which a plan was made")
        self.registry.register(self)

    def tell(self, events: Iterable[Mapping[str, object]]) -> None:
        for event in events:
            kind, _, what = str(event["event"]).partition(" ")
            if kind == "version" and what != "moving":
                self.versions.labels(what).inc()
                if isinstance(seconds := event.get("seconds"), float):
                    self.moved.observe(seconds)
            elif event["event"] == "replica failed":
                self.failures.labels(str(event["replica"])).inc()

    def received(self, key: str, report: RankReport) -> None:
        """What a rank says it has received since it began; a smaller number than before is a new beginning."""
        replica = key.rpartition("/")[0]
        before = self._heard.get(key, (0, 0))
        now = (report.moved, report.resent)
        for counter, old, new in zip((self.bytes, self.resent), before, now, strict=True):
            counter.labels(replica).inc(new - old if new >= old else new)
        self._heard[key] = now

    def collect(self) -> Iterator[Metric]:
        state = self._state()
        yield GaugeMetricFamily("posttrain_etha_target_version", "The version that was decided last", state.target)
        version = GaugeMetricFamily("posttrain_etha_replica_version", "In the engine; -1 for none", labels=["replica"])
        traffic = GaugeMetricFamily("posttrain_etha_replica_traffic", "1 where it may be asked", labels=["replica"])
        takes = state.traffic()
        for name in state.replicas:
            held = state.engine(name)
            version.add_metric([name], -1 if held is None else held)
            traffic.add_metric([name], float(name in takes))
        yield from (version, traffic)

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not read the state."""
        yield from ()

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"etha_{name}", text, [label], registry=self.registry, namespace="posttrain")

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"etha_{name}", text, registry=self.registry, namespace="posttrain", buckets=_SECONDS)
