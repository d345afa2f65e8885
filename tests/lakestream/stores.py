"""Stores for the tests: a directory, and SeaweedFS's S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.seaweed import Seaweed

BUCKET = "streams"


@dataclass(frozen=True)
class Store:
    """Where streams are put, and the environment that a process needs to reach them."""

    kind: str
    root: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str] | None:
        return {key.lower(): value for key, value in self.environment.items()} or None

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}.lance"

    def through(self, port: int) -> Store:
        """The same store, reached through a proxy on `port`."""
        return Store(self.kind, self.root, self.environment | {"AWS_ENDPOINT": f"http://127.0.0.1:{port}"})


def store_in(server: Seaweed) -> Store:
    """The store in the server's bucket."""
    environment = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT": f"http://{server.address}", "ALLOW_HTTP": "true"}
    return Store("s3", f"s3://{server.bucket}", server.keys | environment)


@contextmanager
def seaweed(directory: Path) -> Iterator[Store]:
    """An S3 server over `directory` until the block ends."""
    server = Seaweed(directory, BUCKET)
    try:
        server.start()
        yield store_in(server)
    finally:
        server.kill()
