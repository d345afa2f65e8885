"""Databases of services: SQLite in WAL mode for one machine, PostgreSQL for a cluster, under the same SQL.

Invariants: a transaction that writes has the database to itself (SQLite: BEGIN IMMEDIATE; PostgreSQL: one advisory
lock), so that what is read in it still holds when it commits; what was committed survives a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, Row, Table, create_engine, event, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from posttrain.errors import UserError

_BUSY_SECONDS = 60.0


def connect(database: str, *, field: str) -> Engine:
    """An engine for a path (SQLite) or a URL. Raises UserError naming `field` where it cannot be reached."""
    try:
        url = make_url(database if "://" in database else f"sqlite:///{Path(database).absolute()}")
    except ArgumentError:
        raise UserError("is no database", field=field, remedy="write a path, or postgresql://USER@HOST/NAME") from None
    if url.get_backend_name() == "sqlite":
        if url.database:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False})
        event.listen(engine, "connect", _prepare_sqlite)
    else:
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        engine = create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})
    try:
        with engine.connect():
            pass
    except OperationalError as problem:
        shown, why = url.render_as_string(hide_password=True), str(problem.orig).strip().splitlines()[0]
        raise UserError(f"cannot be opened: {why}", field=field, value=shown) from None
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin below, not when the driver thinks so
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-65536"):
        connection.execute(f"PRAGMA {pragma}")


@contextmanager
def writing(engine: Engine, lock: int) -> Iterator[Connection]:
    """A transaction that writes; on PostgreSQL it waits for all others that hold the advisory lock `lock`."""
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": lock})
        yield connection


def create_tables(engine: Engine, metadata: MetaData, lock: int) -> None:
    """Create what is lacking. Two services may start at once."""
    with writing(engine, lock) as connection:
        metadata.create_all(connection)


def insert_new(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert `rows`, leaving those out whose key is there already."""
    dialect: Any = {"sqlite": sqlite, "postgresql": postgresql}[connection.dialect.name]
    if rows:
        connection.execute(dialect.insert(table).on_conflict_do_nothing(), rows)


def page(
    engine: Engine, table: Table, after: int, limit: int, equal: Mapping[str, str | None]
) -> tuple[list[Row[Any]], int | None]:
    """Rows of `table` in the order of their `seq`, from behind `after`, and where the next page begins (None at the
    end). `equal` gives columns their values; None is any."""
    query = select(table).where(table.c.seq > after).order_by(table.c.seq).limit(limit + 1)
    for name, value in equal.items():
        if value is not None:
            query = query.where(table.c[name] == value)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    return list(rows[:limit]), rows[limit - 1].seq if len(rows) > limit else None
