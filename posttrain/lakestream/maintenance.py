"""Upkeep of a stream: compaction, retention with an archive, fenced clean-up of old versions.

Invariants: safe from several places at once and beside every producer and consumer; whoever is late finds
nothing to do or is refused. A run that dies half way leaves a stream that the next run takes up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from posttrain.lakestream import changes, compaction, metrics, upkeep
from posttrain.lakestream.commit import Patience, commit, read_controls
from posttrain.lakestream.contention import alone
from posttrain.lakestream.controls import Controls, Mark
from posttrain.lakestream.errors import OffsetRemoved, ProducerFenced, StreamError
from posttrain.lakestream.events import emit, logger
from posttrain.lakestream.offsets import end_of
from posttrain.lakestream.storage import name_of
from posttrain.lakestream.table import Conflict, Table, Unanswered, answers
from posttrain.lakestream.upkeep import Policy, Removal


@dataclass
class Upkeep:
    """What one run did; nothing where it was not due. `skipped` names what another commit was in the way of."""

    due: bool = True
    compacted_fragments: int = 0
    removed_rows: int = 0
    removed_versions: int = 0
    removed_bytes: int = 0
    fragments: int = 0
    seconds: float = 0.0
    skipped: list[str] = field(default_factory=list)


class Keeper:
    """Runs the maintenance of a producer's stream in a thread of its process, one run at a time, when it is due."""

    def __init__(self, run: Callable[..., Upkeep], policy: Policy):
        self._run, self._policy = run, policy
        self._due_at = 0  # version before which there is no need to look
        self._thread: threading.Thread | None = None

    def after_commit(self, version: int) -> None:
        if version < self._due_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._due_at = version + max(1, self._policy.every_commits // 4)
        self._thread = threading.Thread(target=self._maintain, name="lakestream-upkeep")  # a process ends after it
        self._thread.start()

    def _maintain(self) -> None:
        try:
            self._run(self._policy, force=False)
        except StreamError as problem:  # appends go on; the next run, here or elsewhere, takes it up
            logger.warning("maintenance failed: %s", problem)


def maintain(
    table: Table, policy: Policy, timeout: float, archive: Callable[[int], None] | None, *, force: bool
) -> Upkeep:
    """One run over `table`. `archive` takes every row with an id below its argument that it does not have yet."""
    started = time.monotonic()
    patience = Patience(timeout, table.uri)
    controls = read_controls(table, patience)
    if not force and not upkeep.is_due(controls, table.version, policy):
        return Upkeep(due=False)
    done = Upkeep()
    _remove(table, policy, done, patience, archive)  # before rows that may go are merged with some that may not yet
    for step in (_compact, _index):
        try:
            step(table, policy, done, patience)
        except (Conflict, Unanswered) as problem:
            done.skipped.append(f"{step.__name__.strip('_')}: {problem}")
    _clean(table, policy, done, patience)
    controls = read_controls(table, patience)
    done.fragments, done.seconds = len(table.spans()), time.monotonic() - started
    label = name_of(table.uri)
    metrics.FRAGMENTS.labels(label).set(done.fragments)
    metrics.STORED_BYTES.labels(label).set(sum(span.bytes for span in table.spans()))
    return done


def _compact(table: Table, policy: Policy, done: Upkeep, patience: Patience) -> None:
    """Merge small data fragments. Lance refuses the commit where one of them is gone, so a late run does no harm."""
    read_controls(table, patience)
    groups = upkeep.to_compact(table.spans(), policy, compaction.indexed(table))
    if not groups:
        return
    merged = [compaction.stage(table, group) for group in groups]
    with alone(table.uri):  # among quick producers it would never have its turn
        compaction.put(table, groups, merged)
    done.compacted_fragments = sum(map(len, groups))
    emit("compacted", name_of(table.uri), fragments=done.compacted_fragments, into=len(groups))


def _index(table: Table, policy: Policy, done: Upkeep, patience: Patience) -> None:
    """Take rows that came since into the indexes, where there are any."""
    read_controls(table, patience)
    with answers(table.uri):
        dataset = table.dataset.checkout_version(table.version)
        if dataset.describe_indices():
            dataset.optimize.optimize_indices()


def _remove(
    table: Table, policy: Policy, done: Upkeep, patience: Patience, archive: Callable[[int], None] | None
) -> None:
    removed: list[Removal] = []

    def decide(controls: Controls) -> changes.Change | None:
        found = upkeep.removal(controls, table.spans(), time.time(), policy)
        if found is None:
            return None
        if archive is not None:
            archive(found.below)
        removed[:] = [found]
        return changes.remove(controls, found.fragments, found.below, found.rows)

    try:
        commit(table, decide, patience)
    except (ProducerFenced, OffsetRemoved):  # fenced while it copies, or before it has read what that one removed
        done.skipped.append("archive: another maintainer is at it")
        return
    if removed:
        label = name_of(table.uri)
        done.removed_rows = removed[-1].rows
        metrics.REMOVED_ROWS.labels(label).inc(done.removed_rows)
        emit("removed", label, rows=done.removed_rows, below=removed[-1].below)


def _clean(table: Table, policy: Policy, done: Upkeep, patience: Patience) -> None:
    """Commit a fence with a mark of what is newest now; then remove versions older than it that are old enough."""
    mine: list[Mark] = []

    def decide(controls: Controls) -> changes.Change | None:
        marks = controls.memory.marks
        if any(mark in marks for mark in mine):
            return None
        now = time.time()
        mine.append(Mark(now, table.version, max(end_of(table.spans()), controls.memory.removed_below)))
        return changes.fence(controls, mine[-1], upkeep.marks_to_keep(marks, now, policy))

    commit(table, decide, patience)
    controls = read_controls(table, patience)
    label = name_of(table.uri)
    emit("fenced", label, version=table.version)
    # the fence is younger than the version of every mark, its own too
    bound = upkeep.removable_version(controls.memory.marks, time.time(), policy.keep_versions)
    try:
        with answers(table.uri):
            kept = [ref["version"] for ref in table.dataset.version_refs()]
            old = [version for version in kept if version <= bound]
            metrics.VERSIONS.labels(label).set(len(kept) - len(old))
            if not old:
                return
            found = table.dataset.cleanup_old_versions(
                older_than=timedelta(0), versions=old, error_if_tagged_old_versions=False
            )
    except (Conflict, Unanswered) as problem:  # another maintainer removes the same files
        done.skipped.append(f"clean: {problem}")
        return
    done.removed_versions, done.removed_bytes = found.old_versions, found.bytes_removed
    emit("cleaned", label, versions=found.old_versions, bytes=found.bytes_removed)
