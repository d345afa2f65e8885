"""`composite`: a weighted mean of other verifiers' rewards. One part without a reward leaves the whole without."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Any

from posttrain.contract.digest import digest_value
from posttrain.reward.model import FULL_MARKS, Finding, Problem, Question, Status
from posttrain.reward.settings import Lane
from posttrain.reward.verifiers.base import Tools

_MOST = 20


@dataclass(frozen=True)
class Part:
    name: str
    weight: float
    question: Question


class Composite:
    """metadata: {"parts": [{"verifier", "weight", "name", "answer", "metadata"}]}; answer and metadata of a part are
    the question's own unless given. It holds no turn of its own while its parts wait for theirs."""

    lane, usual, prepare = "", Lane(), None

    async def version(self, question: Question, tools: Tools) -> str:
        """One for the parts' together."""
        return "1+" + digest_value([await tools.version(part.question) for part in parts(question)])[7:19]

    async def verify(self, question: Question, tools: Tools) -> Finding:
        wanted = parts(question)
        found = await asyncio.gather(*(tools.verdict(part.question) for part in wanted))
        for part, finding in zip(wanted, found, strict=True):
            if finding.reward is None:
                raise Problem(finding.status, f"part {part.name}: {finding.evidence.get('error', finding.status)}")
        rewards = {part.name: finding.reward or 0.0 for part, finding in zip(wanted, found, strict=True)}
        whole = sum(part.weight for part in wanted)
        reward = sum(part.weight * rewards[part.name] for part in wanted) / whole
        evidence = {part.name: dict(finding.evidence) for part, finding in zip(wanted, found, strict=True)}
        formed = all(finding.well_formed is not False for finding in found)
        return Finding(Status.scored, reward, reward >= FULL_MARKS, formed, rewards, {"parts": evidence})


def parts(question: Question) -> list[Part]:
    """Raises Problem for parts that make no sense."""
    given = question.metadata.get("parts")
    if not isinstance(given, list) or not 0 < len(given) <= _MOST:
        raise Problem(Status.invalid_answer, f"metadata.parts is no list of 1 to {_MOST} parts")
    own = {key: value for key, value in question.metadata.items() if key != "parts"}
    made = [_part(question, own, index, part) for index, part in enumerate(given)]
    if len({part.name for part in made}) < len(made):
        raise Problem(Status.invalid_answer, "two of metadata.parts have one name")
    return made


def _part(question: Question, own: dict[str, Any], index: int, part: Any) -> Part:
    where = f"metadata.parts[{index}]"
    if not isinstance(part, dict) or part.keys() - {"verifier", "weight", "name", "answer", "metadata"}:
        raise Problem(Status.invalid_answer, f"{where} is no part")
    verifier, weight = part.get("verifier"), part.get("weight", 1.0)
    if not isinstance(verifier, str) or verifier == "composite":
        raise Problem(Status.invalid_answer, f"{where}.verifier is no verifier that can be a part")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise Problem(Status.invalid_answer, f"{where}.weight is no number above 0")
    answer, metadata, name = part.get("answer", question.answer), part.get("metadata", own), part.get("name", verifier)
    if not isinstance(answer, str) or not isinstance(metadata, dict) or not isinstance(name, str):
        raise Problem(Status.invalid_answer, f"{where} has an answer, metadata or name of the wrong type")
    return Part(name, float(weight), replace(question, verifier=verifier, answer=answer, metadata=metadata))
