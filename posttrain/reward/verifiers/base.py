"""What a verifier is, and what it is given to work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

from posttrain.reward.answers import taken
from posttrain.reward.isolated import TIME_LIMIT, GaveUp
from posttrain.reward.model import FULL_MARKS, Finding, Problem, Question, Status
from posttrain.reward.settings import Lane

Ask = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Tools:
    """`ask` puts a question to a child process of the verifier's lane; `verdict` asks another verifier, `version` for
    another's version."""

    ask: Ask
    verdict: Callable[[Question], Awaitable[Finding]]
    version: Callable[[Question], Awaitable[str]]


class Verifier(Protocol):
    """`lane` names whom it shares its processes and its turn with; `usual` is that lane unless settings say otherwise.
    `prepare` is what the lane's processes load before the first question; None where it puts none to a process, so
    that the lane's time is taken by the clock around it.

    `version` changes whenever the same question may come out otherwise.
    """

    @property
    def lane(self) -> str: ...
    @property
    def usual(self) -> Lane: ...
    @property
    def prepare(self) -> str | None: ...

    async def version(self, question: Question, tools: Tools) -> str: ...

    async def verify(self, question: Question, tools: Tools) -> Finding:
        """Raises Problem where there is no reward to be had."""
        ...


def extract(question: Question) -> tuple[str | None, bool]:
    """What is taken as the answer, and whether it stood where it should."""
    return taken(question.verifier, question.answer, question.completion, question.form)


def scored(reward: float, extracted: str | None, well_formed: bool, **evidence: Any) -> Finding:
    return Finding(
        Status.scored, reward=float(reward), correct=reward >= FULL_MARKS, well_formed=well_formed,
        evidence={"extracted": extracted} | evidence,
    )  # fmt: skip


def nothing_found() -> Finding:
    return scored(0.0, None, False, note="no answer was found")


async def asked(tools: Tools, *question: Any, extracted: str, well_formed: bool, answers: bool = True) -> Finding:
    """A child's answer as a finding. With `answers` the text is at fault when its processor time is up, since how
    long it takes depends on nothing else; without, the verifier is."""
    try:
        found = await tools.ask(*question)
    except GaveUp as problem:
        if problem.why == "limit" and answers:
            note = f"given up after {TIME_LIMIT:g} s of processor time"
            return scored(0.0, extracted, well_formed, note=note)
        status = Status.verifier_error if problem.why == "crashed" else Status.timed_out
        raise Problem(status, str(problem), extracted=extracted) from None
    if "status" in found:
        raise Problem(Status(found["status"]), found["evidence"]["error"], extracted=extracted)
    return scored(found["reward"], extracted, well_formed, **found["evidence"])


def library(name: str) -> str:
    """A version that changes with a library's."""
    return f"1+{name}-{version(name)}"
