"""The TaskServer's operations, each a part of a transaction that writes. What is decided comes from decisions.py.

Invariants: every operation may be repeated with the same effect as once; an attempt ends once, a task has one open
attempt at most, and a final state never changes; an operation that refuses has written nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, exists, func, insert, select, update

from posttrain.contract.digest import canonical, digest_bytes, digest_value
from posttrain.database import insert_new
from posttrain.group_commit import Refused
from posttrain.rollout.tasks.api import Lease, LeaseRequest, NewTask, Report, Reported, Submitted
from posttrain.rollout.tasks.decisions import after_outcome, choose, nested, overdue
from posttrain.rollout.tasks.model import Attempt, Candidate, Outcome, Share, State
from posttrain.rollout.tasks.settings import TaskServerSettings
from posttrain.rollout.tasks.tables import ATTEMPTS, DRAINED, QUEUES, RESULTS, SHARES, TASKS

VIRTUAL = ""  # the row of `shares` that holds the virtual time
EVERY = "*"
PURGED_AT_ONCE = 500

_Ending = tuple[Row[Any], Outcome, str | None, str]  # a task whose open attempt ends: how, the result's digest, why


@dataclass
class Effects:
    """What happened in an operation, for those who wait and for the metrics; told after the commit only."""

    submitted: list[str] = field(default_factory=list)  # kinds, one for each task
    leased: list[tuple[str, str, float]] = field(default_factory=list)  # (kind, queue, seconds waited)
    ended: list[tuple[str, str, State, float | None]] = field(default_factory=list)  # (task, kind, state, seconds)
    retried: list[str] = field(default_factory=list)  # kinds
    expired: list[str] = field(default_factory=list)  # kinds whose worker fell silent
    refused: list[str] = field(default_factory=list)  # kinds of late results


@dataclass
class Store:
    """`settings` decide limits and times; `connection` and `now` come with each call."""

    settings: TaskServerSettings

    def submit(self, db: Connection, tasks: Sequence[NewTask], now: float, effects: Effects) -> list[Submitted]:
        """Raises Refused: the kind drains, the key stands for another task, the parent is unknown or has ended."""
        asked = [digest_value(task.model_dump(mode="json")) for task in tasks]
        keys = {task.key for task in tasks if task.key is not None}
        known = {row.key: row for row in self._by(db, TASKS.c.key, keys)}
        new: dict[str, dict[str, Any]] = {}
        parents = {row.id: row for row in self._by(db, TASKS.c.id, {t.parent for t in tasks if t.parent})}
        drained, answers = set(db.scalars(select(DRAINED.c.kind))), []
        for task, digest in zip(tasks, asked, strict=True):
            if (there := known.get(task.key)) is not None:
                if there.asked != digest:
                    raise Refused(409, f"key {task.key!r} was given to another task ({there.id})")
                answers.append(Submitted(id=there.id, state=State(there.state), created=False))
                continue
            if task.key in new:
                if new[task.key]["asked"] != digest:
                    raise Refused(409, f"key {task.key!r} is given to two tasks of this request")
                answers.append(Submitted(id=new[task.key]["id"], state=State.pending, created=False))
                continue
            if drained & {EVERY, task.kind}:
                raise Refused(503, f"kind {task.kind!r} takes no new tasks: the server drains")
            row = self._new_row(task, digest, parents, now)
            new[task.key or row["id"]] = row
            answers.append(Submitted(id=row["id"], state=State.pending, created=True))
        if new:
            rows = list(new.values())
            insert_new(db, QUEUES, [{"kind": k, "queue": q} for k, q in {(r["kind"], r["queue"]) for r in rows}])
            db.execute(insert(TASKS), rows)
            effects.submitted += [row["kind"] for row in rows]
        return answers

    def lease(self, db: Connection, wanted: LeaseRequest, now: float, effects: Effects) -> list[Lease]:
        """The leases that the request got before, where it is repeated, else new ones."""
        if repeated := self._leases_of(db, wanted.request, now):
            return repeated
        candidates, free = self._candidates(db, wanted, now), self._free(db, wanted.kinds)
        if not candidates:
            return []
        finishes = {row.queue: row.finish for row in db.execute(select(SHARES))}
        queues = {c.queue for c in candidates}
        shares = {q: Share(self.settings.weights.get(q, 1.0), finishes.get(q, 0.0)) for q in queues}
        chosen = choose(candidates, shares, finishes.get(VIRTUAL, 0.0), free, wanted.count)
        if not chosen.taken:
            return []
        after = {queue: share.finish for queue, share in chosen.shares.items()} | {VIRTUAL: chosen.virtual}
        db.execute(delete(SHARES).where(SHARES.c.queue.in_(after)))
        db.execute(insert(SHARES), [{"queue": queue, "finish": finish} for queue, finish in after.items()])
        return self._give(db, [c.seq for c in chosen.taken], wanted, now, effects)

    def heartbeat(self, db: Connection, attempts: Sequence[str], now: float) -> list[str]:
        """Prolong the leases of `attempts`; those of them that are over."""
        open_ = self._open(db, attempts)
        prolonged = [
            {"a": row.attempt, "expires": now + self.settings.lease_seconds,
             "d": nested(now + self.settings.lease_seconds, row.attempt_deadline)}
            for row in open_.values()
        ]  # fmt: skip
        if prolonged:
            values: dict[str, Any] = {"lease_expires": bindparam("expires"), "due": bindparam("d")}
            db.execute(update(TASKS).where(TASKS.c.attempt == bindparam("a")).values(values), prolonged)
        return [attempt for attempt in attempts if attempt not in open_]

    def report(self, db: Connection, reports: Sequence[Report], now: float, effects: Effects) -> list[Reported]:
        """End attempts. A result counts where its attempt is the open one; repeated, it is said to be."""
        open_ = self._open(db, [r.attempt for r in reports])
        answers: list[Reported] = []
        ending: list[tuple[Row[Any], Report, str | None]] = []
        kept: dict[str, str] = {}
        for report in reports:
            row = open_.pop(report.attempt, None)
            if row is None:
                answers.append(self._late(db, report, ending, effects))
                continue
            digest, text = _encoded(report.result)
            if digest is not None:
                kept[digest] = text
            ending.append((row, report, digest))
            answers.append(Reported(attempt=report.attempt, status="accepted", state=None))
        insert_new(db, RESULTS, [{"digest": digest, "value": value} for digest, value in kept.items()])
        states = self._end_attempts(db, [(row, r.outcome, digest, r.reason) for row, r, digest in ending], now, effects)
        for answer in answers:
            if answer.state is None and answer.attempt in states:
                answer.state = states[answer.attempt]
        return answers

    def cancel(self, db: Connection, task: str, now: float, effects: Effects) -> tuple[State, int]:
        """End a task and its children as cancelled, unless they had ended. Raises Refused for an unknown one."""
        row = db.execute(select(TASKS).where(TASKS.c.id == task)).one_or_none()
        if row is None:
            raise Refused(404, f"there is no task {task!r}")
        before = len(effects.ended)
        if not State(row.state).final:
            self._finish(db, [(row, State.cancelled, None, "cancelled on request")], now, effects)
            return State.cancelled, len(effects.ended) - before
        return State(row.state), 0

    def sweep(self, db: Connection, now: float, effects: Effects) -> None:
        """What the clock does: leases and deadlines that are over."""
        rows = db.execute(select(TASKS).where(TASKS.c.due <= now).order_by(TASKS.c.due).limit(1000)).all()
        silent = [row for row in rows if row.state == State.leased]
        attempts: list[_Ending] = []
        for row in silent:
            outcome = overdue(row.lease_expires, row.attempt_deadline, now)
            if outcome is Outcome.timed_out:
                attempts.append((row, outcome, None, f"took longer than {row.attempt_deadline - row.started:g} s"))
            elif outcome is not None:
                effects.expired.append(row.kind)
                attempts.append((row, outcome, None, f"worker {row.worker} was not heard of in time"))
        self._end_attempts(db, attempts, now, effects)
        waited = [row for row in rows if row.state == State.pending]
        self._finish(db, [(row, State.timed_out, None, "its deadline passed") for row in waited], now, effects)

    def forgive(self, db: Connection, now: float) -> None:
        """Give every worker a full lease more: while the server was away nobody could be heard."""
        until = now + self.settings.lease_seconds
        rows = db.execute(select(TASKS).where(TASKS.c.state == State.leased, TASKS.c.lease_expires < until)).all()
        self.heartbeat(db, [row.attempt for row in rows], now)

    def drain(self, db: Connection, kind: str, on: bool) -> None:
        db.execute(delete(DRAINED).where(DRAINED.c.kind == kind))
        if on:
            db.execute(insert(DRAINED), [{"kind": kind}])

    def purge(self, db: Connection, now: float) -> int:
        """Remove tasks that ended too long ago, with their attempts, and results that no task names any more."""
        old = select(TASKS.c.id).where(TASKS.c.ended < now - self.settings.keep_seconds).limit(PURGED_AT_ONCE)
        ids = db.scalars(old).all()
        if ids:
            digests = set(db.scalars(select(ATTEMPTS.c.result).where(ATTEMPTS.c.task.in_(ids)))) - {None}
            db.execute(delete(ATTEMPTS).where(ATTEMPTS.c.task.in_(ids)))
            db.execute(delete(TASKS).where(TASKS.c.id.in_(ids)))
            named = exists().where(TASKS.c.result == RESULTS.c.digest)
            db.execute(delete(RESULTS).where(RESULTS.c.digest.in_(digests), ~named))
        return len(ids)

    # Parts of the operations.

    def _new_row(self, task: NewTask, digest: str, parents: dict[str, Row[Any]], now: float) -> dict[str, Any]:
        deadline = now + task.deadline if task.deadline is not None else None
        if task.parent is not None:
            parent = parents.get(task.parent)
            if parent is None:
                raise Refused(404, f"there is no task {task.parent!r} to be the parent")
            if State(parent.state).final:
                raise Refused(409, f"parent {task.parent!r} has ended ({parent.state})")
            deadline = nested(deadline, parent.deadline, parent.attempt_deadline)
        return {
            "id": uuid.uuid4().hex, "key": task.key, "asked": digest, "kind": task.kind, "queue": task.queue,
            "priority": task.priority, "payload": json.dumps(task.payload), "parent": task.parent,
            "timeout": task.timeout, "deadline": deadline, "max_attempts": task.max_attempts, "submitted": now,
            "state": State.pending.value, "not_before": now, "due": deadline, "attempts": 0,
        }  # fmt: skip

    def _by(self, db: Connection, column: Any, values: Iterable[Any]) -> list[Row[Any]]:
        wanted = list(values)
        return list(db.execute(select(TASKS).where(column.in_(wanted))).all()) if wanted else []

    def _open(self, db: Connection, attempts: Sequence[str]) -> dict[str, Row[Any]]:
        return {row.attempt: row for row in self._by(db, TASKS.c.attempt, set(attempts))}

    def _free(self, db: Connection, kinds: Sequence[str]) -> dict[str, int]:
        """Leases that may still be given for each kind that has a limit."""
        limited = [kind for kind in kinds if kind in self.settings.limits]
        if not limited:
            return {}
        counted = select(TASKS.c.kind, func.count()).where(TASKS.c.state == State.leased, TASKS.c.kind.in_(limited))
        running = {kind: count for kind, count in db.execute(counted.group_by(TASKS.c.kind))}
        return {kind: max(0, self.settings.limits[kind] - running.get(kind, 0)) for kind in limited}

    def _candidates(self, db: Connection, wanted: LeaseRequest, now: float) -> list[Candidate]:
        """The first of each queue; no queue can give more than all that are wanted."""
        found: list[Candidate] = []
        ready = (TASKS.c.state == State.pending, TASKS.c.not_before <= now)
        there = exists().where(TASKS.c.kind == QUEUES.c.kind, TASKS.c.queue == QUEUES.c.queue, *ready)
        for kind, queue in db.execute(select(QUEUES).where(QUEUES.c.kind.in_(wanted.kinds), there)):
            rows = db.execute(
                select(TASKS.c.seq, TASKS.c.priority)
                .where(TASKS.c.kind == kind, TASKS.c.queue == queue, *ready)
                .order_by(TASKS.c.priority.desc(), TASKS.c.seq)
                .limit(wanted.count)
            )
            found += [Candidate(seq, kind, queue, priority) for seq, priority in rows]
        return found

    def _give(self, db: Connection, seqs: list[int], wanted: LeaseRequest, now: float, effects: Effects) -> list[Lease]:
        rows = {row.seq: row for row in self._by(db, TASKS.c.seq, seqs)}
        taken, opened, leases = [], [], []
        expires = now + self.settings.lease_seconds
        for row in (rows[seq] for seq in seqs):
            attempt, number = uuid.uuid4().hex, row.attempts + 1
            until = nested(now + row.timeout if row.timeout is not None else None, row.deadline)
            taken.append({"s": row.seq, "n": number, "a": attempt, "until": until, "d": nested(expires, until)})
            opened.append({"id": attempt, "task": row.id, "number": number, "worker": wanted.worker,
                           "request": wanted.request, "started": now})  # fmt: skip
            leases.append(self._lease(row, attempt, number, until, now))
            effects.leased.append((row.kind, row.queue, now - row.not_before))
        values = {
            "state": State.leased.value, "attempts": bindparam("n"), "attempt": bindparam("a"),
            "worker": wanted.worker, "started": now, "lease_expires": expires,
            "attempt_deadline": bindparam("until"), "due": bindparam("d"),
        }  # fmt: skip
        db.execute(update(TASKS).where(TASKS.c.seq == bindparam("s")).values(values), taken)
        db.execute(insert(ATTEMPTS), opened)
        return leases

    def _lease(self, row: Row[Any], attempt: str, number: int, until: float | None, now: float) -> Lease:
        return Lease(
            attempt=attempt, task=row.id, number=number, kind=row.kind, queue=row.queue,
            payload=json.loads(row.payload), seconds_left=None if until is None else max(0.0, until - now),
            lease_seconds=self.settings.lease_seconds,
        )  # fmt: skip

    def _leases_of(self, db: Connection, request: str, now: float) -> list[Lease]:
        attempts = db.scalars(
            select(ATTEMPTS.c.id).where(ATTEMPTS.c.request == request, ATTEMPTS.c.outcome.is_(None))
        ).all()
        return [
            self._lease(row, row.attempt, row.attempts, row.attempt_deadline, now)
            for row in self._open(db, attempts).values()
        ]

    def _late(
        self, db: Connection, report: Report, ending: Sequence[tuple[Row[Any], Report, str | None]], effects: Effects
    ) -> Reported:
        """The answer to a report whose attempt is not open: a repetition, or too late."""
        twice = next((r for _, r, _ in ending if r.attempt == report.attempt), None)
        if twice is not None:
            same = twice.outcome == report.outcome and twice.result == report.result
            return Reported(attempt=report.attempt, status="repeated" if same else "refused", state=None)
        known = db.execute(
            select(ATTEMPTS, TASKS.c.state, TASKS.c.kind)
            .join(TASKS, TASKS.c.id == ATTEMPTS.c.task)
            .where(ATTEMPTS.c.id == report.attempt)
        ).one_or_none()
        if known is None:
            return Reported(attempt=report.attempt, status="unknown", state=None)
        same = known.outcome == report.outcome.value and known.result == _encoded(report.result)[0]
        if not same:
            effects.refused.append(known.kind)
        status: Any = "repeated" if same else "refused"
        return Reported(attempt=report.attempt, status=status, state=State(known.state))

    def _end_attempts(
        self, db: Connection, attempts: Sequence[_Ending], now: float, effects: Effects
    ) -> dict[str, State]:
        """End open attempts; the tasks' states after that, by attempt."""
        states, again, final = {}, [], []
        for row, outcome, digest, reason in attempts:
            known = Attempt(row.id, row.attempts, row.max_attempts, row.deadline)
            decided = after_outcome(known, outcome, now, self.settings.backoff)
            states[row.attempt] = decided.state
            if decided.state is State.pending:
                again.append({"s": row.seq, "b": decided.not_before, "r": reason})
                effects.retried.append(row.kind)
            else:
                final.append((row, decided.state, digest, reason))
        if attempts:
            self._close(db, [(row.attempt, o.value, digest, reason) for row, o, digest, reason in attempts], now)
        if again:
            values: dict[str, Any] = {
                "state": State.pending.value, "not_before": bindparam("b"), "due": TASKS.c.deadline,
                "reason": bindparam("r"), "attempt": None, "lease_expires": None, "attempt_deadline": None,
            }  # fmt: skip
            db.execute(update(TASKS).where(TASKS.c.seq == bindparam("s")).values(values), again)
        self._finish(db, final, now, effects)
        return states

    def _finish(
        self, db: Connection, tasks: Sequence[tuple[Row[Any], State, str | None, str]], now: float, effects: Effects
    ) -> None:
        """Give tasks their final state, and cancel the children that they leave."""
        if not tasks:
            return
        values = {"state": bindparam("st"), "ended": now, "due": None, "attempt": None, "result": bindparam("d"),
                  "reason": bindparam("r"), "lease_expires": None, "attempt_deadline": None}  # fmt: skip
        rows = [{"s": row.seq, "st": state.value, "d": digest, "r": reason} for row, state, digest, reason in tasks]
        db.execute(update(TASKS).where(TASKS.c.seq == bindparam("s")).values(values), rows)
        # An attempt that was reported is closed already; this closes those that are cut off.
        cut = [(row.attempt, state.value, None, reason) for row, state, _, reason in tasks if row.attempt]
        self._close(db, cut, now)
        for row, state, _, _ in tasks:
            effects.ended.append((row.id, row.kind, state, now - row.started if row.attempt else None))
        orphans = select(TASKS).where(
            TASKS.c.parent.in_([row.id for row, *_ in tasks]), TASKS.c.state.in_([State.pending, State.leased])
        )
        self._finish(
            db, [(row, State.cancelled, None, "its parent ended") for row in db.execute(orphans).all()], now, effects
        )

    def _close(self, db: Connection, attempts: Sequence[tuple[str, str, str | None, str]], now: float) -> None:
        if attempts:
            values = {"ended": now, "outcome": bindparam("o"), "result": bindparam("d"), "reason": bindparam("r")}
            where = (ATTEMPTS.c.id == bindparam("a"), ATTEMPTS.c.outcome.is_(None))
            rows = [{"a": a, "o": outcome, "d": digest, "r": reason} for a, outcome, digest, reason in attempts]
            db.execute(update(ATTEMPTS).where(*where).values(values), rows)


def _encoded(result: Any) -> tuple[str | None, str]:
    """A result's digest and its JSON text, the same for equal values; no digest for none."""
    text = canonical(result)
    return None if result is None else digest_bytes(text.encode()), text
