"""No question of the evaluation stands in training: proved against the definition, pair by pair."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.data.config import Decontamination
from posttrain.data.decontaminate import decontaminate
from posttrain.data.schema import Example
from posttrain.data.text import signs, units, words


def rows(name: str, texts: list[str]) -> list[Example]:
    return [
        Example(f"{name}{n}", 0, t, ({"role": "user", "content": t},), "1", "1", "exact", {})
        for n, t in enumerate(texts)
    ]


def contaminated(question: str, other: str, evaluation: list[str], config: Decontamination) -> bool:
    """The definition of the module's docstring, word by word and without its code."""
    if units(question) == units(other):
        return True
    if config.distinguish_numbers and signs(question) != signs(other):
        return False

    def grams(text: str) -> set[tuple[str, ...]]:
        w = words(text)
        return {w[i : i + config.n] for i in range(len(w) - config.n + 1)} if len(w) >= 2 * config.n else set()

    def common(gram: tuple[str, ...]) -> bool:
        holders = sum(gram in grams(text) for text in evaluation)
        return holders > 1 and holders > config.frame * len(evaluation)

    left, right = ({g for g in grams(text) if not common(g)} for text in (question, other))
    return bool(left and right) and len(left & right) >= config.overlap * min(len(left), len(right))


TEXT = st.lists(st.sampled_from(["a", "b", "c", "1", "2", "+"]), min_size=1, max_size=14).map(" ".join)
CONFIG = st.builds(Decontamination, n=st.integers(1, 4), overlap=st.sampled_from([0.3, 0.7, 1.0]),
                   frame=st.sampled_from([0.0, 0.2, 1.0]), distinguish_numbers=st.booleans())  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(train=st.lists(TEXT, max_size=12), evaluation=st.lists(TEXT, max_size=8), config=CONFIG)
def test_it_removes_exactly_the_rows_that_the_definition_names(train, evaluation, config):
    kept, removed = decontaminate(rows("t", train), rows("e", evaluation), config)
    for row in kept:
        assert not any(contaminated(row.question, other, evaluation, config) for other in evaluation)
    for gone in removed:
        question, match = train[int(gone.id[1:])], evaluation[int(gone.matched[1:])]
        assert gone.reason == "in_evaluation"
        assert contaminated(question, match, evaluation, config)
    assert len(kept) + len(removed) == len(train)


def test_short_sums_that_share_their_frame_stay():
    frame = "State the final answer to the following arithmetic problem: {} ="
    sums = [f"{a} {op} {b}" for a in range(20) for b in range(20) for op in "+-"]
    questions = [frame.format(text) for text in sums]
    kept, removed = decontaminate(rows("t", questions), rows("e", questions[::9]), Decontamination())
    assert [int(gone.id[1:]) for gone in removed] == list(range(0, len(questions), 9))
    assert len(kept) == len(questions) - len(removed)


def test_a_long_question_is_found_inside_a_longer_one():
    question = "A train leaves Basel at nine and another leaves Bern at ten where do they meet if both go at full speed"
    padded = f"Solve this with care and explain your steps. {question}? Think first."
    kept, removed = decontaminate(
        rows("t", [padded, "Where do two trains meet?"]), rows("e", [question]), Decontamination()
    )
    assert [(gone.id, gone.matched) for gone in removed] == [("t0", "e0")]
    assert [row.id for row in kept] == ["t1"]
