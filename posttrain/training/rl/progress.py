"""What the trainer tells the sampler: rows of the stream `progress`."""

from __future__ import annotations

import datetime

from posttrain.lakestream import PROGRESS, Stream
from posttrain.lakestream.upkeep import Policy


class Progress:
    """Raises ProducerFenced in `tell` once another trainer has taken over."""

    def __init__(self, uri: str):
        self._producer = Stream.create(uri, PROGRESS).producer("trainer", upkeep=Policy())

    def tell(self, version: int, trained: int, dropped: int, offset: int) -> None:
        """Groups are counted since the loop began; `offset` is where the trainer stands in the stream of samples."""
        now = datetime.datetime.now(datetime.UTC)
        row = {"version": version, "trained": trained, "dropped": dropped, "offset": offset, "at": now}
        self._producer.append([row])
