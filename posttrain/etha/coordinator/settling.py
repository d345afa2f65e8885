"""All that follows from what is known at a moment: who is lost, what is decided, who shall send, who shall change.

Pure, and the same however often it is drawn. Invariants: a replica's engine changes only to a version that every rank
of it holds as its sources sent it, after that version was decided; the target goes back only by a roll back; a version
that fails leaves the one before as the target; no engine is changed while that would take the last one that serves away
from those who ask, unless there is no other to wait for.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.etha.coordinator.state import Attempt, Commit, State, Version, with_replica, without


def settle(state: State, now: float, settings: CoordinatorSettings) -> State:
    """All that follows from what is known at `now`."""
    while True:
        before = state
        for conclude in (_expire, _lose_source, _begin, _check_attempts, _decide, _check_commits, _commit, _attempt):
            state = conclude(state, now, settings)
        if state == before:
            return _forget(state, settings)


def _expire(state: State, now: float, settings: CoordinatorSettings) -> State:
    for kind in ("sources", "ranks"):
        gone = [key for key in getattr(state, kind) if state.leases.get(f"{kind} {key}", now) <= now]
        if gone:
            state = drop(state, kind, gone)
    return state


def _lose_source(state: State, now: float, settings: CoordinatorSettings) -> State:
    if state.moving is not None and not _all_hold(state) and not state.goes_on():
        return aborted(state, "its publisher is gone, or has withdrawn it", now)
    return state


def _begin(state: State, now: float, settings: CoordinatorSettings) -> State:
    """Begin with a version that is offered, once those who hold the last have it in their engines."""
    offered = {version for source in state.sources.values() for version in source.report.offers}
    waits = any(
        replica.failures == 0 and (replica.commit is not None or _ready(state, name))
        for name, replica in state.replicas.items()
    )
    if state.moving is not None or waits:
        return state
    for number in sorted(offered, reverse=True):
        group = state.offering(number) if number > state.highest else None
        if group is None:
            continue
        pushes, known = state.pushes(group, number), state.versions.get(number)
        if known is None or not set(pushes.items()) & set(known.pushes.items()):
            begun = {**state.versions, number: Version("moving", group, now, pushes=pushes)}
            fresh = {name: replace(replica, failures=0, retry_at=0.0) for name, replica in state.replicas.items()}
            return replace(state, moving=number, versions=begun, replicas=fresh)
    return state


def _check_attempts(state: State, now: float, settings: CoordinatorSettings) -> State:
    for name, replica in state.replicas.items():
        attempt = replica.attempt
        if attempt is None:
            continue
        members = state.members(name)
        if members is None or tuple(rank.epoch for rank in members) != attempt.ranks:
            state = with_replica(state, name, attempt=None, commit=None, lags=False)
            continue
        if attempt.held:
            if attempt.version not in (state.moving, state.target):
                state = with_replica(state, name, attempt=None)
            continue
        group = state.group(attempt.group) or ()
        wanted = state.wanted(name)
        if tuple(s.epoch for s in group) != attempt.sources or wanted != attempt.version or any(
            attempt.version not in s.report.offers for s in group
        ):  # fmt: skip
            state = with_replica(state, name, attempt=None)
            continue
        said = [*(rank.report.broken for rank in members), *(source.report.broken for source in group)]
        broken = next((why[attempt.id] for why in said if attempt.id in why), None)
        if broken is None and all(rank.report.held == attempt.id for rank in members):
            # What a source sent to a rank it says after the rank has said what it holds, or before.
            pairs = [
                (group[s].report.sent.get(attempt.id, {}).get(rank.rank), digest)
                for rank in members
                for s, digest in rank.report.digests.items()
            ]
            if any(sent is not None and sent != held for sent, held in pairs):
                broken = "what a rank holds is not what was sent to it"
            elif all(sent is not None for sent, _ in pairs):
                state = with_replica(state, name, attempt=replace(attempt, held=True), failures=0, reason="")
        if broken is not None:
            state = with_replica(failed(state, name, broken, now, settings), name, attempt=None)
    return _no_lag_of_the_lost(state)


def _no_lag_of_the_lost(state: State) -> State:
    for name, replica in state.replicas.items():
        if replica.lags and state.members(name) is None:
            state = with_replica(state, name, lags=False)
    return state


def _candidates(state: State, settings: CoordinatorSettings) -> list[str]:
    """The replicas that a decision waits for."""
    return [n for n, r in state.replicas.items() if state.members(n) is not None and r.failures < settings.tries]


def _all_hold(state: State) -> bool:
    there = [name for name in state.replicas if state.members(name) is not None]
    return state.moving is not None and bool(there) and all(state.holds(name, state.moving) for name in there)


def _decide(state: State, now: float, settings: CoordinatorSettings) -> State:
    version = state.moving
    if version is None:
        return state
    known = state.versions[version]
    holders = [name for name in state.replicas if state.holds(name, version)]
    candidates = _candidates(state, settings)
    late = now - known.since >= settings.transfer_seconds
    given_up = not candidates and any(state.members(name) is not None for name in state.replicas)
    if holders and (late or set(candidates) <= set(holders)):
        serving = set(state.traffic())
        replicas = {
            name: replace(replica, lags=name in serving, retry_at=0.0) for name, replica in state.replicas.items()
        }
        versions = {**state.versions, version: replace(known, state="committed", ended=now)}
        highest = max(state.highest, version)
        return replace(
            state, target=version, highest=highest, moving=None, replicas=replicas, versions=versions
        )  # fmt: skip
    if late or (given_up and not holders):
        reasons = sorted({replica.reason for replica in state.replicas.values() if replica.reason})
        why = f"no replica held it after {now - known.since:.3g} s"
        return aborted(state, ": ".join([why, *reasons]), now)
    return state


def _check_commits(state: State, now: float, settings: CoordinatorSettings) -> State:
    for name, replica in state.replicas.items():
        commit, members = replica.commit, state.members(name)
        if commit is None or members is None:
            continue
        why = next((r.report.failed[1] for r in members if r.report.failed and r.report.failed[0] == commit.id), "")
        if why:
            state = failed(state, name, why, now, settings)
        elif commit.driven and all(rank.report.applied == commit.version for rank in members):
            state = with_replica(state, name, commit=None, attempt=None, lags=False, failures=0, reason="")
        elif now - commit.since >= settings.commit_seconds:
            state = failed(state, name, f"did not change within {settings.commit_seconds:g} s", now, settings)
    return state


def _ready(state: State, name: str) -> bool:
    """Holds the target beside its engine."""
    attempt = state.replicas[name].attempt
    return attempt is not None and attempt.held and attempt.version == state.target and bool(state.members(name))


def _commit(state: State, now: float, settings: CoordinatorSettings) -> State:
    """Have replicas change, those first whom nobody asks anyway."""
    traffic = set(state.traffic())
    ready = [
        name for name, replica in state.replicas.items()
        if replica.commit is None and _ready(state, name) and replica.retry_at <= now
    ]  # fmt: skip
    for name in sorted(ready, key=lambda name: (name in traffic, name)):
        changing = sum(replica.commit is not None for replica in state.replicas.values())
        others = traffic - {name}
        if changing >= settings.max_unavailable or (name in traffic and not others and changing):
            continue
        replica = state.replicas[name]
        commit = Commit(state.counter + 1, state.target, now, driven=not replica.url)
        state = replace(with_replica(state, name, commit=commit), counter=commit.id)
        traffic = others
    return state


def _attempt(state: State, now: float, settings: CoordinatorSettings) -> State:
    for name, replica in state.replicas.items():
        version, members = state.wanted(name), state.members(name)
        there = replica.attempt is not None and replica.attempt.version == version
        if version is None or members is None or there or replica.retry_at > now:
            continue
        if state.moving is not None and replica.failures >= settings.tries:
            continue
        name_of_group = state.offering(version)
        group = state.group(name_of_group) if name_of_group is not None else None
        if name_of_group is None or group is None:
            continue
        attempt = Attempt(
            state.counter + 1, version, name_of_group, tuple(s.epoch for s in group), tuple(r.epoch for r in members),
            plan_name([s.layout for s in group], [r.wants for r in members], settings.bucket_bytes), now,
        )  # fmt: skip
        state = replace(with_replica(state, name, attempt=attempt), counter=attempt.id)
    return state


def plan_name(layouts: list[str], wants: list[str], bucket_bytes: int) -> str:
    return hashlib.sha256(repr((layouts, wants, bucket_bytes)).encode()).hexdigest()


def _forget(state: State, settings: CoordinatorSettings) -> State:
    ended = sorted(number for number, known in state.versions.items() if known.state != "moving")
    old = set(ended[: -settings.keep_versions]) - {state.target}
    if not old:
        return state
    return replace(state, versions={n: known for n, known in state.versions.items() if n not in old})


def drop(state: State, kind: str, keys: list[str]) -> State:
    left = without(getattr(state, kind), keys)
    return replace(state, leases=without(state.leases, [f"{kind} {key}" for key in keys]), **{kind: left})


def aborted(state: State, reason: str, now: float) -> State:
    version = state.moving
    assert version is not None
    known = state.versions[version]
    # A roll back that fails leaves the version what it was: one that had been decided.
    ended = "committed" if known.back else "aborted"
    changed = replace(known, state=ended, ended=now, reason=reason)
    return replace(state, moving=None, versions={**state.versions, version: changed})


def failed(state: State, name: str, reason: str, now: float, settings: CoordinatorSettings) -> State:
    failures = state.replicas[name].failures + 1
    pause = settings.retry_seconds * 2.0 ** min(failures - 1, 6)
    return with_replica(state, name, commit=None, failures=failures, retry_at=now + pause, reason=reason)
