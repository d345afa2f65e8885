"""Weights that go from process to process: every byte equals the reference, and as many were moved as were wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.etha import formats
from tests.etha.layouts import TIED, served, trained
from tests.etha.worlds import World

GRID = [(1, 1, 1), (2, 2, 4), (4, 1, 2), (2, 1, 4)]


@pytest.mark.parametrize(
    ("transport", "fsdp", "trainer_tp", "tp"),
    [
        *(("shm", *case) for case in GRID),
        ("process_group", *GRID[1]),
        *(pytest.param("process_group", *case, marks=pytest.mark.slow) for case in GRID if case != GRID[1]),
    ],
)
def test_every_byte_arrives(tmp_path: Path, transport: str, fsdp: int, trainer_tp: int, tp: int) -> None:
    """1 to 1, 4 to 4, 4 to 2, 2 to 4: several dtypes, uneven shards, tied head, experts, padded vocabulary."""
    wants = [served(tp, rank) for rank in range(tp)]
    with World(tmp_path, trained(fsdp, trainer_tp), TIED, fsdp * trainer_tp, transport=transport) as world:
        for rank in range(fsdp * trainer_tp):
            world.source(rank)
        world.replica("a", wants)
        world.ready()
        needed = sum(formats.nbytes(want.format, want.box.shape) for listed in wants for want in listed)
        for version in (1, 2):
            outcomes = world.push(version)
            assert all(outcome.serving == ("a",) for outcome in outcomes), outcomes
            world.applied("a", version)
            assert world.view("a").moved == needed * version
