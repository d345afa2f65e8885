"""Every requirement of a verification by itself: what breaks it, and that nothing else is said then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.evaluation.schema import Result
from posttrain.reward.score import Verdict
from posttrain.serving.checks import Asked, judge
from posttrain.serving.client import Reply
from posttrain.serving.requirements import Requirements
from posttrain.serving.verification import spread


def recorded(number: int, correct: bool, well_formed: bool = True) -> Result:
    return Result(
        id=f"r{number}", tier="easy", sample=0, prompt="p", messages="[]", completion=f"<answer>{number}</answer>",
        tokens=4, finish_reason="stop", correct=correct, well_formed=well_formed, extracted=str(number), answer="1",
        verifier="exact", metadata="{}",
    )  # fmt: skip


def same(number: int, correct: bool) -> Asked:
    """A prompt that is answered as it was in the evaluation, in a tenth of a second."""
    was = recorded(number, correct)
    return Asked(was, Reply(was.completion, 4, "stop", 0.1), Verdict(correct, True, was.extracted))


def changed(asked: Asked, correct: bool) -> Asked:
    return replace(asked, verdict=Verdict(correct, True, "other"))


def reasons(asked: list[Asked], *, greedy: bool = True, repeated=(("a", "a"),), **required) -> tuple[str, ...]:
    return judge(asked, repeated, 2.0, Requirements(**required), greedy=greedy).reasons


GOOD = [same(n, n % 2 == 0) for n in range(40)]


def test_the_evaluated_model_passes_and_is_measured():
    found = judge(GOOD, [("a", "a")], 2.0, Requirements(), greedy=True)
    assert found.reasons == () and found.agreement == 1.0 and found.accuracy == found.recorded_accuracy == 0.5
    assert found.tokens_per_second == 80.0 and found.latency_p50_ms == pytest.approx(100)


def test_another_answer_the_second_time():
    (reason,) = reasons(GOOD, repeated=(("a", "a"), ("a", "b")))
    assert reason == "1 of 2 prompts had another answer the second time, at temperature 0"


def test_wrong_answers_that_are_other_wrong_answers():
    odd = [changed(a, False) if n % 2 else a for n, a in enumerate(GOOD)]
    (reason,) = reasons(odd)
    assert reason.startswith("only 50% of the answers are those of the evaluation")
    assert not reasons(odd, greedy=False)


def test_right_answers_that_moved_to_other_prompts():
    moved = [changed(a, not a.recorded.correct) for a in GOOD]
    assert any(r == "of 20 prompts that the evaluation saw answered rightly, 0 are now" for r in reasons(moved))


@pytest.mark.parametrize("served", [False, True])
def test_an_accuracy_that_chance_does_not_explain_in_either_direction(served):
    (reason,) = reasons([changed(a, served) for a in GOOD], greedy=False)
    assert "is not within the evaluation's interval" in reason


def test_a_format_that_was_lost():
    lost = [replace(a, verdict=a.verdict._replace(well_formed=False)) for a in GOOD]
    (reason,) = reasons(lost)
    assert reason.startswith("only 0.0% of the answers are well formed")


def test_empty_answers_and_slow_ones():
    empty = [replace(GOOD[0], reply=Reply("", 0, "stop", 0.1)), *GOOD[1:]]
    assert reasons(empty) == ("1 of 40 answers are empty or broken off",)
    (slow,) = reasons(GOOD, max_latency_p99_ms=50)
    assert slow == "99 % of the answers took up to 100 ms, 50 ms are allowed"


@given(st.integers(1, 200), st.integers(1, 100))
def test_prompts_are_spread_over_the_set_without_repeating(rows, count):
    chosen = spread([recorded(n, True) for n in range(rows)], count)
    assert len({r.id for r in chosen}) == len(chosen) == min(rows, count)
