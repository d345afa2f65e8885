"""The process dies at each point of an append, a registration, a close, a clean-up. Nothing is lost or twice.

Points are enumerated: each event that the library emits, and on S3 each request, before it reaches the store
and after the store has carried it out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.lakestream import Policy, Stream, StreamClosed
from posttrain.lakestream.events import Event, listen
from tests.lakestream.proxy import Lost, Proxy, Request, proxied
from tests.lakestream.stores import Store
from tests.lakestream.worker import SCHEMA, processes, rows

COLUMNS = {"producer": "producer", "sequence": "seq"}


def append(stream: Stream) -> None:
    producer = stream.producer("a")
    done = producer.cursor or 0
    producer.append(rows("a", done, 5), done + 5)


def upkeep(stream: Stream) -> None:
    stream.maintain(Policy(keep_versions=0, retain=0, archive=f"{stream.uri}.archive"))


def acknowledge(stream: Stream) -> None:
    consumer = stream.consumer(group="g")
    consumer.poll()
    stream.acknowledge(consumer)


OPERATIONS: dict[str, Callable[[Stream], None]] = {
    "append": append, "close": Stream.close, "upkeep": upkeep, "acknowledge": acknowledge,
}  # fmt: skip


def prepared(store: Store, name: str) -> Stream:
    stream = Stream.create(store.uri(name), SCHEMA, storage_options=store.options, timeout=20)
    for _ in range(3):
        append(stream)
    acknowledge(stream)
    append(stream)
    return stream


def operate(environment: dict[str, str], uri: str, operation: str, die_at: int, counted: str) -> None:
    """Carry out `operation` and die at event number `die_at`, by a signal that nothing can catch."""
    os.environ.update(environment)
    seen: list[str] = []

    def count(event: Event) -> None:
        if len(seen) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(event.name)
        Path(counted).write_text("\n".join(seen))

    stream = Stream.open(uri, timeout=20)
    with listen(count):
        OPERATIONS[operation](stream)


def run(*arguments: object) -> int:
    process = processes().Process(target=operate, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def is_sound(stream: Stream, operation: str) -> None:
    """The operation has happened or has not; done again it has; and all rows are there once."""
    assert stream.verify(COLUMNS) == []
    OPERATIONS[operation](stream)
    if operation != "close":
        append(stream)
    assert stream.verify(COLUMNS) == []
    cursor = stream.describe().producers[0].cursor
    stored = stream.snapshot().to_table()["seq"].to_pylist()
    archive = Path(f"{stream.uri}.archive")
    if archive.exists():
        kept = Stream.open(archive).snapshot().to_table()["seq"].to_pylist()
        assert kept == list(range(len(kept)))
        stored = kept + [seq for seq in stored if seq >= len(kept)]
    assert stored == list(range(cursor))
    if operation == "close":
        with pytest.raises(StreamClosed):
            append(stream)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_death_at_each_event(local: Store, tmp_path: Path, operation: str) -> None:
    counted = tmp_path / "events"
    assert run({}, prepared(local, "whole").uri, operation, -1, str(counted)) == 0
    events = counted.read_text().split()
    if operation == "append":
        assert events[-5:] == ["staging", "staged", "committed", "verified", "acknowledged"]
    assert events
    for point in range(len(events)):
        stream = prepared(local, f"point-{point}")
        assert run({}, stream.uri, operation, point, str(counted)) == -signal.SIGKILL, events[point]
        is_sound(stream, operation)


def test_death_at_each_request_of_an_append_to_s3(s3: Store, tmp_path: Path) -> None:
    stream = prepared(s3, "requests")
    with proxied(s3.environment["AWS_ENDPOINT"]) as proxy:
        environment = s3.through(proxy.port).environment
        assert run(environment, stream.uri, "append", -1, str(tmp_path / "events")) == 0
        requests = [request.what for request in proxy.seen]
        assert requests.count("PUT _versions") == 2, "a registration and an append"
        for number in range(len(requests)):
            for moment in ("before", "after"):
                assert die_at_request(proxy, environment, stream, number, moment) == -signal.SIGKILL, requests[number]
                assert stream.verify(COLUMNS) == []
    is_sound(stream, "append")


def die_at_request(proxy: Proxy, environment: dict[str, str], stream: Stream, number: int, moment: str) -> int:
    process = processes().Process(target=operate, args=(environment, stream.uri, "append", -1, os.devnull))

    def kill(request: Request) -> None:
        if request.number == number:
            os.kill(process.pid, signal.SIGKILL)  # joining is for the one thread that started it
            raise Lost

    proxy.reset(**{moment: kill})
    process.start()
    process.join(60)
    proxy.reset()
    assert process.exitcode is not None
    return process.exitcode
