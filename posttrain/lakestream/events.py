"""What a stream did, as structured events: for logs, for dashboards, for whoever counts on the order.

Every step between staging an append and acknowledging it is an event, so a listener sees each moment
at which a process can die. `listen` adds one; without any, events go to the logger of this package
at level DEBUG (INFO for those that an operator wants to see), with the fields under `event.fields`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

logger = logging.getLogger("posttrain.lakestream")

NOTABLE = frozenset(
    {"created", "registered", "fenced", "closed", "compacted", "cleaned", "removed", "archived", "waiting", "rescaled"}
)


@dataclass(frozen=True)
class Event:
    name: str
    stream: str
    fields: dict[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]
_listeners: list[Listener] = []


def emit(name: str, stream: str, **fields: Any) -> None:
    level = logging.INFO if name in NOTABLE else logging.DEBUG
    if not _listeners and not logger.isEnabledFor(level):
        return
    event = Event(name, stream, fields)
    logger.log(level, "%s %s %s", stream, name, fields, extra={"event": event})
    for listener in _listeners:
        listener(event)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Call `listener` with every event of this process while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
