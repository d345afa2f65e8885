"""Laws of the whole pipeline: nothing is lost, the evaluation is clean, the same comes out again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.contract.config import resolve
from posttrain.data import card, pipeline, schema
from posttrain.data.config import DataConfig, Dedup, Prompt, Source, Split
from posttrain.data.formatting import running_sum, to_example
from posttrain.data.sources import read
from posttrain.data.text import units
from posttrain.data.tiers import by_parameters
from posttrain.errors import UserError


def config(*into: str, **changes) -> DataConfig:
    sources = [Source(kind="files", path=f"{n}.jsonl", into=way) for n, way in enumerate(into)]
    return DataConfig(sources=sources, split=Split(train=0, validation=1, evaluation=2), **changes)


RAW = st.builds(
    schema.Raw, source=st.integers(0, 1), place=st.just("x:1"), verifier=st.just("numeric"),
    question=st.lists(st.sampled_from(["1", "2", "3", "+", "sum"]), max_size=6).map(" ".join),
    answer=st.sampled_from(["1", "2", "", "3"]), tier=st.sampled_from(["", "easy", "hard", "odd"]),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(RAW, max_size=30), into=st.sampled_from(["split", "train", "validation", "evaluation"]))
def test_every_row_ends_in_exactly_one_place_and_no_question_crosses(rows, into):
    asked = config("split", into)
    sound = pipeline.sound(rows, asked, None)
    assert sound.total == len(rows) == sum(sound.read.values())
    try:
        sets = pipeline.divide(sound.examples, asked, seed=3)
    except UserError as problem:
        assert "different rows are left" in str(problem)
        return
    parts = [sets.train, sets.validation, sets.evaluation, sets.left_over, sets.removed]
    ids = [row.id for part in parts for row in part]
    assert sorted(ids) == sorted(e.id for e in sound.examples)
    assert len(set(ids)) == len(ids)
    questions = [{units(e.question) for e in part} for part in parts[:3]]
    assert not questions[2] & (questions[0] | questions[1])
    assert not questions[0] & questions[1]
    if into in ("validation", "evaluation"):
        assert {e.source for e in getattr(sets, into)} == {1}
        assert {e.source for e in sets.train} == {0}


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory):
    asked = DataConfig(
        sources=[
            Source(dataset="chain_sum", size=600, question="{expression}", parameters={"max_terms": 3, "max_digits": 2})
        ],
        split=Split(validation=20, evaluation=50),
    )  # fmt: skip
    workspace = tmp_path_factory.mktemp("workspace")
    return asked, [row for row in read(asked.sources[0], 0, workspace=workspace, seed=0)]


def test_stored_rows_keep_their_schema_and_the_card_their_numbers(arithmetic):
    asked, rows = arithmetic
    sound = pipeline.sound(rows, asked, None)
    sets = pipeline.divide(sound.examples, asked, 0)
    for name, with_target in (("train", True), ("validation", True), ("evaluation", False)):
        table = schema.to_table(getattr(sets, name), ["sums"], with_target=with_target)
        assert table.schema == schema.ROWS
        assert [schema.check_row(row, with_target=with_target) for row in table.to_pylist()] == [None] * len(table)
        assert "the last message" in schema.check_row(table.to_pylist()[0], with_target=not with_target)
    refs = dict.fromkeys(["train", "validation", "evaluation", "quarantine", "removed"], "lake/a.lance@1")
    value = card.describe(
        asked, 0, [{"name": "sums", "kind": "reasoning_gym", "into": "split", "what": "x"}], sound, sets, refs
    )
    counts = value["rows"]
    assert counts["read"] == 600 == sum(counts[k] for k in ("quarantined", "removed", "kept", "left_over"))
    assert value["sets"]["evaluation"]["rows"] == 50
    assert sum(value["sets"]["train"]["tiers"].values()) == value["sets"]["train"]["rows"]
    assert f"| removed: duplicate | {value['removed']['duplicate']} |" in card.to_markdown(value)


def test_the_order_of_rows_changes_nothing_but_which_duplicate_stays(arithmetic):
    asked, rows = arithmetic
    there, back = (pipeline.divide(pipeline.sound(way, asked, None).examples, asked, 0) for way in (rows, rows[::-1]))
    for name in ("train", "validation", "evaluation"):
        assert [e.id for e in getattr(there, name)] == [e.id for e in getattr(back, name)]


def test_another_seed_chooses_another_evaluation(arithmetic):
    asked, rows = arithmetic
    examples = pipeline.sound(rows, asked, None).examples
    one, two = (pipeline.divide(examples, asked, seed).evaluation for seed in (0, 1))
    assert {e.id for e in one} != {e.id for e in two}


def test_too_few_rows_name_the_key_and_what_is_there(arithmetic):
    asked, rows = arithmetic
    examples = pipeline.sound(rows[:30], asked, None).examples
    with pytest.raises(UserError, match=r"prepare_data.split.evaluation: only \d+ different rows are left"):
        pipeline.divide(examples, asked, 0)


def test_a_row_longer_than_the_model_reads_is_quarantined():
    rows = [schema.Raw(0, f"x:{n}", "word " * n, "1", "exact") for n in (1, 50)]

    def count(conversations, *, open_ended):
        return [sum(len(m["content"].split()) for m in messages) for messages in conversations]

    sound = pipeline.sound(rows, config("split"), count, context_length=20)
    assert [(r.place, r.reason) for r in sound.rejected] == [("x:50", "too_many_tokens")]
    assert [e.tokens for e in sound.examples] == [4]


def test_ids_follow_content_and_a_given_id_is_unique():
    given_ids = [schema.Raw(0, f"x:{n}", f"question {n}", "1", "exact", id="same") for n in range(2)]
    sound = pipeline.sound(given_ids, config("split"), None)
    assert [(r.place, r.reason) for r in sound.rejected] == [("x:1", "duplicate_id")]
    twice = [schema.Raw(0, f"x:{n}", "1 + 1", "2", "exact") for n in range(2)]
    ids = [e.id for e in pipeline.sound(twice, config("split", dedup=Dedup(exact=False)), None).examples]
    assert ids[1] == f"{ids[0]}-2"


@pytest.mark.parametrize(
    ("expression", "steps"),
    [("12 + 5 - 3", "12 + 5 = 17, 17 - 3 = 14"), ("-1 - -2", "-1 - -2 = 1"), ("7", ""), ("2 * 3", ""), ("", "")],
)
def test_running_sum_writes_each_step(expression, steps):
    assert running_sum(expression) == steps


def test_a_problem_becomes_a_conversation_in_the_configured_form():
    raw = schema.Raw(0, "x:1", "12 + 5", "17", "numeric", {"expression": "12 + 5"}, system="Be brief.")
    form = Prompt(
        system="Ignored here.",
        user="Q: {question}",
        assistant="{reasoning}<answer>{answer}</answer>",
        reasoning="steps",
    )
    made = to_example(raw, form, "sums")
    assert made.messages(with_target=True) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Q: 12 + 5"},
        {"role": "assistant", "content": "12 + 5 = 17\n<answer>17</answer>"},
    ]
    assert made.question == "12 + 5", "the form is no part of what is compared"


@pytest.mark.parametrize(
    ("terms", "digits", "tier"), [(2, 1, "easy"), (3, 1, "easy"), (2, 2, "medium"), (4, 2, "hard")]
)
def test_tiers_follow_the_place_of_the_parameters_in_their_ranges(terms, digits, tier):
    metadata = {"num_terms": terms, "num_digits": digits, "difficulty": {"num_terms": (2, 4), "num_digits": [1, 2]}}
    assert by_parameters(metadata) == tier


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("sources.0.kind=files", r"sources\[0\].path: is missing"),
        ("sources.0.kind=file", r"sources\[0\].kind: .*did you mean files\?"),
        ("sources.0.into=test", r"sources\[0\].into: .*known: split, train, validation, evaluation"),
        ("sources.0.dataset=''", r"sources\[0\].dataset: is missing"),
        ("sources[0].kin=files", r"prepare_data.sources\[0\].kin: unknown key"),
        ("sources=a", r"prepare_data.sources: is not a list"),
        ("sources.one.kind=files", r"prepare_data: .*not an int"),
        ("sources=[]", r"sources: names none"),
        ("prompt.user=Compute", r"prompt.user: lacks {question}"),
        ("prompt.assistant='{answer}{why}'", r"prompt.assistant: {why} is not known"),
        ("prompt.assistant={answer}{why}", r"prepare_data.prompt.assistant: is no YAML.*put it in quotes"),
        ("prompt.reasoning=long", r"prompt.reasoning: is not known"),
        ("dedup.threshold=80", r"dedup.threshold: must lie between 0 and 1"),
        ("split.evaluation=0", r"split.evaluation: must be at least 1"),
        ("limits.characters=0", r"limits.characters: must be at least 1"),
        ("limits.tokens=-1", r"limits.tokens: must be at least 0"),
        ("split.evaluaton=5", r"prepare_data.split.evaluaton: unknown key; did you mean split.evaluation\?"),
        ("tiers.endpoint=http://127.0.0.1/v1", r"tiers.model: is missing"),
        ("tiers.endpoint=localhost:8000", r"tiers.endpoint: is no address"),
        ("tiers.endpoint=http://me:word@host/v1", r"tiers.endpoint: must hold no query and no password"),
        ("name=../x", r"prepare_data.name: is no name"),
        ("quarantine_limit=lots", r"prepare_data.quarantine_limit: is not a number"),
    ],
)
def test_a_wrong_configuration_is_one_clear_line(override, says):
    with pytest.raises(UserError, match=says) as raised:
        resolve(DataConfig, overrides=[override], where="prepare_data")
    assert "\n" not in str(raised.value)
