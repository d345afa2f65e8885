"""The index of verdicts: what was asked and answered, and what is still to go into the stream.

Invariants: a final verdict is stored once and never changes, whichever replica was first; one that is not final is
replaced when it is asked again; each trajectory's scored verdict has a place in the order of its replica (`seq`), so
that the stream's cursor says what it holds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    func,
    select,
)

from posttrain.database import insert_new
from posttrain.reward.answers import AnswerForm
from posttrain.reward.api import Ask, Difference, Verdict
from posttrain.reward.model import FINAL, Finding, Question, Status

METADATA = MetaData()
LOCK = 0x7E3A2D01  # PostgreSQL's advisory lock of the reward service
_SEQ = BigInteger().with_variant(Integer, "sqlite")

VERDICTS = Table(
    "verdicts",
    METADATA,
    Column("seq", _SEQ, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, unique=True),
    Column("question", String, nullable=False),  # the key without the version
    Column("verifier", String, nullable=False),
    Column("version", String, nullable=False),
    Column("status", String, nullable=False),
    Column("reward", Float(53)),
    Column("correct", Boolean),
    Column("well_formed", Boolean),
    Column("components", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("seconds", Float(53), nullable=False),
    Column("asked", Text, nullable=False),  # the question itself, to ask it again
)
Index("verdicts_verifier", VERDICTS.c.verifier, VERDICTS.c.version, VERDICTS.c.seq)
Index("verdicts_question", VERDICTS.c.question)

TRAJECTORIES = Table(
    "trajectories",
    METADATA,
    Column("seq", _SEQ, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False),
    Column("trajectory", String, nullable=False),
    Column("task", String, nullable=False),
    Column("replica", String, nullable=False),
    UniqueConstraint("key", "trajectory"),
)
Index("trajectories_replica", TRAJECTORIES.c.replica, TRAJECTORIES.c.seq)


def find(engine: Engine, keys: Sequence[str]) -> dict[str, Row[Any]]:
    """Final verdicts by key."""
    query = select(VERDICTS).where(VERDICTS.c.key.in_(keys), VERDICTS.c.status.in_(FINAL))
    with engine.connect() as db:
        return {row.key: row for row in db.execute(query)}


def keep(
    db: Connection, key: str, version: str, question: Question, finding: Finding, seconds: float, ask: Ask,
    replica: str,
) -> Row[Any]:  # fmt: skip
    """Store a verdict, and who asked for it; the one that is there, where another came first."""
    db.execute(delete(VERDICTS).where(VERDICTS.c.key == key, VERDICTS.c.status.not_in(FINAL)))
    asked = asdict(question) | {"metadata": dict(question.metadata)}
    row = {
        "key": key, "question": question.digest, "verifier": question.verifier, "version": version,
        "status": finding.status.value, "reward": finding.reward, "correct": finding.correct,
        "well_formed": finding.well_formed, "components": json.dumps(dict(finding.components)),
        "evidence": json.dumps(dict(finding.evidence), default=str), "seconds": seconds, "asked": json.dumps(asked),
    }  # fmt: skip
    insert_new(db, VERDICTS, [row])
    there = db.execute(select(VERDICTS).where(VERDICTS.c.key == key)).one()
    note(db, key, there.status, ask, replica)
    return there


def note(db: Connection, key: str, status: str, ask: Ask, replica: str) -> None:
    """Give the asker's trajectory its place on the way to the stream; only a reward goes there."""
    if status == Status.scored:
        row = {"key": key, "trajectory": ask.trajectory, "task": ask.task, "replica": replica}
        insert_new(db, TRAJECTORIES, [row])


def noted(engine: Engine, pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of (key, trajectory) that have their place."""
    query = select(TRAJECTORIES.c.key, TRAJECTORIES.c.trajectory).where(TRAJECTORIES.c.key.in_({k for k, _ in pairs}))
    with engine.connect() as db:
        return {(row.key, row.trajectory) for row in db.execute(query)}


def unstreamed(engine: Engine, replica: str, after: int, limit: int) -> list[Row[Any]]:
    """What this replica has yet to append, behind its cursor: (seq, trajectory, task) with the verdict's columns."""
    columns = [column for column in VERDICTS.c if column.name not in ("seq", "asked")]
    query = (
        select(TRAJECTORIES.c.seq, TRAJECTORIES.c.trajectory, TRAJECTORIES.c.task, *columns)
        .join(VERDICTS, VERDICTS.c.key == TRAJECTORIES.c.key)
        .where(TRAJECTORIES.c.replica == replica, TRAJECTORIES.c.seq > after)
        .order_by(TRAJECTORIES.c.seq)
        .limit(limit)
    )
    with engine.connect() as db:
        return list(db.execute(query).all())


def left(engine: Engine, replica: str, after: int) -> int:
    query = select(func.count()).where(TRAJECTORIES.c.replica == replica, TRAJECTORIES.c.seq > after)
    with engine.connect() as db:
        return db.scalar(query) or 0


def counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as db:
        return {s: n for s, n in db.execute(select(VERDICTS.c.status, func.count()).group_by(VERDICTS.c.status))}


def pairs(engine: Engine, verifier: str, one: str, other: str, limit: int) -> list[Difference]:
    """Questions that were answered under both versions of a verifier, and came out otherwise."""
    left_, right = VERDICTS.alias(), VERDICTS.alias()
    query = (
        select(left_.c.key, left_.c.status, left_.c.reward, right.c.status, right.c.reward)
        .join(right, (right.c.question == left_.c.question) & (right.c.version == other))
        .where(left_.c.verifier == verifier, left_.c.version == one)
        .order_by(left_.c.seq)
    )
    found = []
    with engine.connect() as db:
        for key, status, reward, other_status, other_reward in db.execute(query):
            if (status, reward) != (other_status, other_reward):
                found.append(
                    Difference(
                        key=key, verifier=verifier, version=one, status=status, reward=reward, other_version=other,
                        other_status=other_status, other_reward=other_reward,
                    )
                )  # fmt: skip
            if len(found) == limit:
                break
    return found


def question_of(row: Row[Any]) -> Question:
    asked = json.loads(row.asked)
    return Question(**asked | {"form": AnswerForm(**asked["form"])})


def verdict_of(row: Row[Any], *, task: str, trajectory: str, stored: bool) -> Verdict:
    return Verdict(
        key=row.key, task=task, trajectory=trajectory, verifier=row.verifier, version=row.version, status=row.status,
        reward=row.reward, correct=row.correct, well_formed=row.well_formed,
        components=json.loads(row.components), evidence=json.loads(row.evidence), seconds=row.seconds, stored=stored,
    )  # fmt: skip
