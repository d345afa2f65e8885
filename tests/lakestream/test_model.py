"""A stream beside a list in memory: whatever is done to both, in any order, both answer the same."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from posttrain.lakestream import Consumer, Policy, Producer, ProducerFenced, Stream, StreamClosed
from tests.lakestream.worker import SCHEMA, rows

NAMES = st.sampled_from(["a", "b", "c"])
GROUPS = {"one": 1, "three": 3}


@dataclass
class Model:
    """What must be true: the rows in order, each producer's epoch and rows, each consumer's rows."""

    rows: list[tuple[str, int]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    archived: int = 0


class Streams(RuleBasedStateMachine):
    producers = Bundle("producers")
    consumers = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="model-"))
        self.stream = Stream.create(self.directory / "stream", SCHEMA, timeout=30)
        self.model = Model()
        self.read: dict[tuple[str, int], int] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}

    def teardown(self) -> None:
        assert self.stream.verify({"producer": "producer", "sequence": "seq"}) == []
        stored = self.stream.snapshot().to_table(["producer", "seq"]).to_pylist()
        left = self.model.rows[self.model.archived :]
        assert [(row["producer"], row["seq"]) for row in stored] == left
        shutil.rmtree(self.directory)

    @rule(target=producers, name=NAMES)
    def register(self, name: str):
        if self.model.closed:
            with pytest.raises(StreamClosed):
                self.stream.producer(name)
            return multiple()
        producer = self.stream.producer(name)
        epoch = self.model.epochs[name] = self.model.epochs.get(name, 0) + 1
        assert (producer.epoch, producer.cursor) == (epoch, self.model.commits.get(name))
        return producer

    @rule(producer=producers, count=st.integers(0, 7))
    def append(self, producer: Producer, count: int) -> None:
        """Zombies too: a producer stays in the bundle after it was replaced."""
        name, model = producer.name, self.model
        first, cursor = model.counts.get(name, 0), model.commits.get(name, 0) + 1
        table = rows(name, first, count)
        if producer.epoch != model.epochs[name]:
            with pytest.raises((ProducerFenced, StreamClosed) if model.closed else ProducerFenced):
                producer.append(table, cursor + 1000)
            return
        if model.closed:
            with pytest.raises(StreamClosed):
                producer.append(table, cursor)
            return
        landed = producer.append(table, cursor)
        assert landed.end - landed.first == count and (not model.ids or landed.first > model.ids[-1])
        model.rows += [(name, first + i) for i in range(count)]
        model.ids += range(landed.first, landed.end)
        model.counts[name], model.commits[name] = first + count, cursor

    @rule(target=consumers, group=st.sampled_from(sorted(GROUPS)), data=st.data(), max_rows=st.integers(1, 9))
    def consume(self, group: str, data: st.DataObject, max_rows: int) -> Consumer:
        """A consumer, or a new one in place of a dead one that goes on from the last checkpoint."""
        index = data.draw(st.integers(0, GROUPS[group] - 1))
        offset = self.read.get((group, index))
        consumer = self.stream.consumer(index, GROUPS[group], group=group, offset=offset, max_rows=max_rows)
        self.read[group, index] = consumer.offset
        return consumer

    @rule(consumer=consumers, acknowledge=st.booleans())
    def poll(self, consumer: Consumer, acknowledge: bool) -> None:
        part = consumer.reading.part
        key = consumer.reading.group, part.index
        if consumer.offset != self.read[key]:
            return  # another one has gone on from its checkpoint
        got = consumer.poll()
        found = list(zip(got["producer"].to_pylist(), got["seq"].to_pylist(), strict=True))
        mine = [
            (i, row) for i, row in zip(self.model.ids, self.model.rows, strict=True) if i % part.count == part.index
        ]
        pending = [row for i, row in mine if i >= self.read[key]]
        # As much as one version has: rows that came since the consumer looked are the next poll's.
        assert found == pending[: len(found)] and len(found) <= consumer.reading.max_rows
        assert bool(found) == bool(pending)
        if consumer.ended:
            assert self.model.closed and len(found) == len(pending)
        self.read[key] = consumer.offset
        if acknowledge:
            self.stream.acknowledge(consumer)
            self.acknowledged[key] = consumer.offset

    @rule(consumer=consumes(consumers))
    def die(self, consumer: Consumer) -> None:
        pass

    @rule()
    def compact_and_clean(self) -> None:
        self.stream.maintain(Policy(keep_versions=0, small_rows=20))

    @rule()
    def retain(self) -> None:
        archive = str(self.directory / "archive")
        self.stream.maintain(Policy(keep_versions=0, retain=0, archive=archive))
        below = self.stream.describe().removed_below
        self.model.archived = sum(i < below for i in self.model.ids)
        assert all(offset >= below for offset in self.read.values()), "nobody had read what went"
        if self.model.archived:
            kept = Stream.open(archive).snapshot().to_table(["producer", "seq"]).to_pylist()
            assert [(row["producer"], row["seq"]) for row in kept] == self.model.rows[: len(kept)]
            assert len(kept) >= self.model.archived

    @precondition(lambda self: len(self.model.rows) > 12)
    @rule()
    def close(self) -> None:
        self.stream.close()
        self.model.closed = True

    @invariant()
    def lag_is_what_is_left(self) -> None:
        for lag in self.stream.lag():
            mine = [i for i in self.model.ids if i % lag.count == lag.index]
            start = max(self.acknowledged.get((lag.group, lag.index), 0), lag.offset)
            assert lag.rows == sum(i >= start for i in mine)


class TestStreams(Streams.TestCase):
    settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestStreamsAtLength(Streams.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=60, deadline=None, derandomize=False)
