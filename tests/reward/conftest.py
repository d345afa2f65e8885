from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from posttrain.reward.engine import Engine
from posttrain.reward.model import Finding, Question
from posttrain.reward.settings import RewardSettings

Find = Callable[..., Finding]


class Running:
    """An engine in a loop of its own, so that its children serve all tests of a module."""

    def __init__(self, settings: RewardSettings):
        self._runner = asyncio.Runner()
        self._runner.run(asyncio.sleep(0))
        self.engine = self._runner.run(self._made(settings))

    async def _made(self, settings: RewardSettings) -> Engine:
        return Engine(settings)

    def find(self, verifier: str, completion: str, answer: str = "", **metadata: Any) -> Finding:
        return self.find_all([Question(verifier, completion, answer, metadata)])[0]

    def find_all(self, questions: list[Question]) -> list[Finding]:
        async def every() -> list[Finding]:
            return await asyncio.gather(*(self.engine.find(question) for question in questions))

        return self._runner.run(every())

    def close(self) -> None:
        self._runner.run(self.engine.close())
        self._runner.close()


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    engine = Running(RewardSettings())
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def find(running: Running) -> Find:
    return running.find
