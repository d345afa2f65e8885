"""What each event changes. Pure: no clock, no database; a state and an event give the next state.

Every event is followed by `settle`, which draws all conclusions from what is known, whatever came before: so an event
that is told twice, late or after a restart does no harm.
"""

from __future__ import annotations

from msgspec.structs import replace

from posttrain.etha.coordinator.events import (
    Abort,
    Check,
    Driven,
    Event,
    Leaves,
    RankJoins,
    RankSays,
    RollBack,
    SourceJoins,
    SourceSays,
    Tick,
)
from posttrain.etha.coordinator.settings import CoordinatorSettings
from posttrain.etha.coordinator.settling import aborted, drop, failed, settle
from posttrain.etha.coordinator.state import Rank, Replica, Source, State, Version, with_replica, without
from posttrain.etha.wire import RankReport, SourceReport
from posttrain.group_commit import Refused

_FORGIVEN = 3  # leases


def step(state: State, event: Event, now: float, settings: CoordinatorSettings) -> State:
    """The state after the event. Raises Refused, and then nothing has changed."""
    return settle(_take(state, event, now, settings), now, settings)


def forgive(state: State, now: float, settings: CoordinatorSettings) -> State:
    """Everyone's lease anew, and longer: nobody could be heard while the coordinator was away, and who waits for it
    tries less and less often."""
    until = now + _FORGIVEN * settings.lease_seconds
    keys = [f"sources {key}" for key in state.sources] + [f"ranks {key}" for key in state.ranks]
    return replace(state, leases=dict.fromkeys(keys, until))


def _take(state: State, event: Event, now: float, settings: CoordinatorSettings) -> State:
    match event:
        case SourceJoins(group, rank, ranks, layout):
            key, epoch = f"{group}/{rank}", state.counter + 1
            others = [k for k, s in state.sources.items() if s.group == group and s.ranks != ranks]
            joined = Source(group, rank, ranks, epoch, layout, SourceReport(0))
            sources = {**without(state.sources, others), key: joined}
            return _heard(replace(state, counter=epoch, sources=sources), "sources", key, now, settings)
        case RankJoins():
            return _rank_joins(state, event, now, settings)
        case SourceSays(key, epoch, report):
            member = state.sources.get(key)
            if member is None or member.epoch != epoch:
                raise _fenced(key, epoch, replaced=member is not None)
            if report.sequence > member.report.sequence:
                state = replace(state, sources={**state.sources, key: replace(member, report=report)})
            return _heard(state, "sources", key, now, settings)
        case RankSays(key, epoch, report):
            its = state.ranks.get(key)
            if its is None or its.epoch != epoch:
                raise _fenced(key, epoch, replaced=its is not None)
            if report.sequence > its.report.sequence:
                state = replace(state, ranks={**state.ranks, key: replace(its, report=report)})
            return _heard(state, "ranks", key, now, settings)
        case Leaves(kind, key, epoch):
            known = getattr(state, kind).get(key)
            return drop(state, kind, [key]) if known is not None and known.epoch == epoch else state
        case Driven(name, commit, failure):
            known = state.replicas.get(name)
            if known is None or known.commit is None or known.commit.id != commit:
                return state
            if failure:
                return failed(state, name, failure, now, settings)
            return with_replica(state, name, commit=replace(known.commit, driven=True))
        case Abort(version, reason):
            if state.moving != version:
                raise Refused(409, f"version {version} is not on its way")
            return aborted(state, reason, now)
        case RollBack(version):
            return _roll_back(state, version, now)
        case Check():
            return replace(state, checks=state.checks + 1)
        case Tick():
            return state


def _rank_joins(state: State, event: RankJoins, now: float, settings: CoordinatorSettings) -> State:
    key, epoch = f"{event.replica}/{event.rank}", state.counter + 1
    if not 0 <= event.rank < event.ranks:
        raise Refused(422, f"rank {event.rank} is none of {event.ranks}")
    known = state.replicas.get(event.replica)
    if known is None or known.ranks != event.ranks:
        state = drop(state, "ranks", [k for k, r in state.ranks.items() if r.replica == event.replica])
        fresh = Replica(event.ranks, event.url)
        state = replace(state, replicas={**state.replicas, event.replica: fresh})
    else:
        # Whatever its engine was, it is the newcomer's now, who has not served and takes part in nothing.
        url = event.url or known.url
        state = with_replica(state, event.replica, url=url, attempt=None, commit=None, lags=False)
    report = RankReport(0, applied=event.applied)
    joined = Rank(event.replica, event.rank, event.ranks, epoch, event.wants, event.address, report)
    highest = max(state.highest, event.applied or 0)
    state = replace(state, counter=epoch, highest=highest, ranks={**state.ranks, key: joined})
    return _heard(state, "ranks", key, now, settings)


def _roll_back(state: State, version: int, now: float) -> State:
    if state.moving is not None:
        raise Refused(409, f"version {state.moving} is on its way; abort it, or wait for it")
    if version == state.target:
        raise Refused(409, f"version {version} is the one that is served")
    if version > state.highest:
        raise Refused(409, f"version {version} was never decided; the highest was {state.highest}")
    group = state.offering(version)
    if group is None:
        raise Refused(409, f"nobody has version {version} any more; publish it from a checkpoint, or keep more of them")
    begun = Version("moving", group, now, back=True, pushes=state.pushes(group, version))
    moved = {**state.versions, version: begun}
    return replace(state, moving=version, versions=moved)


def _fenced(key: str, epoch: int, *, replaced: bool) -> Refused:
    if replaced:
        return Refused(409, f"another process has taken the place of {key}")
    return Refused(410, f"{key} of epoch {epoch} is no member any more; it must join again")


def _heard(state: State, kind: str, key: str, now: float, settings: CoordinatorSettings) -> State:
    return replace(state, leases={**state.leases, f"{kind} {key}": now + settings.lease_seconds})
