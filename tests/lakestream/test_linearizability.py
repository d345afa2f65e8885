"""Register, append and close are linearizable: over recorded histories of concurrent clients, faults included."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from posttrain.lakestream import Policy, Producer, ProducerFenced, StoreUnavailable, Stream, StreamClosed
from tests.lakestream.linearizability import EMPTY, Operation, linearize, stream
from tests.lakestream.proxy import Lost, Request, proxied
from tests.lakestream.stores import Store
from tests.lakestream.worker import SCHEMA, rows

INFINITE = float("inf")
OK, A1 = "ok", ("append", "a", 1, 1)


def op(start: float, end: float, call: tuple, answer: object = None) -> Operation:
    return Operation(start, end, call, answer)


@pytest.mark.parametrize(
    ("history", "possible"),
    [
        ([op(0, 1, ("register", "a"), (1, None)), op(2, 3, A1, OK), op(4, 5, ("register", "a"), (2, 1))], True),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, 3, A1, OK), op(4, 5, ("register", "a"), (2, None))], False),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, 9, ("register", "a"), (2, 1)), op(3, 4, A1, OK)], True),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, 3, ("register", "a"), (2, None)), op(4, 5, A1, OK)], False),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, 3, ("close",), OK), op(4, 5, A1, OK)], False),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, 5, ("close",), OK), op(3, 4, A1, OK)], True),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, 3, ("register", "a"), (1, None))], False),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, INFINITE, A1), op(4, 5, ("register", "a"), (2, None))], True),
        ([op(0, 1, ("register", "a"), (1, None)), op(2, INFINITE, A1), op(4, 5, ("register", "a"), (2, 1))], True),
        ([op(0, 1, ("register", "a"), (1, None)), op(6, INFINITE, A1), op(4, 5, ("register", "a"), (2, 1))], False),
        ([op(0, 1, ("close",), OK), op(2, 3, ("read",), EMPTY)], False),
    ],
)  # fmt: skip
def test_the_checker_tells_possible_histories_from_impossible_ones(history: list[Operation], possible: bool) -> None:
    assert (linearize(history, EMPTY, stream) is not None) == possible


class Recorder:
    """What the clients did, with the times at which they called and were answered."""

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self.failures: list[BaseException] = []
        self._lock = threading.Lock()

    def record(self, call: tuple, act: Callable[[], object]) -> object:
        started = time.monotonic()
        try:
            answer = act()
        except ProducerFenced as fenced:
            assert fenced.landed is not None
            answer = OK if fenced.landed else "fenced"
        except StreamClosed:
            answer = "closed"
        except StoreUnavailable:
            with self._lock:
                self.history.append(Operation(started, INFINITE, call))
            return None
        with self._lock:
            self.history.append(Operation(started, time.monotonic(), call, answer))
        return answer


HASTY = 0.05  # seconds after which a client gives up, so that its operation may or may not have happened
GIVEN_UP = 2  # operations at most for a client: each doubles the orders that the checker must try


def client(recorder: Recorder, uri: str, options: dict | None, seed: str, steps: int) -> None:
    """Registers, appends, reads and at last maybe closes, in an order that the seed gives."""
    choose = random.Random(seed)
    patient = Stream.open(uri, storage_options=options, timeout=120)
    hasty = Stream.open(uri, storage_options=options, timeout=HASTY)
    mine: dict[str, Producer] = {}
    given_up = 0
    for step in range(steps):
        name, what = choose.choice("ab"), choose.choice(["register", "append", "append", "append", "read"])
        opened = hasty if choose.random() < 0.4 and given_up < GIVEN_UP else patient
        if what == "read":
            recorder.record(("read",), lambda: state_of(patient))
        elif what == "register" or name not in mine:

            def register(name: str = name, opened: Stream = opened) -> object:
                mine[name] = opened.producer(name)
                return mine[name].epoch, mine[name].cursor

            mine.pop(name, None)
            given_up += recorder.record(("register", name), register) is None
        else:
            producer, cursor = mine[name], cursor_of(mine[name], step, seed)

            def append(producer: Producer = producer, cursor: str = cursor, step: int = step) -> object:
                producer.append(rows(producer.name, step, 1), cursor)
                return OK

            answer = recorder.record(("append", name, producer.epoch, cursor), append)
            given_up += answer is None
            if answer != OK or producer.cursor != cursor:
                del mine[name]  # fenced, or in doubt: a new holder finds the truth
        if step == steps - 2 and seed.endswith("/0"):
            recorder.record(("close",), lambda: patient.close() or OK)


def cursor_of(producer: Producer, number: int, seed: str) -> str:
    """A cursor that comes after the holder's last, and that no other client makes."""
    last = producer.cursor or ""
    return f"{int(last.split(' ')[0] or 0) + 1:06d} {seed}.{number}"


def state_of(opened: Stream) -> object:
    controls = opened._controls()
    held = (h.body for h in controls.producers.values())
    return controls.stream.body.closed, tuple(sorted((p.name, p.epoch, p.cursor) for p in held))


def run(recorder: Recorder, uri: str, options: dict | None, seed: int, *, clients: int, steps: int) -> None:
    def guarded(number: int) -> None:
        try:
            client(recorder, uri, options, f"{seed}/{number}", steps)
        except BaseException as problem:
            recorder.failures.append(problem)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def upkeep(opened: Stream) -> Iterator[None]:
    done = threading.Event()

    def keep() -> None:
        while not done.wait(0.02):
            opened.maintain(Policy(keep_versions=0))

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def unlucky(seed: int) -> Callable[[Request], None]:
    choose = random.Random(seed)
    lock = threading.Lock()

    def lose(request: Request) -> None:
        with lock:
            lost = choose.random() < 0.04
        if lost:
            raise Lost

    return lose


@pytest.mark.parametrize("seed", range(6))
def test_histories_on_a_directory(local: Store, seed: int) -> None:
    opened, recorder = Stream.create(local.uri("history"), SCHEMA), Recorder()
    with upkeep(opened) if seed % 2 else nullcontext():
        run(recorder, opened.uri, None, seed, clients=4, steps=10)
    assert not recorder.failures
    recorder.record(("read",), lambda: state_of(opened))
    assert linearize(recorder.history, EMPTY, stream) is not None, recorder.history
    assert opened.verify() == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_histories_on_a_store_that_loses_answers(s3: Store, seed: int) -> None:
    opened = Stream.create(s3.uri(f"history-{seed}"), SCHEMA, storage_options=s3.options)
    recorder = Recorder()
    with proxied(s3.environment["AWS_ENDPOINT"]) as proxy:
        options = s3.through(proxy.port).options or {}
        few = {"client_max_retries": "0", "client_retry_timeout": "1"}  # so that the faults reach the library
        proxy.reset(**{"after" if seed % 2 else "before": unlucky(seed)})
        with upkeep(opened):
            run(recorder, opened.uri, options | few, seed, clients=3, steps=10)
    assert not recorder.failures
    recorder.record(("read",), lambda: state_of(opened))
    assert linearize(recorder.history, EMPTY, stream) is not None, recorder.history
    assert opened.verify() == []
