"""Laws of the changes: those that must exclude each other always remove a fragment id in common."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.lakestream import ConsumerFenced, ProducerFenced, StreamClosed, StreamError, changes
from posttrain.lakestream.changes import Change
from posttrain.lakestream.controls import (
    ConsumerControl,
    Controls,
    Group,
    Held,
    Layer,
    Mark,
    ProducerControl,
    Settings,
    StreamControl,
    UpkeepControl,
    checked_cursor,
    collect,
    decode,
    encode,
    sentinel,
)
from posttrain.lakestream.offsets import Part

GROUPS = {"g": Group(2, 3, 10, (Layer(1, (12,)),), 4), "h": Group(1)}
CONTROLS = Controls(
    Held(1, StreamControl(groups=GROUPS, settings=Settings(5, 6))),
    Held(5, UpkeepControl((Mark(1.0, 2, 3),), 4, 5)),
    {"a": Held(2, ProducerControl("a", "x", 3, [7], 4, 20, 1.5)), "b": Held(3, ProducerControl("b", "y", 1))},
    {("g", 0): Held(4, ConsumerControl("g", 0, 3, 15, 2, 2.5))},
)
A, B = CONTROLS.producers["a"], CONTROLS.producers["b"]


def made(change: Change | None) -> Change:
    assert change is not None
    return change


CHANGES = {
    "append a": changes.append(CONTROLS.stream, A, A.body, [8], 3, 0.0),
    "append b": changes.append(CONTROLS.stream, B, B.body, 1, 3, 0.0),
    "register a": made(changes.register(CONTROLS, "a", "z", 0.0)),
    "register new": made(changes.register(CONTROLS, "c", "z", 0.0)),
    "close": made(changes.close(CONTROLS)),
    "fence": changes.fence(CONTROLS, Mark(2.0, 9, 9), ()),
    "remove": changes.remove(CONTROLS, (90, 91), 50, 10),
    "acknowledge g0": made(changes.acknowledge(CONTROLS, ConsumerControl("g", 0, 3, 16))),
    "acknowledge g1": made(changes.acknowledge(CONTROLS, ConsumerControl("g", 1, 3, 16))),
    "acknowledge h": made(changes.acknowledge(CONTROLS, ConsumerControl("h", 0, 0, 16))),
    "join": made(changes.join(CONTROLS, "new", 2, 0)),
    "rescale g": made(changes.rescale(CONTROLS, "g", 5, None)),
    "configure": made(changes.configure(CONTROLS, Settings())),
}
PRODUCING = {"append a", "append b", "register a", "register new"}
ACKNOWLEDGING = {"acknowledge g0", "acknowledge g1", "acknowledge h"}
EXCLUSIVE = (
    {("append a", "register a"), ("register new", "configure"), ("register new", "join"), ("register new", "rescale g")}
    | {(other, "close") for other in {*PRODUCING, "configure", "join", "rescale g", "remove", "fence"}}
    | {(other, "fence") for other in {*PRODUCING, *ACKNOWLEDGING, "configure", "join", "rescale g", "remove"}}
    | {(other, "rescale g") for other in {"acknowledge g0", "acknowledge g1", "join", "configure", "remove"}}
    | {("join", "remove"), ("join", "configure"), ("configure", "remove"), ("register new", "remove")}
    | {(other, "close") for other in ACKNOWLEDGING}
)


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(sorted(CHANGES), 2)])
def test_changes_conflict_exactly_where_one_must_exclude_the_other(one: str, other: str) -> None:
    common = set(CHANGES[one].remove) & set(CHANGES[other].remove)
    assert bool(common) == ((one, other) in EXCLUSIVE or (other, one) in EXCLUSIVE), common


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_change_conflicts_with_itself_so_that_committing_it_twice_is_refused(name: str) -> None:
    again = {number for number in CHANGES[name].remove if number >= 3_000_000_000}
    assert again, "only a sentinel is left to conflict with once the fragments are gone"


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_what_is_written_replaces_what_is_removed(name: str) -> None:
    held = {h.body.key: h.fragment for h in CONTROLS.all()}
    for body in CHANGES[name].write:
        assert held.get(body.key, sentinel(body.key)) in CHANGES[name].remove


def test_controls_survive_being_written_and_read() -> None:
    bodies = [held.body for held in CONTROLS.all()]
    assert [decode(encode(body)) for body in bodies] == bodies
    assert collect(CONTROLS.all()) == CONTROLS


def test_two_controls_for_one_key_are_noticed() -> None:
    with pytest.raises(StreamError, match=r"two controls for producer/a"):
        collect([*CONTROLS.all(), Held(99, A.body)])


def test_append_is_refused_by_a_newer_epoch_and_by_the_barrier() -> None:
    newer = Held(9, ProducerControl("a", "z", 4, [7], 4, 20))
    with pytest.raises(ProducerFenced) as fenced:
        changes.append(CONTROLS.stream, newer, A.body, [8], 1, 0.0)
    assert (fenced.value.mine, fenced.value.epoch) == (3, 4)
    with pytest.raises(StreamClosed):
        changes.append(Held(1, StreamControl(closed=True)), A, A.body, [8], 1, 0.0)


def test_registering_keeps_cursor_and_totals_and_is_done_once_for_a_holder() -> None:
    body = CHANGES["register a"].write[0]
    assert body == ProducerControl("a", "z", 4, [7], 4, 20, 0.0, (("x", 4),))
    assert changes.register(Controls(CONTROLS.stream, CONTROLS.upkeep, {"a": Held(7, body)}), "a", "z", 0.0) is None  # type: ignore[dict-item, arg-type]


def test_a_replaced_holder_learns_what_became_of_its_append_until_it_is_long_forgotten() -> None:
    landed, lost = ProducerControl("a", "old", 1, 5, 3), ProducerControl("a", "old", 1, 4, 2)
    for expected, control in ((True, landed), (False, lost)):
        for later in range(16):
            control = control.handed_to(f"holder {later}", 0.0)
            assert changes.has_landed(Held(1, decode(encode(control))), lost) is expected  # type: ignore[arg-type]
        assert changes.has_landed(Held(1, control.handed_to("one more", 0.0)), lost) is None


def test_a_watermark_never_moves_back_and_an_old_generation_is_refused() -> None:
    assert changes.acknowledge(CONTROLS, ConsumerControl("g", 0, 3, 14, 2)) is None
    with pytest.raises(ConsumerFenced):
        changes.acknowledge(CONTROLS, ConsumerControl("g", 0, 2, 99))


def test_rescaling_begins_at_the_lowest_watermark_and_remembers_what_is_done_beyond() -> None:
    stream = CHANGES["rescale g"].write[0]
    assert isinstance(stream, StreamControl)
    assert stream.groups["g"] == Group(5, 4, 10, (Layer(1, (12,)), Layer(2, (15, 10))), 2)
    assert 4 in CHANGES["rescale g"].remove, "the old watermark goes"


def after(change: Change | None) -> Controls:
    return Controls(Held(1, made(change).write[0]), CONTROLS.upkeep)  # type: ignore[arg-type]


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(1, 4), st.data()), max_size=4), st.integers(1, 60))
def test_rescaling_again_and_again_loses_and_repeats_nothing(first: int, changes_of_count, end: int) -> None:
    """Generations read and acknowledge as far as they like; together they read each row once."""
    controls = Controls(Held(1, StreamControl()), CONTROLS.upkeep)
    controls = after(changes.join(controls, "g", first, 0))
    ids, seen = np.arange(end, dtype=np.uint64), []
    for count, data in [*changes_of_count, (None, None)]:
        group = controls.stream.body.groups["g"]
        consumers = {}
        for index in range(group.count):
            start = changes.watermark(controls, "g", index).offset
            reach = end if data is None else data.draw(st.integers(start, max(start, end)))
            mine = ids[(ids >= start) & (ids < reach)]
            seen += mine[Part(index, group.count, group.layers).mask(mine)].tolist()
            consumers["g", index] = Held(10 + index, ConsumerControl("g", index, group.generation, reach))
        controls = Controls(controls.stream, controls.upkeep, {}, consumers)
        if count is not None and count != group.count:
            controls = after(changes.rescale(controls, "g", count, None))
    assert sorted(seen) == list(range(end))


@pytest.mark.parametrize(
    ("cursor", "after"),
    [(1, None), (2, 1), (1.5, 1), ("b", "a"), ([1, 2], [1, 1]), (["x", 3], ["x", 2]), ((2, 0), [1, 9])],
)
def test_cursors_that_move_on(cursor, after) -> None:
    assert checked_cursor(cursor, after) == (list(cursor) if isinstance(cursor, tuple) else cursor)


@pytest.mark.parametrize(
    ("cursor", "after", "why"),
    [
        (1, 1, "does not come after"), (0, 1, "does not come after"), ("a", 1, "cannot be compared"),
        ([1], [1, 2], "cannot be compared"), ({"a": 1}, None, "has no order"), (None, None, "has no order"),
        (True, None, "has no order"), ([], None, "has no order"), (float("nan"), None, "no JSON value"),
        (object(), None, "no JSON value"), ("x" * 5000, None, "longer than"),
    ],
)  # fmt: skip
def test_cursors_that_are_refused(cursor, after, why: str) -> None:
    with pytest.raises(StreamError, match=why):
        checked_cursor(cursor, after)
