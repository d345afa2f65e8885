"""`function:MODULE:NAME`: a function of the user's, in a child of its own.

It is given `{"completion", "answer", "metadata", "extracted"}` and returns a number, or `{"reward", "evidence"}`. What
it raises, and what it takes too long over, is the verifier's error: no reward.
"""

from __future__ import annotations

from collections.abc import Collection

from posttrain.reward.model import Finding, Problem, Question, Status
from posttrain.reward.settings import Lane
from posttrain.reward.verifiers.base import Tools, asked, extract


class Function:
    """One of the functions that the settings name."""

    usual, prepare = Lane(concurrency=1), ""

    def __init__(self, name: str):
        self._name, self.lane = name, f"function:{name}"
        self._version: str | None = None

    async def version(self, question: Question, tools: Tools) -> str:
        if self._version is None:
            found = await tools.ask("function_version", self._name)
            if not isinstance(found, str):
                raise Problem(Status.not_found, f"{self._name} cannot be loaded: {found['evidence']['error']}")
            self._version = found
        return self._version

    async def verify(self, question: Question, tools: Tools) -> Finding:
        extracted, formed = extract(question)
        given = {
            "completion": question.completion, "answer": question.answer, "metadata": dict(question.metadata),
            "extracted": extracted,
        }  # fmt: skip
        return await asked(
            tools, "function", self._name, given, extracted=extracted or "", well_formed=formed, answers=False
        )


def functions(names: Collection[str]) -> dict[str, Function]:
    return {f"function:{name}": Function(name) for name in names}
