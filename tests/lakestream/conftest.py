from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from posttrain.lakestream import Stream
from tests.lakestream.stores import Store, seaweed


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with seaweed(tmp_path_factory.mktemp("seaweed")) as store:
        yield store


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store("local", str(tmp_path / "streams"))


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.getfixturevalue(request.param)


SCHEMA = pa.schema(
    [
        pa.field("producer", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        ("text", pa.string()),
    ]
)


@pytest.fixture
def stream(local: Store) -> Stream:
    return Stream.create(local.uri("stream"), SCHEMA, timeout=20)
