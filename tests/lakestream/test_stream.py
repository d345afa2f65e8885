"""A stream as its users see it, on a directory and on S3."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from posttrain.errors import UserError
from posttrain.lakestream import (
    AdmissionTimeout,
    Consumer,
    ConsumerFenced,
    OffsetRemoved,
    Policy,
    ProducerFenced,
    Settings,
    Stream,
    StreamClosed,
    StreamError,
    StreamNotFound,
)
from tests.lakestream.stores import Store
from tests.lakestream.worker import SCHEMA, rows

COLUMNS = {"producer": "producer", "sequence": "seq"}


def numbers(batches) -> list[int]:
    return [seq for batch in batches for seq in batch["seq"].to_pylist()]


def test_rows_and_cursor_land_together_and_are_read_once_by_each_group(store: Store) -> None:
    stream = Stream.create(store.uri("basic"), SCHEMA, storage_options=store.options, timeout=20)
    assert Stream.create(store.uri("basic"), SCHEMA, storage_options=store.options).uri == stream.uri
    a, b = stream.producer("a"), stream.producer("b")
    landed = [a.append(rows("a", i * 4, 4), 4 * i + 4) for i in range(3)]
    b.append(rows("b", 0, 5))
    assert [c.end - c.first for c in landed] == [4, 4, 4] and landed[0].end <= landed[1].first
    assert [p.cursor for p in Stream.open(stream.uri, storage_options=store.options).describe().producers] == [12, 5]
    consumers = [stream.consumer(i, 2) for i in range(2)]
    audit = stream.consumer(group="audit", columns=["seq"], filter="producer = 'a' AND seq % 2 = 1")
    stream.close()
    seen = [list(consumer) for consumer in consumers]
    assert sorted(numbers(seen[0] + seen[1])) == sorted([*range(12), *range(5)])
    assert seen[0][0].schema == SCHEMA
    assert numbers(audit) == [1, 3, 5, 7, 9, 11] and audit.ended
    assert stream.verify(COLUMNS) == []
    for refused in (lambda: a.append(rows("a", 12, 1), 13), lambda: stream.producer("late")):
        with pytest.raises(StreamClosed):
            refused()
    stream.close()  # again is nothing


def test_an_append_without_rows_moves_the_cursor(stream: Stream) -> None:
    producer = stream.producer("a")
    committed = producer.append([], "input-0009")
    assert committed.first == committed.end
    assert stream.producer("a").cursor == "input-0009"
    assert stream.describe().rows == 0


def test_rows_in_any_form(stream: Stream) -> None:
    producer = stream.producer("a")
    producer.append(rows("a", 0, 2), 2)
    producer.append(rows("a", 2, 2).to_batches()[0], 4)
    producer.append([{"producer": "a", "seq": 4}, {"seq": 5, "producer": "a", "text": "x"}], 6)
    producer.append(pa.table({"seq": pa.array([6], pa.int32()), "producer": ["a"]}), 7)
    assert stream.snapshot().to_table()["seq"].to_pylist() == list(range(7))
    assert stream.snapshot().to_table()["text"].to_pylist() == [f"a {i}" for i in range(4)] + [None, "x", None]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ([{"producer": "a", "seq": 0}, {"producer": "a", "seq": "x"}], r"row 1, column 'seq'.*int64.*'x'"),
        ([{"producer": "a", "seq": 0}, {"producer": "a"}], r"row 1, column 'seq'.*null or missing"),
        ([{"producer": "a", "seq": 0, "sec": 1}], r"row 0, column 'sec'.*producer, seq, text"),
        ([{"producer": "a", "seq": 0}, 7], r"row 1.*no mapping"),
        (pa.table({"producer": ["a", None], "seq": [1, 2]}), r"row 1, column 'producer'.*null"),
        (pa.table({"producer": ["a"]}), r"seq.*missing"),
        (pa.table({"producer": ["a", "a"], "seq": ["1", "x"]}), r"row 1, column 'seq'.*int64.*'x'"),
        (pa.table({"other": [1]}), r"other.*no column"),
    ],
)
def test_a_bad_row_is_named_and_nothing_lands(stream: Stream, bad, why: str) -> None:
    producer = stream.producer("a")
    version = stream.describe().version
    with pytest.raises(StreamError, match=why):
        producer.append(bad, 1)
    assert stream.describe().version == version
    producer.append(rows("a", 0, 1), 1)


def test_without_a_cursor_rows_are_counted(stream: Stream) -> None:
    producer = stream.producer("a")
    assert [producer.append(rows("a", i, n)).cursor for i, n in ((0, 3), (3, 4))] == [3, 7]
    with pytest.raises(StreamError, match=r"cursor.*needed"):
        producer.append([])
    named = stream.producer("b")
    named.append(rows("b", 0, 1), "x")
    with pytest.raises(StreamError, match=r"cursor.*no count"):
        named.append(rows("b", 1, 1))


def test_what_is_not_there_or_not_a_stream_is_said(tmp_path: Path, local: Store) -> None:
    with pytest.raises(StreamNotFound, match=r"no stream here"):
        Stream.open(tmp_path / "nothing")
    lance.write_dataset(rows("a", 0, 1), str(tmp_path / "table"))
    with pytest.raises(StreamError, match=r"no stream"):
        Stream.open(tmp_path / "table")
    Stream.create(local.uri("one"), SCHEMA)
    with pytest.raises(StreamError, match=r"another schema"):
        Stream.create(local.uri("one"), pa.schema([("x", pa.int8())]))
    with pytest.raises(StreamError, match=r"'ctl'"):
        Stream.create(local.uri("two"), pa.schema([("ctl", pa.string())]))
    for name, kind in (("_rowid", pa.int8()), ("a.b", pa.int8()), ("a", pa.month_day_nano_interval())):
        with pytest.raises(StreamError, match=r"^schema: cannot be that of a stream: [^/]+$"):
            Stream.create(local.uri("two"), pa.schema([(name, kind)]))
    with pytest.raises(StreamError, match=r"scheme"):
        Stream.open("gs://bucket/stream")
    assert issubclass(StreamError, UserError), "the command line shows it as one line"


def test_creating_from_many_places_makes_one_stream(local: Store) -> None:
    streams: list[Stream] = []
    threads = [
        threading.Thread(target=lambda: streams.append(Stream.create(local.uri("raced"), SCHEMA))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(streams) == 8
    for i, stream in enumerate(streams):
        stream.producer(f"p{i}").append(rows(f"p{i}", 0, 1), 1)
    assert streams[0].verify(COLUMNS) == []
    assert len(streams[0].describe().producers) == 8


def test_a_consumer_resumes_from_its_offset_and_reads_as_many_rows_as_asked(stream: Stream) -> None:
    producer = stream.producer("a")
    for i in range(6):
        producer.append(rows("a", i * 5, 5), i + 1)
    first = stream.consumer(max_rows=7)
    one = first.poll()
    assert one.num_rows == 7
    stream.maintain(Policy(keep_versions=0))
    resumed = stream.consumer(offset=first.offset, max_rows=100)
    assert one["seq"].to_pylist() + numbers([resumed.poll()]) == list(range(30))
    assert resumed.poll().num_rows == 0 and not resumed.ended
    assert resumed.offset > first.offset


@pytest.mark.parametrize("letters", [1, 2000])
def test_readers_go_on_when_files_are_cleaned_up_under_them(store: Store, letters: int) -> None:
    """Lance reads small files at once and large ones as it goes, and says in other words that one is gone."""
    stream = Stream.create(store.uri(f"cleaned-{letters}"), SCHEMA, storage_options=store.options, timeout=20)
    producer, chosen = stream.producer("a"), random.Random(letters)
    for i in range(5):
        texts = [chosen.randbytes(letters).hex() for _ in range(100)]
        producer.append(rows("a", 100 * i, 100).set_column(2, "text", pa.array(texts)), i + 1)
    consumer, snapshot = stream.consumer(max_rows=30), stream.snapshot()
    batches = snapshot.to_batches(batch_size=30)
    read = [consumer.poll()]
    scanned = [next(batches)]
    assert snapshot.take([7, 450])["seq"].to_pylist() == [7, 450]
    stream.maintain(Policy(keep_versions=0))
    while (more := consumer.poll()).num_rows:
        read.append(more)
    assert numbers(read) == numbers([*scanned, *batches]) == list(range(500))
    assert snapshot.take([7, 450])["seq"].to_pylist() == [7, 450]


def test_a_new_group_may_begin_at_the_end_and_keeps_its_watermark(stream: Stream) -> None:
    producer = stream.producer("a")
    producer.append(rows("a", 0, 5), 5)
    late = stream.consumer(group="late", offset="end")
    producer.append(rows("a", 5, 5), 10)
    assert numbers([late.poll()]) == [5, 6, 7, 8, 9]
    stream.acknowledge(late)
    assert stream.consumer(group="late").offset == late.offset
    assert [lag.rows for lag in stream.lag()] == [0]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"index": 2, "count": 2}, "index"), ({"count": 0}, "count"), ({"offset": -1}, "offset"),
        ({"offset": "start"}, "offset"), ({"columns": ["nope"]}, "columns"), ({"filter": "nope > 1"}, "filter"),
        ({"filter": "seq >"}, "filter"), ({"group": ""}, "group"),
    ],
)  # fmt: skip
def test_a_wrong_request_names_its_field(stream: Stream, wrong: dict, field: str) -> None:
    with pytest.raises(StreamError, match=rf"^{field}: "):
        stream.consumer(**wrong)


def test_another_count_is_refused_and_a_rescale_loses_and_repeats_nothing(stream: Stream) -> None:
    producer = stream.producer("a")
    for i in range(6):
        producer.append(rows("a", i * 7, 7), i + 1)
    old = [stream.consumer(i, 3, max_rows=[9, 5, 3][i]) for i in range(3)]
    seen = []
    for consumer in old:
        seen.append(consumer.poll())
        stream.acknowledge(consumer)
    with pytest.raises(StreamError, match=r"count.*has 3 consumers.*rescale"):
        stream.consumer(0, 2)
    new = [stream.consumer(i, 2, rescale=True) for i in range(2)]
    with pytest.raises(ConsumerFenced):
        stream.acknowledge(old[0])
    producer.append(rows("a", 42, 7), 7)
    stream.close()
    seen += [batch for consumer in new for batch in consumer]
    assert sorted(numbers(seen)) == list(range(49))
    for consumer in new:
        stream.acknowledge(consumer)
    assert [lag.rows for lag in stream.lag()] == [0, 0]


def test_a_rescale_from_a_common_offset(stream: Stream) -> None:
    producer = stream.producer("a")
    middle = producer.append(rows("a", 0, 10), 1).end
    stream.consumer(0, 2)
    producer.append(rows("a", 10, 10), 2)
    stream.close()
    again = [stream.consumer(i, 3, rescale=True, offset=middle) for i in range(3)]
    assert sorted(numbers([batch for consumer in again for batch in consumer])) == list(range(10, 20))


def test_lag_counts_rows_of_the_part_and_commits(stream: Stream) -> None:
    producer = stream.producer("a")
    consumers = [stream.consumer(i, 2) for i in range(2)]
    for i in range(4):
        producer.append(rows("a", i * 3, 3), i + 1)
    consumers[0].poll()
    stream.acknowledge(consumers[0])
    read, unread = stream.lag()
    assert (read.rows, read.commits, unread.commits) == (0, 0, 4)
    assert unread.rows == 12 - len(numbers([stream.consumer(0, 2, offset=0).poll()]))
    assert read.at > 0 == unread.at


def test_a_producer_waits_for_the_consumers_and_drops_nothing(stream: Stream) -> None:
    stream.configure(Settings(max_lag_rows=10))
    producer = stream.producer("a", admission_timeout=0.3)
    for i in range(5):
        producer.append(rows("a", i * 10, 10), i + 1)  # nobody has asked for the rows yet
    consumer = stream.consumer()
    with pytest.raises(AdmissionTimeout, match=r"50 rows and 5 commits behind"):
        producer.append(rows("a", 50, 10), 6)
    assert stream.describe().rows == 50
    patient = stream.producer("a", admission_timeout=30)
    waiting = threading.Thread(target=lambda: patient.append(rows("a", 50, 10), 6))
    waiting.start()
    while consumer.poll(timeout=0.2).num_rows:
        stream.acknowledge(consumer)
    waiting.join(30)
    assert stream.describe().rows == 60
    stream.configure(Settings(max_lag_commits=2))
    bounded = stream.producer("a", admission_timeout=0.2)
    stream.acknowledge(consumer)
    for i in range(6, 9):
        bounded.append(rows("a", i * 10, 10), i + 1)
    with pytest.raises(AdmissionTimeout):
        bounded.append(rows("a", 90, 10), 10)


def test_asynchronous_appends(stream: Stream) -> None:
    async def run() -> list[int]:
        a, b = stream.producer("a"), stream.producer("b")
        for i in range(3):
            await asyncio.gather(a.append_async(rows("a", i, 1), i + 1), b.append_async(rows("b", i, 1), i + 1))
        return [a.cursor, b.cursor]

    assert asyncio.run(run()) == [3, 3]
    assert stream.verify(COLUMNS) == []


def test_retention_takes_what_every_group_has_done_and_the_archive_has_it_once(stream: Stream) -> None:
    archive = f"{stream.uri}.archive"
    policy = Policy(keep_versions=0, retain=0, archive=archive)
    producer, slow, fast = (
        stream.producer("a"),
        stream.consumer(group="slow", max_rows=4),
        stream.consumer(group="fast"),
    )
    for i in range(5):
        producer.append(rows("a", i * 4, 4), i + 1)
        stream.maintain(policy)  # with nothing acknowledged, nothing goes
    fast.poll()
    stream.acknowledge(fast)
    removed = [stream.describe().removed_rows]
    for _ in range(5):
        slow.poll()
        stream.acknowledge(slow)
        stream.maintain(policy)
        removed.append(stream.describe().removed_rows)
    assert removed[0] == 0 and removed[-1] == 20 and removed == sorted(removed)
    producer.append(rows("a", 20, 2), 6)
    kept = Stream.open(archive).snapshot().to_table()["seq"].to_pylist()
    assert (kept, stream.snapshot().to_table()["seq"].to_pylist()) == (list(range(20)), [20, 21])
    assert stream.verify(COLUMNS) == [] == Stream.open(archive).verify()
    with pytest.raises(OffsetRemoved, match=r"archive"):
        stream.consumer(group=None, offset=0).poll()
    assert numbers([stream.consumer(group="new").poll()]) == [20, 21]


def test_what_may_go_goes_though_younger_rows_come_with_every_run(stream: Stream) -> None:
    """It is not merged with them before: a stream whose rows make no full fragment would keep all of them."""
    policy = Policy(keep_versions=0, retain=0)
    producer, consumer = stream.producer("a"), stream.consumer(group="g")
    for i in range(4):
        producer.append(rows("a", i * 4, 4), i + 1)
        stream.maintain(policy)
        assert stream.snapshot().to_table()["seq"].to_pylist() == list(range(i * 4, i * 4 + 4))
        consumer.poll()
        stream.acknowledge(consumer)


def test_a_maintainer_that_is_overtaken_while_it_archives_leaves_it_to_the_other(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(keep_versions=0, retain=0, archive=f"{stream.uri}.archive")
    producer, consumer = stream.producer("a"), stream.consumer(group="g")
    for i in range(2):
        producer.append(rows("a", i * 4, 4), i + 1)
        stream.maintain(policy)  # with nothing acknowledged, nothing goes
    consumer.poll()
    stream.acknowledge(consumer)
    stream.maintain(Policy(keep_versions=0))  # a mark behind which rows may go

    other, late = Stream.open(stream.uri), Stream.open(stream.uri)
    read = late.consumer

    def overtaken(**reading: Any) -> Consumer:
        found = read(**reading)
        assert other.maintain(policy).removed_rows == 8
        return found

    monkeypatch.setattr(late, "consumer", overtaken)
    assert late.maintain(policy).skipped == ["archive: another maintainer is at it"]
    assert Stream.open(policy.archive or "").snapshot().to_table()["seq"].to_pylist() == list(range(8))
    assert stream.verify(COLUMNS) == []


def test_an_archive_ends_in_ids_that_no_row_has(stream: Stream) -> None:
    """Commits without rows leave gaps in the row ids; the archive's cursor must pass them like rows."""
    policy = Policy(keep_versions=0, retain=0, archive=f"{stream.uri}.archive")
    producer, consumer = stream.producer("a"), stream.consumer()
    for i in range(3):
        producer.append(rows("a", i, 1), 2 * i + 1)
        producer.append([], 2 * i + 2)
        consumer.poll()
        stream.acknowledge(consumer)
        for _ in range(2):
            stream.maintain(policy)
    assert stream.describe().removed_rows == 3
    assert Stream.open(policy.archive or "").snapshot().to_table()["seq"].to_pylist() == [0, 1, 2]


