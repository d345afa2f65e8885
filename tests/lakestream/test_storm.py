"""Storms: everything at once, by a schedule that a seed gives. See storm.py; it runs alone too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lakestream.stores import Store
from tests.lakestream.storm import Storm, differences, schedule

HOUR = 3600.0


def blow(store: Store, directory: Path, seed: int, seconds: float) -> None:
    report = Storm(store, directory, seed, seconds).run()
    print(report)
    assert report.wrong == [], f"seed {seed}: {report}"
    assert report.kills and report.zombies and report.fenced, "no storm"
    assert report.commits > seconds, "nothing was committed"
    assert bool(report.archived) == bool(seed % 2), "odd seeds archive"


def test_a_minute_of_storm_on_both_stores_at_once(local: Store, s3: Store, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        storms = []
        for seed, store in ((1, s3), (2, local)):
            directory = tmp_path / store.kind
            directory.mkdir()
            storms.append(both.submit(blow, store, directory, seed, 60.0))
    for storm in storms:
        storm.result()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [101, 102])
def test_an_hour_of_storm(store: Store, tmp_path: Path, seed: int) -> None:
    blow(store, tmp_path, seed, HOUR / 2)


def test_a_seed_gives_the_schedule() -> None:
    assert schedule(7, 60) == schedule(7, 60) != schedule(8, 60)
    assert {step.action for step in schedule(7, 60)} == {"kill", "stop"}


def test_a_count_tells_what_is_twice_lost_or_alien() -> None:
    assert differences([("a", 0), ("a", 1)], {"a": 2}) == []
    assert differences([("a", 0), ("a", 0), ("b", 5)], {"a": 2, "b": 0}) == [
        "1 rows twice, as [('a', 0)]", "1 rows lost, as [('a', 1)]", "1 rows that nobody committed, as [('b', 5)]",
    ]  # fmt: skip
