"""Questions to findings. Each kind of verifier has a lane: its own turns, processes and time.

Invariants: a verifier that is slow, dies or never ends costs its lane and nobody else; whatever happens in one is a
status, and only `scored` has a reward; nothing is remembered here (the service does that).
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from posttrain.reward.isolated import MEMORY, START_LIMIT, TIME_LIMIT, Child, GaveUp
from posttrain.reward.model import Finding, Problem, Question, Status
from posttrain.reward.settings import Lane, RewardSettings
from posttrain.reward.verifiers.base import Tools, Verifier
from posttrain.reward.verifiers.composite import Composite
from posttrain.reward.verifiers.function import functions
from posttrain.reward.verifiers.judge import Judge
from posttrain.reward.verifiers.preference import Preference
from posttrain.reward.verifiers.rules import Exact, JsonSchema, Math, Numeric, ReasoningGym, Regex
from posttrain.reward.verifiers.unit_tests import UnitTests

log = logging.getLogger(__name__)


class Busy(Exception):
    """The lane has as many waiting as it may."""


class Turns:
    """A lane at work: so many at once, each in a thread of its own with a child of its own, both made when needed."""

    def __init__(self, name: str, lane: Lane, longest: int, path: str, prepare: str | None):
        self.name, self.lane, self.waiting = name, lane, 0
        self._longest = longest
        self._clock = lane.seconds if prepare is None else None  # else each question's time is taken by its child
        self._turns = asyncio.Semaphore(lane.concurrency)
        self._threads = ThreadPoolExecutor(lane.concurrency, thread_name_prefix=f"lane-{name}")
        own = name.startswith(("function:", "preference:"))  # not an answer's time but the verifier's, by the clock
        heavy = name.startswith("preference:")
        self._children = [
            Child(seconds=0 if own else TIME_LIMIT, memory=0 if heavy else MEMORY, path=path, prepare=prepare or "")
            for _ in range(lane.concurrency)
        ]

    async def run(self, verifier: Verifier, question: Question, tools: Tools) -> Finding:
        if self.waiting >= self._longest:
            raise Busy(self.name)
        self.waiting += 1
        try:
            async with self._turns, asyncio.timeout(self._clock):
                return await verifier.verify(question, tools)
        except TimeoutError:
            raise Problem(Status.timed_out, f"took longer than {self.lane.seconds:g} s") from None
        finally:
            self.waiting -= 1

    async def ask(self, *question: Any) -> Any:
        """Put `question` to the next child that is free."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question)

    def _ask(self, question: tuple[Any, ...]) -> Any:
        child = self._children.pop()
        try:
            loads = question[0] in ("known", "function_version")
            return child.ask(*question, limit=START_LIMIT if loads else self.lane.seconds)
        finally:
            self._children.append(child)

    def close(self) -> None:
        for child in self._children:
            child.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class Engine:
    """To be used in one event loop, and closed there."""

    def __init__(self, settings: RewardSettings):
        self._settings = settings
        self.verifiers: dict[str, Verifier] = {
            "exact": Exact(), "numeric": Numeric(), "math": Math(), "regex": Regex(), "json_schema": JsonSchema(),
            "composite": Composite(), "unit_tests": UnitTests(self._driver), "reasoning_gym": ReasoningGym(),
        }  # fmt: skip
        self.verifiers |= functions(settings.functions)
        self.verifiers |= {f"judge:{name}": Judge(name, judge) for name, judge in settings.judges.items()}
        self.verifiers |= {f"preference:{n}": Preference(n, path) for n, path in settings.preference_models.items()}
        self.turns: dict[str, Turns] = {}

    async def version(self, question: Question) -> str:
        """Of the verifier that would answer. Raises Problem for an unknown one."""
        verifier = self._verifier(question)
        try:
            return await verifier.version(question, self._tools(verifier))
        except GaveUp as problem:
            raise Problem(Status.verifier_error, str(problem)) from None

    async def find(self, question: Question) -> Finding:
        """What is found; never raises but Busy."""
        try:
            verifier = self._verifier(question)
            tools = self._tools(verifier)
            if not verifier.lane:
                return await verifier.verify(question, tools)
            return await self._lane(verifier).run(verifier, question, tools)
        except Problem as problem:
            return Finding(problem.status, evidence={"error": problem.detail} | problem.evidence)
        except GaveUp as problem:
            status = Status.timed_out if problem.why == "stuck" else Status.verifier_error
            return Finding(status, evidence={"error": str(problem)})
        except Busy:
            raise
        except Exception as problem:  # a verifier's defect must not become an answer's, nor end the service
            log.exception("verifier %s failed", question.verifier)
            return Finding(Status.verifier_error, evidence={"error": f"{type(problem).__name__}: {problem}"[:2000]})

    async def close(self) -> None:
        for verifier in self.verifiers.values():
            if close := getattr(verifier, "close", None):
                await close()
        for turns in self.turns.values():
            await asyncio.to_thread(turns.close)

    def _verifier(self, question: Question) -> Verifier:
        name = "reasoning_gym" if question.verifier.startswith("reasoning_gym:") else question.verifier
        found = self.verifiers.get(name)
        if found is None or question.verifier == "reasoning_gym":
            raise Problem(Status.not_found, f"there is no verifier {question.verifier!r}")
        return found

    def _tools(self, verifier: Verifier) -> Tools:
        return Tools(ask=self._lane(verifier).ask, verdict=self.find, version=self.version)

    def _lane(self, verifier: Verifier) -> Turns:
        name = verifier.lane
        if name not in self.turns:
            lane = self._settings.lanes.get(name) or verifier.usual
            s = self._settings
            self.turns[name] = Turns(name, lane, s.longest_queue, s.function_path, verifier.prepare)
        return self.turns[name]

    def _driver(self) -> Any:
        from posttrain.sandbox import open_driver

        return open_driver(self._settings.sandbox_driver)
