"""A real PostgreSQL server of the tests' own, on a free port, removed afterwards."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.processes import free_port


def binaries() -> Path | None:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    where = found[-1] if found else shutil.which("postgres")
    return Path(where).resolve().parent if where and (Path(where).resolve().parent / "initdb").exists() else None


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a server's database `postgres`. PostgreSQL refuses to run as root, so root starts it as another."""
    where = binaries()
    if where is None:
        pytest.skip("no PostgreSQL server (on Debian: apt install postgresql)")
    root = Path(tempfile.mkdtemp(prefix="posttrain-postgres-"))
    user: dict[str, object] = {}
    if os.getuid() == 0:
        known = pwd.getpwnam("postgres")
        os.chown(root, known.pw_uid, known.pw_gid)
        user = {"user": known.pw_uid, "group": known.pw_gid, "extra_groups": []}
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    server = None
    try:
        subprocess.run(
            [where / "initdb", "-D", root / "data", "-A", "trust", "-U", "tests", "-E", "UTF8", "--no-locale", "-N"],
            check=True, capture_output=True, cwd=root, env=environment, **user,
        )  # type: ignore[call-overload]  # fmt: skip
        server = subprocess.Popen(
            [where / "postgres", "-D", root / "data", "-p", str(port), "-k", root, "-c", "listen_addresses=127.0.0.1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root, env=environment, **user,
        )  # type: ignore[call-overload]  # fmt: skip
        _wait(port)
        yield f"postgresql://tests@127.0.0.1:{port}/postgres"
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # at once: the data goes with it
            server.wait()
        shutil.rmtree(root, ignore_errors=True)


def _wait(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f"postgresql://tests@127.0.0.1:{port}/postgres", connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def fresh_database(server: str, name: str) -> str:
    """The URL of an empty name space on `server`: a schema, which is made in no time."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
    return f"{server}?options=-csearch_path%3D{name}"
