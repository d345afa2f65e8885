"""Laws of maintenance: what it may remove, given the marks, the watermarks and the spans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.lakestream import Policy, StreamError
from posttrain.lakestream.controls import ConsumerControl, Controls, Group, Held, Mark, StreamControl, UpkeepControl
from posttrain.lakestream.offsets import Span
from posttrain.lakestream.upkeep import is_due, marks_to_keep, removable_version, removal, to_compact

NOW = 1000.0
marks = st.lists(st.tuples(st.floats(0, NOW), st.integers(1, 500), st.integers(0, 300)), max_size=12).map(
    lambda found: tuple(Mark(*m) for m in zip(*(sorted(column) for column in zip(*found, strict=True)), strict=True))
)
spans = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20)), max_size=10).map(
    lambda found: [Span(i, first, first + more, more + 1, 100) for i, (first, more) in enumerate(found)]
)
watermarks = st.dictionaries(st.sampled_from(["g", "h"]), st.lists(st.integers(0, 320), min_size=1, max_size=3))


def controls(known: tuple[Mark, ...], offsets: dict[str, list[int]]) -> Controls:
    groups = {name: Group(len(each)) for name, each in offsets.items()}
    consumers = {
        (name, i): Held(50, ConsumerControl(name, i, 0, offset))
        for name, each in offsets.items()
        for i, offset in enumerate(each)
    }
    return Controls(Held(90, StreamControl(groups=groups)), Held(91, UpkeepControl(known)), {}, consumers)


@given(marks, st.floats(0, 1200))
def test_a_version_is_kept_for_as_long_as_asked(known: tuple[Mark, ...], keep: float) -> None:
    bound = removable_version(known, NOW, keep)
    assert all(mark.at <= NOW - keep for mark in known if mark.version < bound)
    assert bound <= max((mark.version for mark in known), default=0), "so that the newest fence is younger"


@given(marks, st.floats(0, 500), st.floats(0, 500), st.floats(0, 2000))
def test_forgotten_marks_are_never_missed(known: tuple[Mark, ...], keep: float, retain: float, later: float) -> None:
    policy = Policy(keep_versions=keep, retain=retain)
    kept = marks_to_keep(known, NOW, policy)
    assert set(kept) <= set(known)
    assert removable_version(kept, NOW + later, keep) == removable_version(known, NOW + later, keep)


@given(st.integers(201, 900))
def test_marks_stay_few(count: int) -> None:
    known = tuple(Mark(NOW - count + i, i, i) for i in range(count))
    for _ in range(5):
        known = marks_to_keep(known, NOW, Policy(keep_versions=10_000))
    assert len(known) <= 200


@given(marks, watermarks, spans, st.floats(0, 1200))
def test_only_rows_that_are_old_and_done_with_everywhere_are_removed(known, offsets, data, retain: float) -> None:
    found = removal(controls(known, offsets), data, NOW, Policy(retain=retain))
    if found is None:
        return
    assert offsets, "without a group nobody has said that the rows are done with"
    assert found.below <= min(offset for each in offsets.values() for offset in each)
    assert any(mark.end >= found.below and mark.at <= NOW - retain for mark in known)
    gone = [span for span in data if span.fragment in found.fragments]
    assert all(span.last < found.below for span in gone)
    assert all(span.first >= found.below for span in data if span not in gone), "below the bound nothing is left"
    assert found.rows == sum(span.rows for span in gone)


def test_without_retention_nothing_is_removed() -> None:
    assert removal(controls((Mark(0, 1, 99),), {"g": [99]}), [Span(0, 0, 9, 10, 1)], NOW, Policy()) is None


@given(spans, st.integers(1, 60), st.dictionaries(st.integers(0, 9), st.sampled_from("xy")))
def test_compaction_merges_small_neighbours_of_one_kind(data, small: int, indexed: dict[int, str]) -> None:
    groups = to_compact(data, Policy(small_rows=small), indexed)
    merged = [span for group in groups for span in group]
    assert len(set(merged)) == len(merged), "each at most once"
    assert all(span.rows < small for span in merged)
    order = sorted(data, key=lambda span: span.first)
    for group in groups:
        begin = order.index(group[0])
        assert list(group) == order[begin : begin + len(group)] and len(group) > 1
        assert len({indexed.get(span.fragment) for span in group}) == 1
        assert sum(span.rows for span in group[:-1]) < small, "no bigger than it needs to be not to be small"


def test_compaction_takes_all_that_is_small_at_once() -> None:
    data = [Span(7, 20, 29, 10, 100), Span(8, 0, 9, 10, 100), Span(9, 10, 19, 10, 100), Span(3, 30, 39, 10, 9000)]
    (group,) = to_compact(data, Policy(small_rows=50, small_bytes=5000))
    assert [span.fragment for span in group] == [8, 9, 7], "in the order of row ids"


def test_a_run_is_due_after_so_many_versions() -> None:
    known = controls((Mark(0.0, 100, 0),), {})
    assert not is_due(known, 149, Policy(every_commits=50))
    assert is_due(known, 150, Policy(every_commits=50))
    assert is_due(controls((), {}), 60, Policy(every_commits=50))


@pytest.mark.parametrize(
    "wrong", [{"every_commits": 0}, {"keep_versions": -1}, {"retain": -1}, {"archive": "x"}, {"small_rows": 0}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict) -> None:
    with pytest.raises(StreamError, match=rf"^{next(iter(wrong))}: "):
        Policy(**wrong)
