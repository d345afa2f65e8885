"""`preference:NAME`: a reward model's score of the conversation, in a child of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from posttrain.contract.digest import digest_tree
from posttrain.reward.model import Finding, Problem, Question, Status
from posttrain.reward.settings import Lane
from posttrain.reward.verifiers.base import Tools, asked


class Preference:
    """metadata: {"messages": the conversation before the answer} or {"question": text}."""

    usual, prepare = Lane(concurrency=1, seconds=600.0), "preference"

    def __init__(self, name: str, directory: str):
        self._directory, self.lane = directory, f"preference:{name}"
        self._version: str | None = None

    async def version(self, question: Question, tools: Tools) -> str:
        if self._version is None:
            if not Path(self._directory, "config.json").is_file():
                raise Problem(Status.not_found, f"no model in {self._directory}")
            self._version = "1+" + digest_tree(Path(self._directory))[7:19]
        return self._version

    async def verify(self, question: Question, tools: Tools) -> Finding:
        before = question.metadata.get("messages", [{"role": "user", "content": question.metadata.get("question")}])
        if not isinstance(before, list) or not all(_is_message(m) for m in before):
            raise Problem(Status.invalid_answer, "metadata.messages is no conversation, or metadata.question no text")
        messages = [*before, {"role": "assistant", "content": question.completion}]
        found = await asked(
            tools, "preference", self._directory, messages, extracted="", well_formed=True, answers=False
        )
        return replace(found, correct=None)


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))
