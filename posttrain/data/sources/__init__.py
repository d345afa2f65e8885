"""Where rows come from, one file for each kind of source.

Every reader is a generator of `Raw` and `Rejected` in a fixed order; a mistake that spoils the whole
source (a missing file, an unknown column) is a UserError that names the configuration's key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from posttrain.data.config import ROOT, Source
from posttrain.data.schema import Raw, Rejected


def read(source: Source, index: int, *, workspace: Path, seed: int) -> Iterator[Raw | Rejected]:
    """The rows of the `index`-th source; `seed` is the run's."""
    where = f"{ROOT}.sources[{index}]"
    if source.kind == "reasoning_gym":
        from posttrain.data.sources import reasoning_gym

        return reasoning_gym.read(
            source, index, where, source_seed(seed, index) if source.seed is None else source.seed
        )
    if source.kind == "files":
        from posttrain.data.sources import files

        return files.read(source, index, where, workspace)
    from posttrain.data.sources import hf_disk

    return hf_disk.read(source, index, where, workspace)


def source_seed(seed: int, index: int) -> int:
    """A generator's seed. Generators seed entry `i` with `seed + i`, so two seeds must lie far apart."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:4], "big") >> 1
