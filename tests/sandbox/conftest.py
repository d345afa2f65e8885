"""Sandboxes as they are: real processes, one driver for each module of tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import pytest

from posttrain.errors import UserError
from posttrain.sandbox import Result, SandboxSpec
from posttrain.sandbox.bubblewrap import BubblewrapDriver

T = TypeVar("T")
GATEWAY = "127.0.0.1:1"  # nobody listens there


class Boxes:
    """Runs one thing after another in one event loop. Specs are small unless a test says more."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.driver: BubblewrapDriver = self.run(self._open())

    async def _open(self) -> BubblewrapDriver:
        driver = BubblewrapDriver(gateway=GATEWAY)
        assert driver.line is not None  # started here, in the loop, so that any test may be the first to ask for it
        return driver

    def run(self, work: Awaitable[T]) -> T:
        async def waited() -> T:
            async with asyncio.timeout(60):
                return await work

        return self.runner.run(waited())

    def spec(self, **fields: Any) -> SandboxSpec:
        return SandboxSpec(**{"memory": "256Mi", "disk": "32Mi", "pids": 64, "wall_seconds": 60.0, **fields})

    def sh(self, script: str, *, timeout: float = 30, **fields: Any) -> Result:
        return self.exec(["sh", "-c", script], timeout=timeout, **fields)

    def python(self, code: str, *, timeout: float = 30, **fields: Any) -> Result:
        return self.exec(["python3", "-I", "-c", code], timeout=timeout, **fields)

    def exec(self, command: list[str], *, timeout: float = 30, **fields: Any) -> Result:
        async def one() -> Result:
            async with self.driver.sandbox(self.spec(**fields)) as sandbox:
                return await sandbox.exec(command, timeout=timeout)

        return self.run(one())

    def close(self) -> None:
        self.run(self.driver.close())
        self.runner.close()


@pytest.fixture(scope="module")
def boxes() -> Iterator[Boxes]:
    try:
        made = Boxes()
    except UserError as problem:
        pytest.skip(str(problem))
    yield made
    made.close()
