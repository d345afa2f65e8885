"""What Lance does that costs rows, shown on Lance alone, and that a stream does not fall for it.

The first half of each test is Lance's behaviour: when it changes with a release, the test says so.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments
from lance.optimize import Compaction

from posttrain.lakestream import Policy, ProducerFenced, Stream, StreamDamaged, changes, compaction
from posttrain.lakestream.events import Event, listen
from posttrain.lakestream.table import Conflict
from posttrain.lakestream.upkeep import to_compact
from tests.lakestream.worker import rows

AT_ONCE = Policy(keep_versions=0)
COLUMNS = {"producer": "producer", "sequence": "seq"}


def plain(path: Path) -> LanceDataset:
    empty = rows("a", 0, 0)
    return lance.write_dataset(empty, str(path), data_storage_version="2.2", enable_stable_row_ids=True)


def numbers(stream: Stream) -> list[int]:
    return stream.snapshot().to_table()["seq"].to_pylist()


def test_a_stale_append_is_rebased_by_lance_and_refused_by_a_stream(tmp_path: Path, stream: Stream) -> None:
    stale = plain(tmp_path / "plain")
    lance.write_dataset(rows("a", 0, 1), str(tmp_path / "plain"), mode="append")
    late = LanceOperation.Append(write_fragments(rows("a", 0, 1), stale, mode="append"))
    LanceDataset.commit(stale, late, read_version=stale.version, max_retries=0)
    assert lance.dataset(str(tmp_path / "plain")).count_rows() == 2, "no compare-and-swap"

    old = stream.producer("a")
    new = stream.producer("a")
    new.append(rows("a", 0, 1), 1)
    with pytest.raises(ProducerFenced):
        old.append(rows("a", 0, 1), 1)
    assert numbers(stream) == [0]


def test_one_transaction_committed_twice_lands_twice_in_lance_and_once_in_a_stream(
    tmp_path: Path, stream: Stream
) -> None:
    dataset = plain(tmp_path / "plain")
    operation = LanceOperation.Append(write_fragments(rows("a", 0, 1), dataset, mode="append"))
    transaction = lance.Transaction(dataset.version, operation)
    for _ in range(2):
        LanceDataset.commit(dataset, transaction)
    assert lance.dataset(str(tmp_path / "plain")).count_rows() == 2

    producer = stream.producer("a")
    producer.append(rows("a", 0, 1), 1)
    table = producer._table.fork()
    controls = table.controls()
    assert controls is not None
    held = controls.producers["a"]
    change = changes.append(controls.stream, held, held.body, 2, 1, 0.0)
    staged = table.stage_for(change, rows("a", 1, 1))
    table.fork().commit(change, *staged)
    with pytest.raises(Conflict):
        table.commit(change, *staged)
    assert numbers(stream) == [0, 1]


@pytest.mark.parametrize("fenced", [False, True])
def test_a_zombie_lands_after_lances_clean_up_and_not_after_a_fenced_one(stream: Stream, fenced: bool) -> None:
    zombie = stream.producer("a")
    table, mine = zombie._table, zombie._mine
    read = table.controls()
    assert read is not None  # the zombie has read the controls, and sleeps
    successor = stream.producer("a")
    successor.append(rows("a", 0, 1), 1)
    stream.producer("b")
    if fenced:
        stream.maintain(AT_ONCE)
    else:
        lance.dataset(stream.uri).cleanup_old_versions(older_than=timedelta(0))
    change = changes.append(read.stream, read.producers["a"], mine, 1, 1, 0.0)
    staged = table.stage_for(change, rows("a", 0, 1))
    if fenced:
        with pytest.raises(Conflict):
            table.commit(change, *staged)
        assert numbers(stream) == [0]
        return
    table.commit(change, *staged)
    stored = lance.dataset(stream.uri).to_table(filter="ctl IS NULL")
    assert stored["seq"].to_pylist() == [0, 0], "Lance does not see conflicts with versions that are gone"
    with pytest.raises(StreamDamaged, match=r"two controls for producer/a"):
        stream.describe()


def test_a_second_and_a_third_clean_up_keep_the_zombie_out(stream: Stream) -> None:
    zombie = stream.producer("a")
    successor = stream.producer("a")
    for i in range(3):
        successor.append(rows("a", i, 1), i + 1)
        stream.maintain(AT_ONCE)
        stream.maintain(AT_ONCE)
    with pytest.raises(ProducerFenced):
        zombie.append(rows("a", 0, 1), 1)
    assert numbers(stream) == [0, 1, 2]


def test_compaction_spares_the_controls_that_lance_would_merge(tmp_path: Path, stream: Stream) -> None:
    producers = [stream.producer(name) for name in "abc"]
    for i in range(8):
        for producer in producers:
            producer.append(rows(producer.name, i, 1), i + 1)
    dataset = lance.dataset(stream.uri)
    controls = {held.fragment for held in stream._controls().all()}
    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 1000})
    merged = {fragment.id for task in plan.tasks for fragment in task.fragments}
    assert merged & controls, "left to itself Lance merges controls with rows"

    done = stream.maintain(AT_ONCE)
    assert done.compacted_fragments > 20
    after = stream._controls()
    assert {held.fragment for held in after.all()} - {after.upkeep.fragment} <= controls, "only the fence wrote its own"
    assert [p.cursor for p in stream.describe().producers] == [8, 8, 8]
    for producer in producers:
        producer.append(rows(producer.name, 8, 1), 9)
    assert stream.verify(COLUMNS) == []


@pytest.mark.parametrize("other", [AT_ONCE, Policy(keep_versions=0, small_rows=3)])
def test_a_late_compaction_is_refused_when_any_of_its_fragments_is_gone(stream: Stream, other: Policy) -> None:
    """Also where another maintainer, for whom the first of them is big, has left it as it was."""
    producer = stream.producer("a")
    for first, count in ((0, 3), (3, 1), (4, 1), (5, 1)):
        producer.append(rows("a", first, count), first + count)
    late = stream._table.fork()
    late.refresh()
    groups = to_compact(late.spans(), Policy())
    merged = [compaction.stage(late, group) for group in groups]
    stream.maintain(other)
    producer.append(rows("a", 6, 1), 7)
    stream.maintain(other)
    with pytest.raises(Conflict):
        compaction.put(late, groups, merged)
    assert numbers(stream) == list(range(7))
    assert stream.verify(COLUMNS) == []


def test_a_version_keeps_no_word_of_each_commit_that_was_compacted(tmp_path: Path, stream: Stream) -> None:
    dataset = plain(tmp_path / "plain")
    for i in range(20):
        dataset = lance.write_dataset(rows("a", i, 1), dataset, mode="append")
    dataset.optimize.compact_files()
    (fragment,) = lance.dataset(str(tmp_path / "plain")).get_fragments()
    assert len(json.loads(fragment.metadata.created_at_version_meta.json())["inline"]) > 20 * 8, "Lance's own does"

    producer, sizes = stream.producer("a"), []
    for i in range(300):
        producer.append(rows("a", i, 1), i + 1)
        if i % 50 == 49:
            stream.maintain(AT_ONCE)
            manifests = Path(stream.uri, "_versions").glob("*.manifest")
            sizes.append(min(manifests, key=lambda path: path.name).stat().st_size)  # the newest: numbers count down
    assert (sizes[-1] - sizes[0]) / 250 < 1, "bytes for a commit"
    assert numbers(stream) == list(range(300))


def test_a_tag_is_reported_and_hinders_neither_clean_up_nor_fencing(stream: Stream) -> None:
    zombie = stream.producer("a")
    lance.dataset(stream.uri).tags.create("release", stream.describe().version)
    successor = stream.producer("a")
    for i in range(5):
        successor.append(rows("a", i, 1), i + 1)
    with pytest.raises((OSError, ValueError), match=r"tag"):
        lance.dataset(stream.uri).cleanup_old_versions(older_than=timedelta(0))  # Lance alone cleans up nothing
    assert stream.maintain(AT_ONCE).removed_versions > 3
    with pytest.raises(ProducerFenced):
        zombie.append(rows("a", 0, 1), 1)
    assert [line for line in stream.verify(COLUMNS) if "tagged 'release'" in line]


def test_a_snapshot_outlives_compaction_and_clean_up_where_a_version_does_not(stream: Stream) -> None:
    producer = stream.producer("a")
    for i in range(5):
        producer.append(rows("a", i, 1), i + 1)
    version, snapshot = stream.describe().version, stream.snapshot()
    named = snapshot.ref()
    producer.append(rows("a", 5, 1), 6)
    stream.maintain(AT_ONCE)
    with pytest.raises(ValueError, match=r"not found"):
        lance.dataset(stream.uri, version=version)
    for again in (snapshot, stream.snapshot(named.version)):
        again.check(named)
        assert again.to_table()["seq"].to_pylist() == [0, 1, 2, 3, 4]
        assert again.take([4, 0])["seq"].to_pylist() == [4, 0]


@pytest.mark.parametrize("maintained_before", [False, True])
def test_files_of_a_refused_try_are_never_committed_behind_a_fence(stream: Stream, maintained_before: bool) -> None:
    """A ghost of the first try might have them, and the next clean-up would take them away."""
    if maintained_before:
        stream.maintain(AT_ONCE)
    producer, staged = stream.producer("a"), []

    def fence(event: Event) -> None:
        if event.name == "staged" and event.fields.get("producer") == "a":
            staged.append(set(Path(stream.uri, "data").glob("*.lance")))
            if len(staged) == 1:
                stream.maintain(AT_ONCE)

    with listen(fence):
        producer.append(rows("a", 0, 3), 1)
    assert len(staged) == 2 and len(staged[1] - staged[0]) >= 2, "rows and control were written anew"
    assert numbers(stream) == [0, 1, 2]


def test_lance_keeps_ids_of_rows_through_compaction(stream: Stream) -> None:
    producer = stream.producer("a")
    landed = [producer.append(rows("a", i * 3, 3), i + 1) for i in range(4)]
    stream.maintain(AT_ONCE)
    for i, committed in enumerate(landed):
        reader = stream.consumer(group=None, offset=committed.first, stop=committed.end)
        assert pa.concat_tables(reader)["seq"].to_pylist() == [3 * i, 3 * i + 1, 3 * i + 2]
