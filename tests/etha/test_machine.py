"""The laws of versions, over any order of events: members that come, die and return, transfers that break, roll backs.

The machine is driven as members would: each does some of what its orders say, or nothing, or fails. What an engine
holds is kept beside it, as the engine's own truth, with the ranks of a replica apart.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from posttrain.etha.coordinator import events, machine, orders
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.etha.coordinator.state import State
from posttrain.etha.wire import Address, RankReport, SourceReport
from posttrain.group_commit import Refused

REPLICAS = ("a", "b", "c")
RANKS, SOURCES = 2, 2
SETTINGS = CoordinatorSettings(lease_seconds=10, transfer_seconds=60, commit_seconds=30, retry_seconds=1)
ADDRESS = Address("shm", "nowhere", "key")
replicas = st.sampled_from(REPLICAS)
ranks = st.integers(0, RANKS - 1)
sources = st.integers(0, SOURCES - 1)


class Versions(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.state, self.now = State(), 0.0
        self.pushed, self.nonce = 0, 0
        self.rolled_back = False
        self.offers: list[dict[int, int]] = [{} for _ in range(SOURCES)]
        self.epochs: dict[str, int] = {}
        self.sequence = 0
        self.held: dict[str, tuple[int, dict[int, str]] | None] = {}
        self.engine: dict[str, int | None] = {}
        self.broken: dict[str, dict[int, str]] = {}
        self.failed: dict[str, tuple[int, str] | None] = {}
        self.sent: list[dict[int, dict[int, str]]] = [{} for _ in range(SOURCES)]
        self.spoke: dict[str, float] = {}
        self.highest_answered = dict.fromkeys(REPLICAS, 0)
        for rank in range(SOURCES):
            self.source_starts(rank)
        for name in REPLICAS[:2]:
            for rank in range(RANKS):
                self.rank_starts(name, rank)

    def tell(self, event: events.Event) -> bool:
        before = self.state
        try:
            self.state = machine.step(self.state, event, self.now, SETTINGS)
        except Refused:
            return False
        self.check_step(before, self.state)
        return True

    def check_step(self, before: State, after: State) -> None:
        if after.target != before.target:
            assert before.moving == after.target or self.begun_and_decided(after)
            assert after.target > before.target or after.versions[after.target].back
            assert any(after.holds(name, after.target) for name in after.replicas)
        for name, replica in after.replicas.items():
            old = before.replicas.get(name)
            if replica.commit is not None and (old is None or old.commit != replica.commit):
                self.check_commit(before, after, name)

    def begun_and_decided(self, after: State) -> bool:
        return after.versions[after.target].state == "committed"

    def check_commit(self, before: State, after: State, name: str) -> None:
        """What is about to be put into the engine was decided, and every rank holds it as it was sent."""
        commit = after.replicas[name].commit
        assert commit is not None and commit.version == after.target
        for rank in range(RANKS):
            held = self.held[f"{name}/{rank}"]
            assert held is not None and held[0] == commit.version, "a rank that does not hold it would be changed"
        changing = [n for n, r in after.replicas.items() if r.commit is not None]
        assert len(changing) <= SETTINGS.max_unavailable

    @invariant()
    def a_replica_in_traffic_is_whole(self) -> None:
        """One version in all of its ranks' engines, and never an earlier one than it answered with, but by a roll
        back."""
        for name in self.state.traffic():
            held = {self.engine[f"{name}/{rank}"] for rank in range(RANKS)}
            assert len(held) == 1 and None not in held, f"{name} would answer with a mix: {held}"
            (version,) = held
            assert version is not None
            if not self.rolled_back:
                assert version >= self.highest_answered[name]
            self.highest_answered[name] = version

    @invariant()
    def the_settled_state_is_settled(self) -> None:
        assert machine.settle(self.state, self.now, SETTINGS) == self.state

    @rule(rank=sources)
    def source_starts(self, rank: int) -> None:
        """Also: one that was killed starts again, and has nothing to offer."""
        self.offers[rank], self.sent[rank] = {}, {}
        self.tell(events.SourceJoins("trainer", rank, SOURCES, f"layout {rank}"))
        self.epochs[f"trainer/{rank}"] = self.state.sources[f"trainer/{rank}"].epoch
        self.source_speaks(rank)

    @rule(name=replicas, rank=ranks, keeps=st.booleans())
    def rank_starts(self, name: str, rank: int, keeps: bool = False) -> None:
        """Also: one that was killed starts again with the first weights, or one that was fenced comes back as it is."""
        key = f"{name}/{rank}"
        if not (keeps and key in self.engine):
            self.engine[key] = 0
        self.held[key], self.broken[key], self.failed[key] = None, {}, None
        applied = self.engine[key] or 0
        if self.engine[key] is None:
            self.engine[key] = 0  # it was changed halfway, and its process had to be started anew
        if rank == 0 and not any(f"{name}/{r}" in self.state.ranks for r in range(RANKS)):
            self.highest_answered[name] = 0  # another engine by the same name
        self.tell(events.RankJoins(name, rank, RANKS, f"wants {rank}", ADDRESS, "", applied))
        self.epochs[key] = self.state.ranks[key].epoch
        self.rank_speaks(name, rank)

    @rule(rank=sources)
    def source_speaks(self, rank: int) -> None:
        key = f"trainer/{rank}"
        self.sequence += 1
        report = SourceReport(self.sequence, dict(self.offers[rank]), dict(self.sent[rank]), {})
        if self.tell(events.SourceSays(key, self.epochs[key], report)):
            return
        assert key not in self.state.sources
        # Fenced: it joins again, with what it has.
        self.tell(events.SourceJoins("trainer", rank, SOURCES, f"layout {rank}"))
        self.epochs[key] = self.state.sources[key].epoch
        self.tell(events.SourceSays(key, self.epochs[key], report))

    @rule(name=replicas, rank=ranks)
    def rank_speaks(self, name: str, rank: int) -> None:
        key = f"{name}/{rank}"
        if key not in self.epochs:
            return
        self.sequence += 1
        held = self.held[key]
        attempt = self.state.replicas[name].attempt
        report = RankReport(self.sequence, applied=self.engine[key], broken=self.broken[key], failed=self.failed[key])
        if held is not None and attempt is not None and attempt.version == held[0]:
            report = RankReport(
                self.sequence, self.engine[key], attempt.id, held[1], 0, 0, self.broken[key], self.failed[key]
            )
        if not self.tell(events.RankSays(key, self.epochs[key], report)):
            self.rank_starts(name, rank, keeps=True)

    @rule()
    def push(self) -> None:
        """By every rank of the trainer; the number of a version that failed may be used again."""
        if self.pushed <= self.state.highest:
            self.pushed = self.state.highest + 1
        for rank in range(SOURCES):
            self.nonce += 1
            self.offers[rank][self.pushed] = self.nonce
            self.source_speaks(rank)

    @rule(rank=sources)
    def withdraw_the_oldest(self, rank: int) -> None:
        if self.offers[rank]:
            del self.offers[rank][min(self.offers[rank])]
            self.source_speaks(rank)

    @rule(name=replicas, damaged=st.booleans())
    def transfer(self, name: str, damaged: bool) -> None:
        """All of what the orders say of one replica is carried out; the last rank may hold something else."""
        there = self.state.replicas.get(name)
        if there is None or there.attempt is None or there.attempt.held:
            return
        attempt = there.attempt
        for rank in range(SOURCES):
            told = orders.for_source(self.state, f"trainer/{rank}")
            if any(send.attempt == attempt.id for send in told.sends):
                self.sent[rank][attempt.id] = {r: f"{attempt.version} to {r}" for r in range(RANKS)}
                self.source_speaks(rank)
        for rank in range(RANKS):
            key = f"{name}/{rank}"
            if key not in self.state.ranks:
                continue
            told = orders.for_rank(self.state, key)
            if told.receive is not None and told.receive.attempt == attempt.id:
                wrong = damaged and rank == RANKS - 1
                digest = "damaged" if wrong else f"{attempt.version} to {rank}"
                self.held[key] = (attempt.version, dict.fromkeys(range(SOURCES), digest))
                self.rank_speaks(name, rank)
                if wrong:
                    self.held[key] = None

    @rule(name=replicas, rank=ranks)
    def transfer_breaks(self, name: str, rank: int) -> None:
        there = self.state.replicas.get(name)
        if there is not None and there.attempt is not None and not there.attempt.held:
            self.broken[f"{name}/{rank}"] = {there.attempt.id: "the source is gone"}
            self.rank_speaks(name, rank)

    @rule(rank=ranks)
    def an_engine_breaks(self, rank: int) -> None:
        """In the middle of a change, after the next push has come as far as that."""
        if self.state.moving is None and all(replica.commit is None for replica in self.state.replicas.values()):
            self.push()
            for name in list(self.state.replicas):
                self.transfer(name, damaged=False)
        for name, replica in self.state.replicas.items():
            if replica.commit is not None:
                self.engine_changes(name, 1 - rank, breaks=False)
                self.engine_changes(name, rank, breaks=True)
                return

    @rule(name=replicas, rank=ranks, breaks=st.booleans())
    def engine_changes(self, name: str, rank: int, breaks: bool) -> None:
        key = f"{name}/{rank}"
        if key not in self.state.ranks:
            return
        told = orders.for_rank(self.state, key)
        if told.apply is None:
            return
        held = self.held[key]
        assert held is not None and held[0] == told.apply.version
        self.engine[key] = None if breaks else told.apply.version
        self.failed[key] = (told.apply.commit, "the engine broke") if breaks else None
        self.rank_speaks(name, rank)

    @rule(seconds=st.sampled_from([0.5, 3.0, 8.0]), silent=st.sets(st.sampled_from([
        *(f"trainer/{r}" for r in range(SOURCES)), *(f"{n}/{r}" for n in REPLICAS for r in range(RANKS)),
    ]), max_size=3))  # fmt: skip
    def time_passes(self, seconds: float, silent: set[str]) -> None:
        """Twice as long for those who are silent, which is longer than a lease."""
        for _ in range(2):
            self.now += seconds
            for key in list(self.epochs):
                group, _, rank = key.rpartition("/")
                if key in silent:
                    continue
                self.source_speaks(int(rank)) if group == "trainer" else self.rank_speaks(group, int(rank))
        self.tell(events.Tick())

    @rule(back=st.integers(1, 3))
    def roll_back(self, back: int) -> None:
        if self.tell(events.RollBack(max(1, self.state.target - back))):
            self.rolled_back = True

    @rule()
    def abort(self) -> None:
        if self.state.moving is not None:
            before = self.state.target
            self.tell(events.Abort(self.state.moving))
            assert self.state.target == before

    @rule()
    def coordinator_restarts(self) -> None:
        """With what is on disk: all but the leases."""
        self.state = machine.forgive(self.state, self.now, SETTINGS)

    @rule()
    def all_goes_well(self) -> None:
        """Whatever has come before: with everyone there, the next push is served by every replica."""
        for rank in range(SOURCES):
            self.source_speaks(rank)
        for name in list(self.state.replicas):
            for rank in range(RANKS):
                if f"{name}/{rank}" not in self.state.ranks:
                    self.rank_starts(name, rank, keeps=True)
        if self.state.moving is not None:
            self.abort()
        for _ in range(40):
            self.now += 2.0
            self.work()
        self.push()
        version = self.pushed
        for _ in range(40):
            self.now += 2.0
            self.work()
        assert self.state.target == version and set(self.state.traffic()) == set(self.state.replicas)
        assert {self.state.engine(name) for name in self.state.replicas} <= {version}

    @rule()
    def work(self) -> None:
        """Everyone does what there is to do, and speaks."""
        for rank in range(SOURCES):
            self.source_speaks(rank)
        for name in list(self.state.replicas):
            for rank in range(RANKS):
                self.rank_speaks(name, rank)
        served = len(self.state.traffic())
        for name in list(self.state.replicas):
            self.transfer(name, damaged=False)
            for rank in range(RANKS):
                self.engine_changes(name, rank, breaks=False)
        if len(self.state.replicas) > 1 and served > 1:
            assert self.state.traffic(), "an update without failures takes everyone out of traffic"
        self.tell(events.Tick())


Versions.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestVersions = Versions.TestCase
