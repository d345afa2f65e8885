"""Schedules and the rules of cron workflows, by example; whole cron workflows are among the conformance cases."""

from __future__ import annotations

import datetime
import zoneinfo

import pytest

from posttrain.engine.cron import rules
from posttrain.engine.cron.schedule import Schedule


def moment(text: str, zone: str = "UTC") -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        ("*/15 * * * *", "UTC", "2024-05-01T10:07:30", ["2024-05-01T10:15+00:00", "2024-05-01T10:30+00:00"]),
        ("0 5 1 1 *", "UTC", "2024-05-01T10:00", ["2025-01-01T05:00+00:00"]),
        ("0 0 29 2 *", "UTC", "2024-03-01T00:00", ["2028-02-29T00:00+00:00"]),
        ("0 0 31 2 *", "UTC", "2024-03-01T00:00", []),
        # either day is enough where both are restricted
        ("0 9 13 * fri", "UTC", "2024-05-08T00:00", ["2024-05-10T09:00+00:00", "2024-05-13T09:00+00:00"]),
        ("0 8 * * mon-fri", "Asia/Tokyo", "2024-05-03T09:00", ["2024-05-06T08:00+09:00"]),
        ("CRON_TZ=Asia/Tokyo 0 8 * * *", "UTC", "2024-05-03T00:00", ["2024-05-03T23:00+00:00"]),
        # clocks go forward: half past two is left out; back: it comes twice
        ("30 2 * * *", "Europe/Zurich", "2024-03-30T03:00", ["2024-04-01T02:30+02:00"]),
        ("30 2 * * *", "Europe/Zurich", "2024-10-26T12:00", ["2024-10-27T02:30+02:00", "2024-10-27T02:30+01:00"]),
        ("@every 90m", "UTC", "2024-05-01T00:00", ["2024-05-01T01:30+00:00", "2024-05-01T03:00+00:00"]),
        ("@daily", "UTC", "2024-05-01T00:00", ["2024-05-02T00:00+00:00"]),
    ],
)
def test_due_times(text: str, zone: str, after: str, expected: list[str]) -> None:
    schedule, now = Schedule(text, zone), moment(after, zone)
    for one in expected:
        due = schedule.after(now)
        assert due is not None
        assert datetime.datetime.fromtimestamp(due, zoneinfo.ZoneInfo(zone)).isoformat(timespec="minutes") == one
        now = due
    if not expected:
        assert schedule.after(now) is None


@pytest.mark.parametrize(
    "text", ["* * * *", "61 * * * *", "* * * * 8", "a * * * *", "@no", "*/0 * * * *", "5-1 * * * *"]
)
def test_no_schedules(text: str) -> None:
    with pytest.raises(ValueError):
        Schedule(text)


def cron(status: dict | None = None, annotations: dict | None = None, **spec) -> dict:
    spec = {"schedules": ["0 * * * *"], "timezone": "UTC", "workflowSpec": {}} | spec
    metadata = {
        "name": "c",
        "annotations": annotations if annotations is not None else {rules.USED: rules.text_of(spec)},
    }
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def test_missed_starts() -> None:
    last, now = {"lastScheduledTime": "2024-05-01T08:00:00Z"}, moment("2024-05-01T10:05")
    assert rules.missed(cron(last), now) is None
    assert rules.missed(cron(last, startingDeadlineSeconds=0), now) is None
    assert rules.missed(cron(last, startingDeadlineSeconds=200), now) is None
    assert rules.missed(cron(last, startingDeadlineSeconds=400), now) == moment("2024-05-01T10:00")
    assert rules.missed(cron(last, startingDeadlineSeconds=9000), now) == moment("2024-05-01T10:00"), "only the latest"
    assert rules.missed(cron(startingDeadlineSeconds=400), now) is None, "it never ran"
    assert rules.missed(cron(last, {rules.USED: "other"}, startingDeadlineSeconds=400), now) is None, "a new schedule"


def test_policies() -> None:
    active = {"active": [{"name": "c-1"}]}
    assert rules.decide_start(cron(active)).start
    assert rules.decide_start(cron(active, concurrencyPolicy="Allow")).replaces == ()
    assert not rules.decide_start(cron(active, concurrencyPolicy="Forbid")).start
    assert rules.decide_start(cron({}, concurrencyPolicy="Forbid")).start
    assert rules.decide_start(cron(active, concurrencyPolicy="Replace")).replaces == ("c-1",)
    assert not rules.decide_start(cron(suspend=True)).start
    assert not rules.decide_start(cron({"succeeded": 2}, when="{{cronworkflow.succeeded}} < 2")).start
    assert rules.decide_start(cron(when="{{cronworkflow.succeeded}} <")).problem.startswith("SubmissionError")


def test_a_stopping_condition_that_came_true_stops_for_good() -> None:
    one = cron({"active": [{"name": "c-1"}]}, stopStrategy={"expression": "cronworkflow.failed >= 1"})
    rules.ended(one, "c-1", "Error")
    assert one["status"] == {"active": [], "failed": 1, "phase": "Stopped"}
    assert one["metadata"]["labels"] == {rules.COMPLETED: "true"}
    assert not rules.decide_start(one).start


def test_history() -> None:
    runs = [{"name": f"s{n}", "phase": "Succeeded", "finishedAt": f"2024-05-01T10:0{n}:00Z"} for n in range(5)]
    runs += [{"name": f"f{n}", "phase": "Failed", "finishedAt": f"2024-05-01T10:0{n}:00Z"} for n in range(3)]
    runs += [{"name": "now", "phase": "Running", "finishedAt": None}]
    assert rules.too_old(cron(), runs) == ["s1", "s0", "f1", "f0"]
    assert rules.too_old(cron(successfulJobsHistoryLimit=0, failedJobsHistoryLimit=9), runs) == [
        "s4",
        "s3",
        "s2",
        "s1",
        "s0",
    ]
