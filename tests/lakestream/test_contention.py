"""Producers of one machine wait for each other, and never for one that does not go on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from posttrain.lakestream import Stream
from posttrain.lakestream.contention import LONGEST, alone
from posttrain.lakestream.events import Event, listen
from tests.lakestream.worker import processes, rows
from tests.processes import wait_until


@pytest.fixture(autouse=True)
def _own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_one_is_in_at_a_time_and_other_streams_do_not_mind() -> None:
    inside, most = 0, []

    def enter() -> None:
        nonlocal inside
        for _ in range(20):
            with alone("a", longest=30) as granted:
                inside += 1
                most.append((granted, inside))
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(most) == {(True, 1): 80}
    with alone("a"), alone("b") as other:
        assert other


def hold(directory: str, uri: str) -> None:
    import tempfile

    tempfile.tempdir = directory
    with alone(uri):
        os.kill(os.getpid(), signal.SIGSTOP)


def test_a_stopped_holder_delays_the_others_and_keeps_nobody_out(stream: Stream, tmp_path: Path) -> None:
    producer = stream.producer("a")
    producer.append(rows("a", 0, 1), 1)
    holder = processes().Process(target=hold, args=(str(tmp_path), stream.uri), daemon=True)
    holder.start()
    wait_until(lambda: _stopped(holder.pid), "it goes on", 30, every=0.01)
    started = time.monotonic()
    producer.append(rows("a", 1, 1), 2)
    assert time.monotonic() - started >= LONGEST
    holder.kill()
    holder.join()
    with alone(stream.uri, longest=0) as granted:
        assert granted, "death lets the next one in"


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_machine_without_a_place_for_locks_commits_without(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with alone(stream.uri) as granted:
        assert not granted
    stream.producer("a").append(rows("a", 0, 1), 1)
    assert stream.snapshot().rows == 1


def test_producers_of_one_machine_do_not_refuse_each_other(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain.lakestream.producer.alone", lambda uri: alone(uri, longest=30))
    events: list[Event] = []
    producers = [stream.producer(f"p{i}") for i in range(4)]

    def append(number: int) -> None:
        for i in range(10):
            producers[number].append(rows(f"p{number}", i, 1), i + 1)

    threads = [threading.Thread(target=append, args=(i,)) for i in range(4)]
    with listen(events.append):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counted = Counter(event.name for event in events)
    assert (counted["committed"], counted["retried"]) == (40, 0), "without this some are refused twice in a row"
    assert stream.verify({"producer": "producer", "sequence": "seq"}) == []
