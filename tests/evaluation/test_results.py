"""Rows, results, summary and gate: what is read is what was written, and decisions follow the policy."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.evaluation.few_shot import with_examples
from posttrain.evaluation.gate import decide
from posttrain.evaluation.rows import read_rows
from posttrain.evaluation.schema import How, Result, from_table, to_table
from posttrain.evaluation.settings import GatePolicy, Sampling
from posttrain.evaluation.statistics import wilson
from posttrain.evaluation.summary import summarize
from posttrain.reward.score import AnswerForm

HOW = How(Sampling(samples=2, temperature=0.7), AnswerForm(take="first"))


def result(number: int, correct: bool = True, *, sample: int = 0, tier: str = "easy", tokens: int = 5) -> Result:
    return Result(
        id=f"r{number}", tier=tier, sample=sample, prompt="1+1", messages='[{"role":"user","content":"1+1"}]',
        completion="<answer>2</answer>", tokens=tokens, finish_reason="stop", correct=correct, well_formed=True,
        extracted="2", answer="2", verifier="exact", metadata="{}",
    )  # fmt: skip


def results(right: int, wrong: int) -> list[Result]:
    return [result(n, n < right) for n in range(right + wrong)]


def row(**changes: str) -> dict[str, str]:
    messages = json.dumps([{"role": "user", "content": "1 + 1"}])
    return {
        "id": "a", "messages": messages, "answer": "2", "verifier": "exact", "metadata": "{}", "tier": "easy",
    } | changes  # fmt: skip


def test_results_survive_their_table():
    kept = [result(1), replace(result(1, False, sample=1), extracted=None, completion="ü\n")]
    assert from_table(to_table(kept, HOW), field="x") == (kept, HOW)


def test_a_table_of_something_else_is_refused():
    with pytest.raises(UserError, match="holds no results of an evaluation"):
        from_table(pa.table({"a": [1]}), field="gate.candidate")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (pa.table({"id": ["a"]}), "has no column messages"),
        (pa.Table.from_pylist([row()]).slice(0, 0), "is empty"),
        (pa.Table.from_pylist([row(), row()]), "same id"),
    ],
)
def test_a_set_that_cannot_be_evaluated_is_one_line(table, problem):
    with pytest.raises(UserError, match=problem) as caught:
        read_rows(table, field="evaluate.data")
    assert caught.value.field == "evaluate.data" and "\n" not in str(caught.value)


def test_a_limit_takes_the_first_rows():
    table = pa.Table.from_pylist([row(id=str(n)) for n in range(5)])
    assert [r.id for r in read_rows(table, field="x", limit=2)] == ["0", "1"]
    assert len(read_rows(table, field="x", limit=0)) == 5


def solved(*questions: str) -> pa.Table:
    turns = [
        [{"role": "system", "content": "S"}, {"role": "user", "content": q}, {"role": "assistant", "content": f"={q}"}]
        for q in questions
    ]
    return pa.table({"messages": [json.dumps(t) for t in turns]})


def test_few_shot_puts_solved_rows_before_a_prompt_and_never_the_prompt_itself():
    system = json.dumps([{"role": "system", "content": "be brief"}, {"role": "user", "content": "1 + 1"}])
    (asked,) = read_rows(pa.Table.from_pylist([row(messages=system)]), field="x")
    (found,) = with_examples([asked], solved("1 + 1", "2 + 2", "3 + 3", "4 + 4"), 2, field="examples")
    assert [m["content"] for m in found.messages] == ["be brief", "2 + 2", "=2 + 2", "3 + 3", "=3 + 3", "1 + 1"]
    assert (found.prompt, found.id) == (asked.prompt, asked.id)
    with pytest.raises(UserError, match="has only 1 rows that the set does not ask"):
        with_examples([asked], solved("1 + 1", "2 + 2"), 2, field="examples")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["easy", "hard"])), min_size=1, max_size=30))
def test_tiers_add_up_to_the_whole(outcomes):
    told = summarize([result(n, right, tier=tier) for n, (right, tier) in enumerate(outcomes)], shown=4)
    assert sum(t["rows"] for t in told["tiers"].values()) == told["rows"] == len(outcomes)
    weighted = sum(t["rows"] * t["accuracy"] for t in told["tiers"].values()) / told["rows"]
    assert told["accuracy"] == pytest.approx(weighted)
    expected = wilson(sum(right for right, _ in outcomes), len(outcomes))
    assert (told["accuracy_low"], told["accuracy_high"]) == pytest.approx(expected[1:])
    assert len(told["samples"]) == min(4, len(outcomes))


def test_the_summary_counts_samples_lengths_and_cuts():
    given_ = [result(n, n == 0, sample=s, tokens=10 * s) for n in range(2) for s in range(4)]
    given_[1] = replace(given_[1], finish_reason="length")
    told = summarize(given_)
    assert told["pass_at"] == {"1": 0.5, "2": 0.5, "4": 0.5}
    assert (told["rows"], told["samples_per_row"], told["mean_tokens"]) == (2, 4, 15.0)
    assert told["truncated"] == 1 / 8 and told["tokens"]["p50"] == 15.0


def test_a_loss_within_the_allowance_passes_and_one_beyond_fails():
    before = results(60, 40)
    assert decide(before, results(58, 42), GatePolicy(min_difference=-0.02), seed=0).reasons == ()
    failed = decide(before, results(57, 43), GatePolicy(min_difference=-0.02), seed=0)
    assert failed.verdict.startswith("failed: accuracy 60.0% -> 57.0%") and len(failed.reasons) == 1


def test_a_gain_can_be_asked_for_by_point_or_by_interval():
    before, after = results(10, 90), results(32, 68)
    assert not decide(before, after, GatePolicy(min_difference=0.2), seed=0).reasons
    assert decide(before, after, GatePolicy(min_difference=0.2, evidence="interval"), seed=0).reasons
    assert not decide(before, after, GatePolicy(min_difference=0.1, evidence="interval"), seed=0).reasons


def test_floors_of_accuracy_and_format_hold_of_themselves():
    after = [replace(r, well_formed=False) for r in results(50, 50)]
    decision = decide(results(0, 100), after, GatePolicy(min_accuracy=0.6, min_format_rate=0.9), seed=0)
    assert len(decision.reasons) == 2


@given(st.permutations(range(6)))
def test_pairs_are_found_by_prompt_and_not_by_place(order):
    before, after = results(3, 3), results(5, 1)
    shuffled = [after[n] for n in order]
    assert decide(before, shuffled, GatePolicy(), seed=1) == decide(before, after, GatePolicy(), seed=1)


def test_evaluations_of_other_prompts_are_not_compared():
    with pytest.raises(UserError, match="other prompts"):
        decide(results(3, 3), results(3, 2), GatePolicy(), seed=0)
    with pytest.raises(UserError, match="other prompts"):
        decide(results(3, 0), [replace(r, answer="3") for r in results(3, 0)], GatePolicy(), seed=0)
