"""Producers and maintainers of one machine commit one after another, so that none is in another's way for nothing.

Invariant: this is a courtesy. Nothing but speed depends on it: whoever is not let in in time commits all the same,
and the store's conditional put decides, as it does between machines.

A store takes one manifest after another. Of several that arrive at once all but one are refused and committed
again, and some stores refuse slowly: SeaweedFS 4.48 looks again only after a second whether a key is free that
another conditional put holds, which one in six of the puts met that raced for a key.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posttrain.contract.locks import taken_within

LONGEST = 0.2  # seconds that a holder who is stopped, or slow, costs each of the others
_POLL = 0.001
_FILES = 1009  # so that they never become many


@contextmanager
def alone(uri: str, longest: float = LONGEST) -> Iterator[bool]:
    """Whether nobody else on this machine is in such a block for `uri`; waits at most `longest` seconds for it."""
    lock = _open(uri)
    if lock is None:
        yield False
        return
    try:
        yield taken_within(lock, longest, every=_POLL)
    finally:
        os.close(lock)  # lets the next one in; so does the death of the process


def _open(uri: str) -> int | None:
    """A lock file of this user's; None on a machine without a place for it. Few streams share one: that is slower."""
    directory = Path(tempfile.gettempdir(), f"posttrain-streams-{os.getuid()}")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        return os.open(directory / f"{zlib.crc32(uri.encode()) % _FILES}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
