"""Rows put one by one are committed in order, by number, size and time; a failure leaves no gap."""

from __future__ import annotations

import asyncio
import time

import pytest

from posttrain.lakestream import Buffer, ProducerFenced, Stream, StreamError
from tests.lakestream.worker import SCHEMA, rows

LATER = 3600.0


def put(buffer: Buffer, first: int, count: int = 1):
    return buffer.put(rows("a", first, count), first + count)


def test_a_commit_is_made_when_enough_rows_are_there(stream: Stream) -> None:
    buffer = Buffer(stream.producer("a"), SCHEMA, max_rows=4, max_seconds=LATER)
    futures = [put(buffer, i) for i in range(8)]
    landed = [future.result(30) for future in futures]
    assert [c.cursor for c in landed] == [4] * 4 + [8] * 4
    assert stream.describe().producers[0].commits == 2
    waiting = put(buffer, 8)
    assert not waiting.done()
    buffer.close()
    assert waiting.result().cursor == 9
    assert stream.snapshot().to_table()["seq"].to_pylist() == list(range(9))
    with pytest.raises(StreamError, match=r"closed"):
        put(buffer, 9)


def test_a_commit_is_made_when_enough_bytes_are_there_and_when_it_is_time(stream: Stream) -> None:
    row = {"producer": "a", "seq": 0, "text": "x" * 1000}
    with Buffer(stream.producer("a"), SCHEMA, max_bytes=2500, max_seconds=LATER) as buffer:
        futures = [buffer.put([row | {"seq": i}], i + 1) for i in range(3)]
        assert futures[0].result(30).cursor == 2, "the third would be too much for one commit"
    with Buffer(stream.producer("a"), SCHEMA, max_seconds=0.1) as buffer:
        started = time.monotonic()
        buffer.put([row | {"seq": 3}], 4).result(30)
        assert time.monotonic() - started > 0.09


def test_flush_commits_what_was_put(stream: Stream) -> None:
    with Buffer(stream.producer("a"), SCHEMA, max_seconds=LATER) as buffer:
        futures = [put(buffer, i) for i in range(3)]
        buffer.flush()
        assert all(future.done() for future in futures)
        buffer.flush()
    assert stream.describe().producers[0].cursor == 3


def test_a_failure_fails_everything_after_it(stream: Stream) -> None:
    buffer = Buffer(stream.producer("a"), SCHEMA, max_rows=2, max_seconds=LATER)
    put(buffer, 0, 2).result(30)
    successor = stream.producer("a")
    futures = [put(buffer, 2, 2)]
    with pytest.raises(ProducerFenced):
        futures[0].result(30)
    with pytest.raises(ProducerFenced):
        put(buffer, 4, 2)
    with pytest.raises(ProducerFenced):
        buffer.close()
    assert successor.cursor == 2 and stream.describe().rows == 2


def test_a_bad_row_is_refused_when_it_is_put(stream: Stream) -> None:
    with Buffer(stream.producer("a"), SCHEMA) as buffer:
        with pytest.raises(StreamError, match=r"row 0, column 'seq'"):
            buffer.put([{"producer": "a"}], 1)
        put(buffer, 0)
    assert stream.describe().rows == 1


def test_futures_can_be_awaited(stream: Stream) -> None:
    async def run() -> list[int]:
        with Buffer(stream.producer("a"), SCHEMA, max_rows=5, max_seconds=0.05) as buffer:
            futures = [asyncio.wrap_future(put(buffer, i)) for i in range(12)]
            return [committed.cursor for committed in await asyncio.gather(*futures)]

    cursors = asyncio.run(run())
    assert cursors == sorted(cursors) and cursors[-1] == 12
    assert stream.verify({"producer": "producer", "sequence": "seq"}) == []