def test_who_registers_without_another_look_meets_what_came_since_it_opened(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posttrain.lakestream.table._MOMENT", 60.0)
    early = [Stream.open(stream.uri) for _ in range(3)]
    older = stream.producer("a")
    older.append(rows("a", 0, 2), 2)
    assert early[0].producer("a").cursor == 2
    with pytest.raises(ProducerFenced):
        older.append(rows("a", 2, 1), 3)
    stream.maintain(Policy(keep_versions=0))
    assert early[1].producer("a").cursor == 2
    stream.close()
    with pytest.raises(StreamClosed):
        early[2].producer("b")


def test_upkeep_in_a_producer_keeps_fragments_and_versions_few(stream: Stream) -> None:
    producer = stream.producer("a", upkeep=Policy(every_commits=20, keep_versions=0))
    for i in range(200):
        producer.append(rows("a", i, 1), i + 1)
    stream.maintain(Policy(every_commits=20, keep_versions=0))
    described = stream.describe()
    assert described.fragments < 40 and described.versions < 10
    assert described.maintained_at > 0
    assert stream.verify(COLUMNS) == []


def test_a_process_may_end_while_its_upkeep_is_at_work(stream: Stream) -> None:
    program = """
import sys, threading
from posttrain.lakestream import Policy, Stream, events
producer = Stream.open(sys.argv[1]).producer("a", upkeep=Policy(every_commits=1, keep_versions=0))
at_work = threading.Event()
with events.listen(lambda event: at_work.set() if event.name == "compacted" else None):
    while not at_work.is_set():
        i = producer.cursor or 0
        producer.append([{"producer": "a", "seq": i}], i + 1)
"""
    subprocess.run([sys.executable, "-c", program, stream.uri], check=True, timeout=60)
    assert stream.verify(COLUMNS) == []


def test_upkeep_is_due_every_so_many_commits_only(stream: Stream) -> None:
    producer = stream.producer("a")
    policy = Policy(every_commits=10, keep_versions=0)
    ran = []
    for i in range(40):
        producer.append(rows("a", i, 1), i + 1)
        ran.append(stream.maintain(policy, force=False).due)
    assert 2 <= sum(ran) <= 4


def test_upkeep_from_several_places_at_once(stream: Stream) -> None:
    producer, done, failed = stream.producer("a"), threading.Event(), []

    def keep() -> None:
        while not done.is_set():
            try:
                stream.maintain(Policy(keep_versions=0, every_commits=1))
            except Exception as problem:
                failed.append(problem)
            time.sleep(0.02)

    keepers = [threading.Thread(target=keep) for _ in range(3)]
    for keeper in keepers:
        keeper.start()
    reader, seen = stream.consumer(max_rows=3), []
    for i in range(40):
        producer.append(rows("a", i * 2, 2), i + 1)
        seen.append(reader.poll())
    done.set()
    for keeper in keepers:
        keeper.join()
    stream.close()
    assert not failed
    assert numbers(seen + list(reader)) == list(range(80))
    assert stream.verify(COLUMNS) == []
