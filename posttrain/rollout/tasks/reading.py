"""What the TaskServer shows: reads that change nothing, each in a transaction of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, Row, func, select

from posttrain.database import page
from posttrain.rollout.tasks.api import AttemptView, Ended, QueueView, TaskDetail, TaskList, TaskView
from posttrain.rollout.tasks.model import State
from posttrain.rollout.tasks.tables import ATTEMPTS, DRAINED, RESULTS, TASKS


class Reader:
    """Safe to use from many threads."""

    def __init__(self, engine: Engine):
        self._engine = engine

    def task(self, task: str) -> TaskDetail | None:
        with self._engine.connect() as db:
            row = db.execute(select(TASKS).where(TASKS.c.id == task)).one_or_none()
            if row is None:
                return None
            tried = select(ATTEMPTS).where(ATTEMPTS.c.task == task).order_by(ATTEMPTS.c.number)
            history = [_fields(AttemptView, attempt) for attempt in db.execute(tried)]
        return TaskDetail(
            **_fields(TaskView, row).model_dump(), payload=json.loads(row.payload), history=history
        )  # fmt: skip

    def tasks(self, after: int, limit: int, **equal: str | None) -> TaskList:
        """In the order of submission, from behind `after`; `equal` gives kind, queue, state, parent."""
        rows, following = page(self._engine, TASKS, after, limit, equal)
        return TaskList(tasks=[_fields(TaskView, row) for row in rows], next=following)

    def ended(self, ids: Sequence[str]) -> tuple[list[Ended], set[str]]:
        """Those of `ids` that have ended, with their results, and those of which nothing is known."""
        query = (
            select(TASKS.c.id, TASKS.c.state, TASKS.c.reason, RESULTS.c.value)
            .join(RESULTS, RESULTS.c.digest == TASKS.c.result, isouter=True)
            .where(TASKS.c.id.in_(ids))
        )
        with self._engine.connect() as db:
            rows = db.execute(query).all()
        ended = [
            Ended(id=r.id, state=r.state, reason=r.reason, result=None if r.value is None else json.loads(r.value))
            for r in rows
            if State(r.state).final
        ]
        return ended, set(ids) - {row.id for row in rows}

    def result(self, digest: str) -> str | None:
        """The JSON text kept under `digest`."""
        with self._engine.connect() as db:
            return db.scalar(select(RESULTS.c.value).where(RESULTS.c.digest == digest))

    def queues(self, now: float) -> list[QueueView]:
        """Queues that have work, by kind."""
        counted = (
            select(TASKS.c.kind, TASKS.c.queue, TASKS.c.state, func.count().label("n"), func.min(TASKS.c.submitted))
            .where(TASKS.c.state.in_([State.pending, State.leased]))
            .group_by(TASKS.c.kind, TASKS.c.queue, TASKS.c.state)
        )
        views: dict[tuple[str, str], QueueView] = {}
        with self._engine.connect() as db:
            for kind, queue, state, count, oldest in db.execute(counted):
                empty = QueueView(kind=kind, queue=queue, pending=0, leased=0, oldest_seconds=0.0)
                view = views.setdefault((kind, queue), empty)
                if state == State.pending:
                    view.pending, view.oldest_seconds = count, max(0.0, now - oldest)
                else:
                    view.leased = count
        return [views[key] for key in sorted(views)]

    def ready(self, kinds: Sequence[str], now: float) -> dict[str, int]:
        """How many tasks of each of `kinds` could start now."""
        where = (TASKS.c.state == State.pending, TASKS.c.not_before <= now, TASKS.c.kind.in_(kinds))
        with self._engine.connect() as db:
            return {
                k: n for k, n in db.execute(select(TASKS.c.kind, func.count()).where(*where).group_by(TASKS.c.kind))
            }

    def due(self, now: float) -> bool:
        with self._engine.connect() as db:
            return db.scalar(select(func.count()).where(TASKS.c.due <= now)) != 0

    def counts(self) -> tuple[list[str], dict[str, int]]:
        """The drained kinds, and how many tasks are in each state."""
        with self._engine.connect() as db:
            drained = sorted(db.scalars(select(DRAINED.c.kind)))
            return drained, {s: n for s, n in db.execute(select(TASKS.c.state, func.count()).group_by(TASKS.c.state))}


def _fields(model: type[Any], row: Row[Any]) -> Any:
    return model(**{name: getattr(row, name) for name in model.model_fields})
