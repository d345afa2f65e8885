"""Laws of who gets the next lease and of what an outcome does, over generated situations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.errors import UserError
from posttrain.rollout.tasks.decisions import Backoff, after_outcome, choose, nested, overdue
from posttrain.rollout.tasks.model import Attempt, Candidate, Outcome, Share, State
from posttrain.rollout.tasks.settings import TaskServerSettings, TimeLimits

QUEUES, KINDS = ["a", "b", "c"], ["code", "search"]
candidates = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(QUEUES), st.integers(-3, 3)), max_size=40
).map(lambda rows: [Candidate(seq, *row) for seq, row in enumerate(rows)])  # fmt: skip
limits = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 10))
weights = st.fixed_dictionaries({queue: st.sampled_from([0.5, 1.0, 2.0, 3.0]) for queue in QUEUES})
finishes = st.fixed_dictionaries({queue: st.floats(0, 50) for queue in QUEUES})
times = st.floats(0, 1e6)


@given(candidates, limits, weights, finishes, st.floats(0, 50), st.integers(0, 50))
def test_limits_hold_and_nothing_that_may_run_is_left_while_leases_are_wanted(
    waiting, free, weight, finish, virtual, want
):
    shares = {q: Share(weight[q], finish[q]) for q in QUEUES}
    chosen = choose(waiting, shares, virtual, free, want)
    taken = chosen.taken
    assert len(set(taken)) == len(taken) <= want and set(taken) <= set(waiting)
    for kind, most in free.items():
        assert sum(c.kind == kind for c in taken) <= most
    left = {kind: most - sum(c.kind == kind for c in taken) for kind, most in free.items()}
    assert len(taken) == want or all(left.get(c.kind, 1) <= 0 for c in set(waiting) - set(taken))
    assert chosen.virtual >= virtual


@given(candidates, limits, st.integers(0, 50))
def test_of_a_queue_and_kind_the_highest_priority_goes_first_then_the_oldest(waiting, free, want):
    taken = choose(waiting, {}, 0.0, free, want).taken
    for queue in QUEUES:
        for kind in KINDS:
            line = sorted(
                (c for c in waiting if (c.queue, c.kind) == (queue, kind)), key=lambda c: (-c.priority, c.seq)
            )
            got = [c for c in taken if (c.queue, c.kind) == (queue, kind)]
            assert got == line[: len(got)]


@given(weights, st.lists(st.integers(1, 7), min_size=1, max_size=20), st.integers(0, 3))
def test_queues_with_work_share_by_weight_whatever_their_priorities_and_batches(weight, batches, priority):
    """However the leases are asked for, no queue is ahead of another by more than one lease of each."""
    lines = {q: [Candidate(100 * i + n, "code", q, priority * i) for n in range(200)] for i, q in enumerate(QUEUES)}
    shares, virtual, served = {q: Share(weight[q]) for q in QUEUES}, 0.0, dict.fromkeys(QUEUES, 0)
    for want in batches:
        heads = [c for line in lines.values() for c in line[:want]]
        chosen = choose(heads, shares, virtual, {}, want)
        shares, virtual = shares | chosen.shares, chosen.virtual
        for c in chosen.taken:
            lines[c.queue].remove(c)
            served[c.queue] += 1
    for one in QUEUES:
        for other in QUEUES:
            apart = served[one] / weight[one] - served[other] / weight[other]
            assert abs(apart) <= 1 / weight[one] + 1 / weight[other] + 1e-9


def test_a_queue_that_was_idle_has_saved_nothing_up():
    line = [Candidate(n, "code", "busy", 0) for n in range(100)]
    first = choose(line, {}, 0.0, {}, 50)
    both = line[50:] + [Candidate(1000 + n, "code", "late", 0) for n in range(50)]
    taken = choose(both, first.shares, first.virtual, {}, 20).taken
    assert sum(c.queue == "late" for c in taken) in (10, 11)


attempts = st.builds(
    Attempt, task=st.text(min_size=1, max_size=5), number=st.integers(1, 8), max_attempts=st.integers(1, 8),
    deadline=st.none() | times,
)  # fmt: skip


@given(attempts, st.sampled_from(Outcome), times)
def test_only_infrastructure_errors_are_tried_again_and_only_in_time(attempt, outcome, now):
    after = after_outcome(attempt, outcome, now, Backoff())
    if after.state is State.pending:
        assert outcome is Outcome.infrastructure_error and attempt.number < attempt.max_attempts
        assert now < after.not_before and (attempt.deadline is None or after.not_before < attempt.deadline)
    else:
        assert after.state.value == outcome.value
        assert (
            outcome is not Outcome.infrastructure_error
            or attempt.number >= attempt.max_attempts
            or (attempt.deadline is not None and attempt.deadline <= now + 60)
        )


@given(st.text(max_size=8), st.integers(1, 100))
def test_a_pause_grows_to_its_bound_and_is_the_same_each_time(task, number):
    backoff = Backoff(1.0, 60.0)
    pause, whole = backoff.after(task, number), min(60.0, 2.0 ** (number - 1))
    assert whole / 2 <= pause <= whole and pause == backoff.after(task, number)


@given(times, st.none() | times, times)
def test_what_came_first_decides_how_an_attempt_ends(expires, deadline, now):
    ended = overdue(expires, deadline, now)
    assert (ended is None) == (now < min(expires, deadline if deadline is not None else expires))
    if ended is Outcome.timed_out:
        assert deadline is not None and deadline <= expires
    if ended is Outcome.infrastructure_error:
        assert deadline is None or expires < deadline


def test_a_deadline_within_another_is_the_earlier():
    assert nested(None, 5.0, 3.0) == 3.0 and nested(None, None) is None


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: TimeLimits(tool_call=700), "limits.tool_call: does not nest (got 700)"),
        (lambda: TimeLimits(scoring=5000), "limits.scoring: does not nest (got 5000)"),
        (lambda: TaskServerSettings(lease_seconds=0), "lease_seconds: must be more than 0"),
        (lambda: TaskServerSettings(weights={"a": 0}), "weights.a: must be more than 0"),
        (lambda: TaskServerSettings(database="mysql://u:secret@h/d"), "database: is no database (got 'h/d')"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(made, said):
    with pytest.raises(UserError) as problem:
        made()
    assert str(problem.value).startswith(said) and "secret" not in str(problem.value)
