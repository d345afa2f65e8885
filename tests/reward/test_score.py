"""Laws of verdicts by rule: what counts as right, what as well formed, and that no completion can break them."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import reasoning_gym
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.reward.child import callable_free
from posttrain.reward.isolated import STUCK_LIMIT
from posttrain.reward.score import AnswerForm, Verdict, check, score


@pytest.mark.parametrize(
    ("verifier", "answer", "metadata", "completion", "verdict"),
    [
        ("exact", "New  York", {}, "<answer>\nNew York </answer>", (True, True, "New York")),
        ("exact", "New York", {}, "<answer>new york</answer>", (False, True, "new york")),
        ("exact", "New York", {"ignore_case": True}, "<answer>new york</answer>", (True, True, "new york")),
        ("numeric", "1000", {}, "<answer>1,000.0</answer>", (True, True, "1,000.0")),
        ("numeric", "0.5", {}, "<answer>1/2</answer>", (True, True, "1/2")),
        ("numeric", "3.14159", {"tolerance": 0.01}, "<answer>3.14</answer>", (True, True, "3.14")),
        ("numeric", "3.14159", {}, "<answer>3.14</answer>", (False, True, "3.14")),
        ("numeric", "7", {}, "<answer>seven</answer>", (False, True, "seven")),
        ("numeric", "7", {}, "3 + 4 = 7.", (True, False, "7")),
        ("numeric", "7", {}, "no idea", (False, False, None)),
        ("math", "1/2", {}, r"<answer>\frac{2}{4}</answer>", (True, True, r"\frac{2}{4}")),
        ("math", "1/2", {}, r"thus $\boxed{0.5}$", (True, False, r"thus $\boxed{0.5}$")),
        ("math", "1/2", {}, "<answer>2</answer>", (False, True, "2")),
        ("reasoning_gym:chain_sum", "12", {}, "<answer>12</answer>", (True, True, "12")),
        ("reasoning_gym:chain_sum", "12", {}, "<answer>12 or 13</answer>", (False, True, "12 or 13")),
    ],
)
def test_verdicts(verifier, answer, metadata, completion, verdict):
    assert score(verifier, answer, metadata, completion) == Verdict(*verdict)
    assert score(verifier, answer, json.dumps(metadata), completion) == Verdict(*verdict)


def test_the_rule_chooses_among_several_answers():
    text = "<answer>1</answer> no, <answer>2</answer>"
    assert score("numeric", "1", "", text, form=AnswerForm(take="first")).correct
    assert score("numeric", "2", "", text, form=AnswerForm(take="last")).correct
    only = score("numeric", "2", "", text, form=AnswerForm(take="only", strict=True))
    assert only == Verdict(False, False, None)


def test_an_unclosed_tag_is_not_well_formed_and_swallows_nothing():
    assert score("numeric", "5", "", "<answer>5") == Verdict(True, False, "5")
    assert score("numeric", "5", "", "<answer>5", form=AnswerForm(strict=True)) == Verdict(False, False, None)
    assert score("numeric", "5", "", "<answer>9 <answer>5</answer>").extracted == "5"


@pytest.mark.parametrize("name", ["chain_sum", "gcd", "decimal_arithmetic", "countdown", "n_queens", "spell_backward"])
def test_a_generator_accepts_its_own_answers_and_not_anothers(name):
    first, second = reasoning_gym.create_dataset(name, size=2, seed=5)
    verifier, metadata = f"reasoning_gym:{name}", json.dumps(first["metadata"], default=str)
    check(verifier, first["answer"], metadata)
    assert not score(verifier, first["answer"], metadata, f"<answer>{second['answer']}</answer>").correct


def test_an_answer_is_never_run_as_python(tmp_path: Path):
    mark = tmp_path / "ran"
    for attack in (
        f"open('{mark}', 'w')",
        f"__import__('os').system('touch {mark}')",
        f"[].append(open('{mark}','w'))",
    ):
        for name in ("n_queens", "countdown", "spiral_matrix", "binary_matrix"):
            entry = reasoning_gym.create_dataset(name, size=1, seed=0)[0]
            metadata = json.dumps(entry["metadata"], default=str)
            assert not score(f"reasoning_gym:{name}", entry["answer"], metadata, f"<answer>{attack}</answer>").correct
    assert not mark.exists()


@pytest.mark.parametrize("text", ["1 + 2*(3 - 4)", "[[1, 2], [3, 4]]", "x**2 + sin(x) - (x + 1)", "['a', 'b']", "0.5"])
def test_ordinary_expressions_call_nothing(text):
    assert callable_free(text)


@pytest.mark.parametrize(
    "text", ["f(1)", "f (1)", "(1).real", "a.b", "x['f'](1)", "(print)(1)", "lambda: 1", "__name__"]
)
def test_calls_and_attributes_are_seen(text):
    assert not callable_free(text)


def test_an_endless_expression_is_wrong_after_the_limit_and_the_next_one_is_judged():
    started = time.monotonic()
    assert not score("math", "1/2", "", "<answer>9**9**9**9</answer>").correct
    assert time.monotonic() - started < STUCK_LIMIT
    assert score("math", "1/2", "", "<answer>0.5</answer>").correct


def test_threads_get_their_own_verdicts():
    wrong = []

    def work(number: int) -> None:
        for _ in range(20):
            if not score("math", str(number), "", f"<answer>{number}</answer>").correct:
                wrong.append(number)
            if score("math", str(number), "", f"<answer>{number + 1}</answer>").correct:
                wrong.append(-number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=200) | st.from_regex(r"(<answer>|</answer>|[-0-9./,e ()x^$\\{}])*", fullmatch=True))
def test_no_completion_raises_and_verdicts_repeat(completion):
    for verifier in ("exact", "numeric", "reasoning_gym:chain_sum"):
        verdict = score(verifier, "12", "", completion)
        assert verdict == score(verifier, "12", "", completion)
        assert verdict.extracted is not None or not (verdict.correct or verdict.well_formed)


@given(st.integers(-(10**9), 10**9), st.text(alphabet="ab \n", max_size=20))
def test_the_answer_in_its_tag_is_right_whatever_surrounds_it(number, noise):
    verdict = score("numeric", str(number), "", f"{noise}<answer>{number:,}</answer>{noise}")
    assert verdict.correct and verdict.well_formed


@pytest.mark.parametrize(
    ("verifier", "metadata", "field"),
    [
        ("nope", "", "verifier"),
        ("reasoning_gym:nope", "", "verifier"),
        ("exact", "{", "metadata"),
        ("exact", "[]", "metadata"),
        ("numeric", '{"tolerance": "x"}', "metadata.tolerance"),
    ],
)
def test_a_mistake_of_the_data_is_named(verifier, metadata, field):
    with pytest.raises(UserError) as problem:
        score(verifier, "1", metadata, "<answer>1</answer>")
    assert problem.value.field == field


def test_check_refuses_an_answer_its_verifier_cannot_accept():
    with pytest.raises(UserError, match="own answer"):
        check("numeric", "seven", "")
