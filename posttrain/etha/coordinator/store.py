"""The coordinator's state on disk: SQLite in WAL mode, a row for each thing, written where it has changed.

Invariant: what was answered for is on disk before the answer. Leases are not: whoever is there after a restart has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Column, Engine, Integer, LargeBinary, MetaData, String, Table, Text, delete, insert, select

from posttrain.database import connect, create_tables, insert_new, writing
from posttrain.errors import UserError
from posttrain.etha.coordinator.state import Rank, Replica, Source, State, Version

METADATA = MetaData()
LOCK = 0xE78A0001  # PostgreSQL's advisory lock of the coordinator
_THINGS = Table(
    "things",
    METADATA,
    Column("kind", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)
_BLOBS = Table(
    "blobs", METADATA, Column("digest", String, primary_key=True), Column("value", LargeBinary, nullable=False)
)
_EVENTS = Table("events", METADATA, Column("seq", Integer, primary_key=True), Column("value", Text, nullable=False))
_KINDS = {"sources": Source, "ranks": Rank, "replicas": Replica, "versions": Version}
_NUMBERS = ("counter", "target", "highest", "moving", "checks")
_KEPT_EVENTS = 10_000


class Store:
    """Raises UserError where the database cannot be opened."""

    def __init__(self, database: str):
        self._engine: Engine = connect(database, field="database")
        if self._engine.dialect.name != "sqlite":
            remedy = "write a path: there is one coordinator, and it has the state in memory"
            raise UserError("must be SQLite", field="database", remedy=remedy)
        create_tables(self._engine, METADATA, LOCK)

    def load(self) -> State:
        with self._engine.connect() as db:
            rows = db.execute(select(_THINGS)).all()
        found: dict[str, Any] = {kind: {} for kind in _KINDS}
        for kind, name, value in rows:
            if kind in _KINDS:
                key = int(name) if kind == "versions" else name
                found[kind][key] = msgspec.json.decode(value, type=_KINDS[kind])
            else:
                found[name] = msgspec.json.decode(value)
        return State(**found)

    def save(self, before: State, after: State, events: Iterable[dict[str, object]]) -> None:
        """Write what has changed between two states."""
        gone: list[tuple[str, str]] = []
        written: list[dict[str, str]] = []
        for kind in _KINDS:
            old, new = getattr(before, kind), getattr(after, kind)
            gone += [(kind, str(name)) for name in old if name not in new]
            written += [_row(kind, name, value) for name, value in new.items() if old.get(name) != value]
        for name in _NUMBERS:
            if getattr(before, name) != getattr(after, name):
                written.append(_row("numbers", name, getattr(after, name)))
        told = [{"value": msgspec.json.encode(event).decode()} for event in events]
        if not gone and not written and not told:
            return
        with writing(self._engine, LOCK) as db:
            for kind, name in [*gone, *((row["kind"], row["name"]) for row in written)]:
                db.execute(delete(_THINGS).where(_THINGS.c.kind == kind, _THINGS.c.name == name))
            if written:
                db.execute(insert(_THINGS), written)
            if told:
                last = db.execute(insert(_EVENTS).returning(_EVENTS.c.seq), told).scalars().all()[-1]
                db.execute(delete(_EVENTS).where(_EVENTS.c.seq <= last - _KEPT_EVENTS))

    def events(self, after: int, limit: int) -> list[dict[str, object]]:
        query = select(_EVENTS).where(_EVENTS.c.seq > after).order_by(_EVENTS.c.seq).limit(limit)
        with self._engine.connect() as db:
            return [{"seq": seq, **msgspec.json.decode(value)} for seq, value in db.execute(query)]

    def keep(self, digest: str, value: bytes) -> None:
        """Keep a layout or a list of wants, which is never changed."""
        with writing(self._engine, LOCK) as db:
            insert_new(db, _BLOBS, [{"digest": digest, "value": value}])

    def blob(self, digest: str) -> bytes:
        """Raises KeyError."""
        with self._engine.connect() as db:
            found = db.execute(select(_BLOBS.c.value).where(_BLOBS.c.digest == digest)).scalar()
        if found is None:
            raise KeyError(digest)
        return found

    def close(self) -> None:
        self._engine.dispose()


def _row(kind: str, name: object, value: object) -> dict[str, str]:
    return {"kind": kind, "name": str(name), "value": msgspec.json.encode(value).decode()}
