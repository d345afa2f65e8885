"""Ended trajectories to the `experience` stream and their ledgers to a stream and a file, each exactly once.

Invariants: trajectories are numbered as they end and appended in that order, the number being the producers' cursor:
so after a crash a stream itself says which of the journal's files are in it already. One thread appends; several
trajectories that ended meanwhile go into one commit.
"""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from posttrain.llmm import ir, trace
from posttrain.llmm.gateway.journal import CallFailed, CallPassed, Closed, Entry, Journal, Opened, TurnTaken, read
from posttrain.llmm.gateway.origins import with_origins
from posttrain.llmm.ir import arrow, climb
from posttrain.llmm.recording import Note, record
from posttrain.llmm.tokens.history import Sampled, Taken, rows_of, tokens_of

if TYPE_CHECKING:
    from posttrain.lakestream import Producer

JSON = dict[str, Any]
log = logging.getLogger(__name__)


def trajectory_of(entries: list[Entry], *, every_turn: bool = False) -> ir.Trajectory:
    """The trajectory that a journal tells of. Tokens stand at the turns that none goes on from, where each sampled
    token is in the loss once; with `every_turn` each turn has those up to its end."""
    opened = next(entry for entry in entries if isinstance(entry, Opened))
    closed = next(entry for entry in entries if isinstance(entry, Closed))
    taken = [entry for entry in entries if isinstance(entry, TurnTaken)]
    facts = [Taken(t.turn.parent, t.new, Sampled(t.ids, t.logprobs, t.policy)) for t in taken]
    if every_turn:
        tokens = {index: tokens_of(facts, index) for index in range(len(facts))}
    else:
        tokens = {row.turns[-1]: row.tokens for row in rows_of(facts)}
    turns = tuple(
        msgspec.structs.replace(turn, tokens=tokens.get(index)) for index, turn in enumerate(with_origins(taken))
    )
    return ir.Trajectory(
        id=opened.id, turns=turns, task=opened.task, group=opened.group, started=opened.started,
        seconds=closed.at - opened.started,
        outcome=ir.Outcome(status=closed.status, reward=closed.reward, details=closed.details),
    )  # fmt: skip


def ledger_of(entries: list[Entry]) -> list[trace.Event]:
    """The ledger of a journal: the turns, and the calls that are none."""
    opened = next(entry for entry in entries if isinstance(entry, Opened))
    loose = [entry for entry in entries if isinstance(entry, CallFailed | CallPassed)]
    notes = {
        entry.call.id: Note(failure=entry.error, vendor=entry.vendor)
        if isinstance(entry, CallFailed)
        else Note(vendor=entry.vendor, conversions=entry.conversions)
        for entry in loose
    }
    notes |= {e.turn.call.id: Note(losses=e.losses) for e in entries if isinstance(e, TurnTaken) and e.losses}
    others = climb.lift(opened.id, [entry.call for entry in loose])
    trajectory = trajectory_of(entries, every_turn=True)
    return record(trajectory, "openai_chat", others=others, notes=notes, metadata=opened.metadata)


class Keeper:
    """Takes closed trajectories to the stream `experience` and their ledgers to the stream `ledgers`, in a thread;
    without those URIs to the ledgers' files alone.

    `failure` is what ended it, if something did.
    """

    def __init__(self, journal: Journal, name: str, *, experience: str = "", ledgers: str = ""):
        self._journal = journal
        self._experience = _producer(experience, name, "experience") if experience else None
        self._ledgers = _producer(ledgers, name, "ledgers") if ledgers else None
        self._queue: queue.SimpleQueue[tuple[int, Path, Future[int]] | None] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="experience", daemon=True)
        self._thread.start()

    @property
    def cursor(self) -> int:
        """The number of the last trajectory that is in every stream."""
        return min((_reached(each) for each in (self._experience, self._ledgers) if each is not None), default=0)

    def settle(self, path: Path) -> None:
        """What is in the streams needs nothing but its ledger's file."""
        self._journal.settle(path, ledger_of(list(read(path))))

    def put(self, number: int, path: Path) -> Future[int]:
        """The future holds the number of turns, once they are committed."""
        future = Future[int]()
        self._queue.put((number, path, future))
        return future

    def close(self) -> None:
        """Append what was put, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ending = False
        while not ending:
            taken = [self._queue.get()]
            while not self._queue.empty():
                taken.append(self._queue.get())
            ending = None in taken
            batch = [item for item in taken if item is not None]
            if batch:
                self._append(batch)

    def _append(self, batch: list[tuple[int, Path, Future[int]]]) -> None:
        try:
            if self.failure is not None:
                raise self.failure
            ended = [(number, list(read(path))) for number, path, _ in batch]
            if self._experience is not None and (new := _beyond(self._experience, ended)):
                self._experience.append(arrow.table([trajectory_of(entries) for _, entries in new]), new[-1][0])
            told: dict[int, list[trace.Event]] = {}
            if self._ledgers is not None and (new := _beyond(self._ledgers, ended)):
                told = {number: ledger_of(entries) for number, entries in new}
                rows = [row for ledger in told.values() for row in trace.stream_rows(ledger)]
                self._ledgers.append(trace.stream_table(rows), new[-1][0])
            for (number, path, future), (_, entries) in zip(batch, ended, strict=True):
                self._journal.settle(path, told.get(number) or ledger_of(entries))
                future.set_result(sum(isinstance(entry, TurnTaken) for entry in entries))
        except Exception as problem:  # told to whoever waits, and by /health; the journal keeps the trajectories
            log.error("trajectories cannot be kept", exc_info=problem)
            self.failure = problem
            for _, _, future in batch:
                if not future.done():
                    future.set_exception(problem)


def _producer(uri: str, name: str, kind: str) -> Producer:
    from posttrain.lakestream import EXPERIENCE, Stream

    return Stream.create(uri, EXPERIENCE if kind == "experience" else trace.stream_schema()).producer(name)


def _reached(producer: Producer) -> int:
    return producer.cursor if isinstance(producer.cursor, int) else 0


def _beyond(producer: Producer, ended: list[tuple[int, list[Entry]]]) -> list[tuple[int, list[Entry]]]:
    """Those that are not in its stream: a crash may have come between one stream and the other."""
    return [(number, entries) for number, entries in ended if number > _reached(producer)]
