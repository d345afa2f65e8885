"""At least 300 answers, right and wrong, in many notations: each gets the verdict that is known for it.

`EXPLAINED` are those that a verifier judges otherwise, each with its reason; one that comes out as known after all must
leave the list.
"""

from __future__ import annotations

from collections import Counter

from posttrain.reward.model import Question, Status
from tests.reward.known_answers import FACTS, Fact

EXPLAINED = {
    (r"\ln 2", r"\log(2)"): "math-verify reads \\log as the logarithm to the base 10",
    ("(a+b)^2", "a^2+b^2+2ab"): "math-verify takes letters behind a last number for a unit, and drops them",
}


def completion(fact: Fact, given: str) -> str:
    return given if fact.verifier == "json_schema" else f"So it is.\n<answer>{given}</answer>"


def test_each_known_answer_gets_its_verdict(running):
    cases = [(fact, given, True) for fact in FACTS for given in fact.right]
    cases += [(fact, given, False) for fact in FACTS for given in fact.wrong]
    assert len(cases) >= 300 and Counter(right for *_, right in cases).most_common()[-1][1] >= 100
    questions = [Question(f.verifier, completion(f, given), f.answer, f.metadata) for f, given, _ in cases]
    findings = running.find_all(questions)
    misses = {}
    for (fact, given, right), finding in zip(cases, findings, strict=True):
        if finding.status is not Status.scored or finding.correct is not right:
            misses[fact.answer, given] = (fact.verifier, right, finding.status.value, dict(finding.evidence))
    assert misses.keys() == EXPLAINED.keys(), {k: v for k, v in misses.items() if k not in EXPLAINED}


def test_every_fact_has_a_source_and_answers_of_both_kinds():
    assert all(fact.source and fact.right and fact.wrong for fact in FACTS)
