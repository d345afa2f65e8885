"""What each member shall do, what is told of a version, and what people see: all of it read from the state."""

from __future__ import annotations

from posttrain.etha.coordinator.state import State
from posttrain.etha.wire import Apply, Outcome, RankOrders, Receive, Send, SourceOrders


def for_source(state: State, key: str) -> SourceOrders:
    """Of the member `key`, which is there."""
    me = state.sources[key]
    sends = []
    for name, replica in state.replicas.items():
        attempt, members = replica.attempt, state.members(name)
        if attempt is None or attempt.held or members is None or attempt.group != me.group:
            continue
        if me.epoch in attempt.sources and attempt.id not in me.report.sent:
            ranks = {rank.rank: rank.address for rank in members}
            sends.append(Send(attempt.id, attempt.version, name, attempt.plan, ranks))
    return SourceOrders(tuple(sends), {v: outcome(state, v, key) for v in me.report.offers})


def for_rank(state: State, key: str) -> RankOrders:
    """Of the member `key`, which is there."""
    me = state.ranks[key]
    replica = state.replicas[me.replica]
    attempt, commit = replica.attempt, replica.commit
    receive = Receive(attempt.id, attempt.version, attempt.plan) if attempt else None
    apply = Apply(commit.id, commit.version) if commit and not replica.url else None
    return RankOrders(receive, apply, state.checks)


def outcome(state: State, version: int, key: str) -> Outcome:
    """Of a version that the source `key` offers; `waiting` where nothing has been begun with its push."""
    known, push = state.versions.get(version), state.sources[key].report.offers[version]
    if known is None or (known.state == "aborted" and known.pushes.get(key) != push):
        return Outcome("waiting")
    if known.state == "moving":
        return Outcome("moving")  # who is how far changes often, and nothing follows from it
    serving: list[str] = []
    ready: list[str] = []
    pending: list[str] = []
    for name, replica in state.replicas.items():
        attempt = replica.attempt
        held = attempt is not None and attempt.held and attempt.version == version
        soon = (held or replica.commit is not None) and replica.failures == 0
        place = serving if state.engine(name) == version else ready if soon else pending
        place.append(name)
    return Outcome(known.state, known.reason, tuple(serving), tuple(ready), tuple(pending))


def happened(before: State, after: State) -> list[dict[str, object]]:
    """What there is to tell of the difference, as structured events."""
    told: list[dict[str, object]] = []
    for number, version in after.versions.items():
        old = before.versions.get(number)
        if old is None or old.state != version.state:
            event: dict[str, object] = {"event": f"version {version.state}", "version": number}
            if version.reason and version.ended is not None:
                event["reason"] = version.reason
            if version.ended is not None:
                event["seconds"] = round(version.ended - version.since, 6)
            told.append(event)
    for kind in ("sources", "ranks"):
        ours, theirs = getattr(before, kind), getattr(after, kind)
        told += [{"event": f"{kind[:-1]} left", "member": key} for key in ours if key not in theirs]
        told += [
            {"event": f"{kind[:-1]} joined", "member": key, "epoch": member.epoch}
            for key, member in theirs.items()
            if key not in ours or ours[key].epoch != member.epoch
        ]
    took, takes = before.traffic(), after.traffic()
    for name, replica in after.replicas.items():
        was = before.replicas.get(name)
        phases = (before.phase(name, took) if was else "new", after.phase(name, takes))
        if phases[0] != phases[1]:
            told.append({
                "event": f"replica {phases[1]}", "replica": name, "version": after.engine(name), "was": phases[0],
            })  # fmt: skip
        if was is not None and replica.failures > was.failures:
            told.append({"event": "replica failed", "replica": name, "reason": replica.reason})
    return told
