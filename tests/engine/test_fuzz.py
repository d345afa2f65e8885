"""Real manifests changed at random: each is refused by one line, or runs; none ends in a traceback."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.engine.mutations import mutant, shown
from tests.engine.whole import run_whole

MINUTES = float(os.environ.get("FUZZ_MINUTES", "10"))


def attempt(workspace: Path, seed: int) -> str:
    source = mutant(random.Random(seed))
    began = time.monotonic()
    try:
        became, _ = run_whole(workspace, source)
    except BaseException as error:
        error.add_note(f"seed {seed}:\n{shown(source)}")
        raise
    assert time.monotonic() - began < 20, f"seed {seed} took too long:\n{shown(source)}"
    return became


def test_a_hundred_changed_manifests(tmp_path: Path) -> None:
    became = [attempt(tmp_path / str(seed), seed) for seed in range(100)]
    assert {"refused", "Succeeded"} <= set(became), "the changes leave some whole and break others"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_minutes_of_changed_manifests(tmp_path: Path) -> None:
    first, end = time.time_ns(), time.monotonic() + 60 * MINUTES
    seed = first
    while time.monotonic() < end:
        attempt(tmp_path / str(seed), seed)
        seed += 1
    print(f"{seed - first} manifests, from seed {first}")
