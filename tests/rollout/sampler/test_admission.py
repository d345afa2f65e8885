"""No group is too old when its turn comes, whatever the speeds; the trainer always gets its next batch."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.rollout.sampler.admission import Situation, room
from posttrain.rollout.sampler.cursor import Left
from posttrain.rollout.sampler.lengths import Lengths, block_order, task_of
from posttrain.rollout.sampler.pressure import Pressure, next_cap
from posttrain.rollout.sampler.states import States, state_of


@settings(max_examples=200, deadline=None)
@given(
    staleness=st.integers(0, 4), batch=st.integers(1, 6), buffer=st.integers(0, 20), dropped=st.floats(0, 0.7),
    lag=st.integers(0, 3), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_nothing_is_trained_on_that_is_older_than_the_bound(
    staleness: int, batch: int, buffer: int, dropped: float, lag: int, seed: int
) -> None:
    """A sampler, a stream and a trainer that move by turns in any order; some groups are dropped; new weights reach the
    engine up to `lag` turns late. On policy groups end in any order; else in the order in which they began: one that
    others overtake may be too old when it ends, and is the trainer's to drop."""
    buffer = buffer and max(buffer, batch)
    rng = random.Random(seed)
    trained = spent = sampling = begun = 0
    flying: list[int] = []  # version under which each began
    stream: list[int] = []
    batch_now: list[int] = []
    coming: list[tuple[int, int]] = []  # (turns left, version)
    used: list[int] = []
    for _ in range(400):
        coming = [(turns - 1, version) for turns, version in coming]
        while coming and coming[0][0] <= 0:
            sampling = coming.pop(0)[1]
        now = Situation(sampling=sampling, trained=trained, begun=begun, spent=spent)
        free = room(now, max_staleness=staleness, groups_per_update=batch, buffer_groups=buffer)
        if free and rng.random() < 0.7:
            begun += 1
            flying.append(sampling)
        elif flying and rng.random() < 0.7:
            stream.append(flying.pop(0 if staleness else rng.randrange(len(flying))))
        elif stream:
            version = stream.pop(0)
            if rng.random() < dropped:
                spent += 1
                continue
            batch_now.append(version)
            if len(batch_now) == batch:
                used += [trained - each for each in batch_now]
                batch_now, trained, spent = [], trained + 1, spent + batch
                coming.append((rng.randint(0, lag), trained))
        else:
            assert free or flying or coming, "nobody can go on"
    assert all(0 <= age <= staleness for age in used)


def test_on_policy_means_one_batch_under_each_version() -> None:
    assert room(Situation(3, 3, 30, 30), max_staleness=0, groups_per_update=10) == 10
    assert room(Situation(3, 3, 40, 30), max_staleness=0, groups_per_update=10) == 0
    assert room(Situation(3, 4, 40, 40), max_staleness=0, groups_per_update=10) == 0  # new weights are on their way


@given(st.permutations(range(30)), st.integers(0, 29))
def test_a_cursor_knows_what_has_left_and_grows(order: list[int], crash: int) -> None:
    left, cursors = Left(), []
    for number in order[:crash]:
        left.add(number)
        cursors.append(left.to_cursor())
    assert cursors == sorted(cursors) and len(set(cursors)) == len(cursors)
    again = Left.from_cursor(cursors[-1] if cursors else None)
    assert [n for n in range(30) if n not in again] == sorted(order[crash:])
    assert again.count == crash


@given(st.integers(1, 200), st.integers(0, 5), st.integers(0, 3))
def test_every_task_once_in_each_round_and_in_another_order(tasks: int, seed: int, epoch: int) -> None:
    taken = [task_of(epoch * tasks + place, tasks, seed=seed) for place in range(tasks)]
    assert sorted(taken) == list(range(tasks))
    if tasks > 20:
        assert taken != [task_of((epoch + 1) * tasks + place, tasks, seed=seed) for place in range(tasks)]


@given(st.lists(st.integers(0, 1000), unique=True, max_size=40), st.integers(0, 9), st.randoms())
def test_a_block_holds_the_same_groups_in_either_order(block: list[int], number: int, rng: random.Random) -> None:
    expected = {group: rng.random() * 100 for group in block}
    ordered = block_order(block, expected, seed=1, number=number)
    assert Counter(ordered) == Counter(block)
    if number % 2:
        assert [expected[group] for group in ordered] == sorted(expected.values(), reverse=True)


def test_lengths_forget_and_guess_for_tasks_never_seen() -> None:
    lengths = Lengths()
    lengths.saw("a", 100)
    lengths.saw("a", 300)
    assert lengths.expected("a") == 200 and 100 < lengths.expected("b") < 200


@given(st.integers(8, 64), st.lists(st.builds(Pressure, st.floats(0, 1), st.integers(0, 3)), max_size=3))
def test_the_cap_stays_within_its_bounds_and_follows_the_cache(cap: int, now: list[Pressure]) -> None:
    after = next_cap(cap, now, now, least=8, most=64, high=0.9)
    assert 8 <= after <= 64
    if any(p.used > 0.9 for p in now):
        assert after < cap or cap == 8
    elif now and not any(p.waiting for p in now):
        assert after > cap or cap == 64


@given(st.lists(st.tuples(st.floats(0.01, 30), st.sampled_from([0, 1, 2, 3])), min_size=1))
def test_the_states_follow_each_other_without_a_gap(steps: list[tuple[float, int]]) -> None:
    at, told = [100.0], list[tuple[str, float, float]]()
    states = States(lambda *interval: told.append(interval), lambda: at[0])
    for seconds, kind in steps:
        states.be(state_of(in_flight=kind == 0, healthy=kind != 1, trained=2, sampling=2 if kind == 2 else 1))
        at[0] += seconds
    states.be(None)
    assert sum(seconds for _, _, seconds in told) == pytest.approx(sum(seconds for seconds, _ in steps))
    assert all(
        start + seconds == pytest.approx(after) for (_, start, seconds), (_, after, _) in itertools.pairwise(told)
    )
