from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rollout.postgres import fresh_database, postgres

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind that the TaskServer keeps its state in."""
    if request.param == "sqlite":
        return str(tmp_path / "tasks.db")
    return fresh_database(request.getfixturevalue("postgres_server"), f"test{next(_numbers)}")
