"""The store loses answers, holds requests back, goes away. Rows land once, and an append that returns has landed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.lakestream import Policy, StoreUnavailable, Stream, StreamError
from posttrain.lakestream.events import listen
from tests.lakestream.proxy import Lost, Proxy, Request, proxied
from tests.lakestream.stores import Store
from tests.lakestream.worker import SCHEMA, rows


@pytest.fixture
def proxy(s3: Store) -> Iterator[Proxy]:
    with proxied(s3.environment["AWS_ENDPOINT"]) as between:
        yield between


class Line:
    """A stream on S3, seen straight and through a proxy, with one producer behind the proxy."""

    def __init__(self, s3: Store, proxy: Proxy, name: str):
        self.proxy = proxy
        self.straight = Stream.create(s3.uri(name), SCHEMA, storage_options=s3.options)
        self.behind = Stream.open(s3.uri(name), storage_options=s3.through(proxy.port).options, timeout=30)
        self.producer = self.behind.producer("a")
        self.append()

    def append(self, count: int = 5):
        first = self.producer.cursor or 0
        return self.producer.append(rows("a", first, count), first + count)

    def check(self, count: int) -> None:
        assert self.straight.verify({"producer": "producer", "sequence": "seq"}) == []
        assert self.straight.snapshot().to_table()["seq"].to_pylist() == list(range(count))


def requests_of_an_append(line: Line) -> list[Request]:
    line.append()
    line.proxy.reset()
    line.append()
    return list(line.proxy.seen)


def test_whatever_answer_is_lost_the_rows_land_once(s3: Store, proxy: Proxy) -> None:
    line = Line(s3, proxy, "lost-answers")
    requests = requests_of_an_append(line)
    assert {"PUT data", "PUT _versions"} <= {request.what for request in requests}
    for number in range(len(requests)):

        def lose(request: Request, number: int = number) -> None:
            if request.number == number:
                raise Lost

        proxy.reset(after=lose)
        assert line.append().cursor == 5 * (4 + number)
    proxy.reset()
    line.check(5 * (3 + len(requests)))


def test_an_outage_at_any_request_is_waited_out(s3: Store, proxy: Proxy) -> None:
    line = Line(s3, proxy, "outage")
    requests = requests_of_an_append(line)
    for number in range(len(requests)):

        def go_away(request: Request, number: int = number) -> None:
            if request.number == number:
                proxy.refuse = True
                threading.Timer(0.3, setattr, (proxy, "refuse", False)).start()

        proxy.reset(after=go_away)
        line.append()
    line.check(5 * (3 + len(requests)))


def test_a_stream_is_opened_and_made_once_its_store_is_back(s3: Store, proxy: Proxy) -> None:
    through = (s3.through(proxy.port).options or {}) | {"client_max_retries": "0"}
    for what in (Stream.create, lambda uri, _, **rest: Stream.open(uri, **rest)):
        proxy.refuse = True
        with pytest.raises(StoreUnavailable, match=r"^s3://streams/away.lance: gave up after 1 s: "):
            what(s3.uri("away"), SCHEMA, storage_options=through, timeout=1)
        threading.Timer(1.5, setattr, (proxy, "refuse", False)).start()
        assert what(s3.uri("away"), SCHEMA, storage_options=through).uri == s3.uri("away")


def test_a_store_that_refuses_for_good_is_not_waited_for(s3: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    started = time.monotonic()
    for opened in (
        lambda: Stream.create("s3://nobucket/x.lance", SCHEMA, storage_options=s3.options),
        lambda: Stream.create(tmp_path / "file", SCHEMA),
        lambda: Stream.open(tmp_path / "file"),
    ):
        with pytest.raises(StreamError):
            opened()
    assert time.monotonic() - started < 30


def test_an_append_given_up_is_recognised_when_the_store_is_back(s3: Store, proxy: Proxy) -> None:
    """The manifest's put arrives, its answer does not, and the store is gone for longer than the append waits."""
    line = Line(s3, proxy, "given-up")
    line.producer = line.behind.producer("a", timeout=2)

    def vanish(request: Request) -> None:
        if request.what == "PUT _versions":
            proxy.refuse = True

    proxy.reset(after=vanish)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"gave up after 2 s|refused"):
        line.append()
    assert time.monotonic() - started < 60
    proxy.reset()
    proxy.refuse = False
    before = line.straight.describe().version
    committed = line.producer.append(rows("a", 5, 5), 10)  # the same append again
    assert committed.cursor == 10
    assert line.straight.describe().version == before, "it had landed, so nothing was committed again"
    assert (committed.end - committed.first, line.producer.cursor) == (5, 10)
    line.append()
    line.check(15)


def test_a_put_on_a_version_that_was_cleaned_up_is_no_commit(s3: Store, proxy: Proxy) -> None:
    """The ghost: the put is held back while others commit that version number and it is cleaned up."""
    line = Line(s3, proxy, "ghost")
    held, go = threading.Event(), threading.Event()

    def hold(request: Request) -> None:
        if request.what == "PUT _versions" and not held.is_set():
            held.set()
            assert go.wait(30)

    proxy.reset(before=hold)
    events: list[str] = []
    answers: list = []
    with listen(lambda event: events.append(event.name) if event.fields.get("producer") == "a" else None):
        appending = threading.Thread(target=lambda: answers.append(line.append()))
        appending.start()
        assert held.wait(30)
        other = line.straight.producer("b")
        for i in range(3):
            other.append(rows("b", i, 1), i + 1)
        cleaned = line.straight.maintain(Policy(keep_versions=0))
        assert cleaned.removed_versions > 3
        go.set()
        appending.join(60)
    assert events.count("committed") == 2, "Lance took the ghost for a commit; it was seen through and done again"
    assert answers[0].cursor == 10
    assert line.straight.verify({"producer": "producer", "sequence": "seq"}) == []
    assert line.straight.snapshot().rows == 13
    line.straight.maintain(Policy(keep_versions=0))  # takes the ghost's files, and nothing of the second try
    assert sorted(line.straight.snapshot().to_table()["seq"].to_pylist()) == sorted([*range(10), *range(3)])
