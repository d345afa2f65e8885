"""The TaskServer's tables.

`due` is when the clock next concerns a task: the lease's end or the attempt's deadline, the deadline of one that
waits. `attempt` is the id of the open attempt, and only its result counts.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text, text

METADATA = MetaData()
LOCK = 0x7A5C5E17  # PostgreSQL's advisory lock of the TaskServer

TASKS = Table(
    "tasks",
    METADATA,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("key", String, unique=True),  # idempotency
    Column("asked", String, nullable=False),  # digest of what was submitted under the key
    Column("kind", String, nullable=False),
    Column("queue", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("payload", Text, nullable=False),
    Column("parent", String),
    Column("timeout", Float),
    Column("deadline", Float),
    Column("max_attempts", Integer, nullable=False),
    Column("submitted", Float, nullable=False),
    Column("state", String, nullable=False),
    Column("not_before", Float, nullable=False),
    Column("due", Float),
    Column("attempts", Integer, nullable=False),
    Column("attempt", String),
    Column("worker", String),
    Column("started", Float),
    Column("lease_expires", Float),
    Column("attempt_deadline", Float),
    Column("ended", Float),
    Column("result", String),  # digest
    Column("reason", Text),
)
_PENDING, _LEASED = text("state = 'pending'"), text("state = 'leased'")
Index("tasks_pending", TASKS.c.kind, TASKS.c.queue, TASKS.c.priority.desc(), TASKS.c.seq,
      sqlite_where=_PENDING, postgresql_where=_PENDING)  # fmt: skip
Index("tasks_leased", TASKS.c.kind, TASKS.c.queue, sqlite_where=_LEASED, postgresql_where=_LEASED)
Index("tasks_due", TASKS.c.due, sqlite_where=text("due IS NOT NULL"), postgresql_where=text("due IS NOT NULL"))
Index("tasks_attempt", TASKS.c.attempt)
Index("tasks_parent", TASKS.c.parent)
Index("tasks_ended", TASKS.c.ended)
Index("tasks_result", TASKS.c.result)

ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("id", String, primary_key=True),
    Column("task", String, nullable=False),
    Column("number", Integer, nullable=False),
    Column("worker", String, nullable=False),
    Column("request", String, nullable=False),  # of the lease call, which may be repeated
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("outcome", String),
    Column("result", String),
    Column("reason", Text),
)
Index("attempts_request", ATTEMPTS.c.request)
Index("attempts_task", ATTEMPTS.c.task)

RESULTS = Table("results", METADATA, Column("digest", String, primary_key=True), Column("value", Text, nullable=False))

QUEUES = Table(
    "queues",
    METADATA,
    Column("kind", String, primary_key=True),
    Column("queue", String, primary_key=True),
)
SHARES = Table(
    "shares",
    METADATA,
    Column("queue", String, primary_key=True),  # "" holds the virtual time itself
    Column("finish", Float, nullable=False),
)
DRAINED = Table("drained", METADATA, Column("kind", String, primary_key=True))  # "*": every kind
