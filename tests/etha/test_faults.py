"""Processes that are killed, stopped or damage what they send, at each phase of a push.

Every time: what was served before goes on being served, by whoever was not hurt; nobody answers with a mix or goes
back; with everyone there again the next push reaches every replica, with every byte of it (the ranks compare).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.etha.coordinator.view import VersionsView
from tests.etha.layouts import TIED, served, trained
from tests.etha.worlds import Actor, World

ONE, TWO = [served(1, 0)], [served(2, 0), served(2, 1)]
AT_FIRST = ("open", "window", "invite")  # only in a process's first push: what is made there is used again
SENDING = ["open", "first bucket", "second bucket"]
RECEIVING = ["window", "invite", "digest", "apply"]
slow = pytest.mark.slow


def most_are_slow(cases: list[str], quick: str) -> list:
    return [case if case == quick else pytest.param(case, marks=slow) for case in cases]


@contextmanager
def world(directory: Path, place: str = "", **options: object) -> Iterator[World]:
    """Two source ranks; replica a of two ranks and b of one, which serve version 1, or what they were started with
    where a test is about the first push."""
    with World(directory, trained(2, 1), TIED, 2, **options) as made:  # type: ignore[arg-type]
        for rank in range(2):
            made.source(rank)
        made.replica("a", TWO)
        made.replica("b", ONE)
        made.ready()
        if place not in AT_FIRST:
            recovers(made, 1)
        with watched(made):
            yield made


@contextmanager
def watched(made: World) -> Iterator[None]:
    """The laws, at every look: somebody serves, and no replica goes back."""
    seen: list[VersionsView] = []
    over = threading.Event()

    def look() -> None:
        last_look = False
        while not last_look:
            last_look = over.wait(0.03)
            try:
                seen.append(made.client.versions())
            except UserError:
                continue  # it has been killed

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    last: dict[str, int] = {}
    for view in seen:
        # Where there is only one left to ask, it is asked again a moment later.
        assert any(replica.traffic or replica.phase == "updating" for replica in view.replicas), view
        for replica in view.replicas:
            if replica.traffic:
                assert replica.version is not None and replica.version >= last.get(replica.replica, 0), view
                last[replica.replica] = replica.version
    assert seen


def recovers(made: World, version: int) -> None:
    outcomes = made.push(version)
    assert all(outcome.state == "committed" for outcome in outcomes), outcomes
    for name in ("a", "b"):
        made.wait_serving(name, version)
        made.applied(name, version)


def hears_stop(actor: Actor, place: str) -> None:
    assert actor.hears() == ("at", place)


@pytest.mark.parametrize("place", most_are_slow(SENDING, "second bucket"))
def test_a_publisher_is_killed(tmp_path: Path, place: str) -> None:
    with world(tmp_path, place) as made:
        before = made.versions().target
        made.sources[0].stop_at(place)
        made.begin(2)
        hears_stop(made.sources[0], place)
        made.sources[0].kill()
        what, said = made.sources[1].hears()
        assert what == "push" and "did not get through" in said
        view = made.versions()
        assert view.target == before
        assert all(replica.traffic and replica.version == before for replica in view.replicas)
        made.source(0)
        made.ready()
        recovers(made, 2)


@pytest.mark.parametrize("place", most_are_slow(RECEIVING, "digest"))
def test_a_rank_of_a_replica_is_killed(tmp_path: Path, place: str) -> None:
    """The other replica goes on to the new version; the whole of this one catches up once its rank is there again."""
    with world(tmp_path, place, keep=1) as made:
        victim = made.ranks["a", 1]
        victim.stop_at(place)
        made.begin(2)
        hears_stop(victim, place)
        victim.kill()
        assert all(outcome.state == "committed" for outcome in made.ends())
        made.wait_serving("b", 2)
        made.applied("b", 2)
        assert not made.view("a").traffic
        made.rank("a", TWO, 1)
        made.ready()
        made.wait_serving("a", 2)
        for rank in range(2):
            told = made.ranks["a", rank].hears()
            if place == "apply" and rank == 0 and told == ("applied", 2, []) and made.ranks["a", 0].orders.poll(1):
                told = made.ranks["a", rank].hears()  # it had changed before, and did again with the other
            assert told == ("applied", 2, [])
        recovers(made, 3)


@pytest.mark.parametrize("place", most_are_slow([*SENDING, *RECEIVING], "first bucket"))
def test_the_coordinator_is_killed(tmp_path: Path, place: str) -> None:
    """What was under way goes on: the push gets through as if nothing had been."""
    with world(tmp_path, place) as made:
        actor = made.sources[0] if place in SENDING else made.ranks["a", 1]
        actor.stop_at(place)
        made.begin(2)
        hears_stop(actor, place)
        made.coordinator.kill()
        made.start_coordinator()
        actor.tell("go on")
        assert all(outcome.state == "committed" for outcome in made.ends())
        for name in ("a", "b"):
            made.wait_serving(name, 2)
            made.applied(name, 2)
        recovers(made, 3)


def test_a_damaged_bucket_is_sent_again(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        made.sources[1].stop_at("damage")
        recovers(made, 2)
        assert sum(replica.resent for replica in made.versions().replicas) == 1


@slow
def test_a_bucket_that_is_always_damaged(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        made.sources[1].stop_at("damage always")
        outcomes = made.push(2)
        assert all("came damaged" in outcome for outcome in outcomes), outcomes
        assert made.versions().target == 1
        made.sources[1].stop_at("")
        recovers(made, 2)


@slow
@pytest.mark.parametrize("place", RECEIVING)
def test_a_rank_is_stopped_for_longer_than_its_lease(tmp_path: Path, place: str) -> None:
    with world(tmp_path, place, keep=1) as made:
        victim = made.ranks["b", 0]
        victim.stop_at(place)
        made.begin(2)
        hears_stop(victim, place)
        victim.kill(signal.SIGSTOP)
        assert all(outcome.state == "committed" for outcome in made.ends())
        made.wait_serving("a", 2)
        made.applied("a", 2)
        assert not made.view("b").traffic
        victim.tell("go on")
        victim.kill(signal.SIGCONT)
        made.wait_serving("b", 2)
        while True:
            assert victim.hears() == ("applied", 2, [])
            if not victim.orders.poll(0.5):  # what it had begun with before, and what it was told to do again
                break
        recovers(made, 3)


def test_a_publisher_that_was_believed_dead_harms_nobody(tmp_path: Path) -> None:
    """It stops in the middle of a bucket, another takes its place and pushes, and then it goes on writing."""
    with world(tmp_path) as made:
        zombie = made.sources[0]
        zombie.stop_at("first bucket")
        made.begin(2)
        hears_stop(zombie, "first bucket")
        zombie.kill(signal.SIGSTOP)
        what, said = made.sources[1].hears()
        assert what == "push" and "did not get through" in said
        made.source(0)
        made.ready()
        made.begin(3)
        zombie.tell("go on")
        zombie.kill(signal.SIGCONT)
        assert all(outcome.state == "committed" for outcome in made.ends())
        for name in ("a", "b"):
            made.wait_serving(name, 3)
            made.applied(name, 3)
        what, said = zombie.hears()
        assert what == "push" and "in the place of this one" in said


@slow
def test_a_late_replica_catches_up_before_it_is_asked(tmp_path: Path) -> None:
    with world(tmp_path, keep=2) as made:
        made.replica("late", ONE)
        made.ready()
        made.wait_serving("late", 1)
        made.applied("late", 1)
        recovers(made, 2)
        made.applied("late", 2)


def test_a_roll_back(tmp_path: Path) -> None:
    with World(tmp_path, trained(1, 1), TIED, 1, keep=2) as made:
        made.source(0)
        made.replica("a", TWO)
        made.ready()
        for version in (1, 2):
            assert made.push(version)[0].state == "committed"
            made.applied("a", version)
        with pytest.raises(UserError, match="version 2 is the one that is served"):
            made.client.roll_back(2)
        made.client.roll_back(1)
        made.wait_serving("a", 1)
        made.applied("a", 1)
        assert "is not above version 2" in made.push(2)[0]
        assert made.push(3)[0].state == "committed"
        made.applied("a", 3)
        with pytest.raises(UserError, match="nobody has version 1 any more"):
            made.client.roll_back(1)


@slow
def test_a_slow_replica_is_left_behind_and_catches_up(tmp_path: Path) -> None:
    with world(tmp_path, keep=1, transfer_seconds=3.0) as made:
        slow_one = made.ranks["b", 0]
        slow_one.stop_at("digest")
        made.begin(2)
        hears_stop(slow_one, "digest")
        assert all(outcome.state == "committed" for outcome in made.ends())
        made.wait_serving("a", 2)
        made.applied("a", 2)
        assert not made.view("b").traffic
        slow_one.tell("go on")
        made.wait_serving("b", 2)
        made.applied("b", 2)
        recovers(made, 3)
