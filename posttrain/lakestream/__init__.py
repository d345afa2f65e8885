"""Lakestream: a Lance table as lake and queue. Exactly once, many producers, no broker. See docs/lakestream.md."""

from posttrain.lakestream.admission import Lag
from posttrain.lakestream.buffer import Buffer
from posttrain.lakestream.consumer import Consumer
from posttrain.lakestream.controls import Settings
from posttrain.lakestream.errors import (
    AdmissionTimeout,
    BadRow,
    ConsumerFenced,
    OffsetRemoved,
    ProducerFenced,
    StoreUnavailable,
    StreamClosed,
    StreamDamaged,
    StreamError,
    StreamNotFound,
)
from posttrain.lakestream.producer import Committed, Producer
from posttrain.lakestream.schemas import (
    EVALUATIONS,
    EXPERIENCE,
    PROGRESS,
    SCHEMAS,
    TASKS,
    TIMINGS,
    VERDICTS,
    StreamSchema,
)
from posttrain.lakestream.snapshot import Snapshot
from posttrain.lakestream.stream import Stream
from posttrain.lakestream.upkeep import Policy

__all__ = [
    "EVALUATIONS",
    "EXPERIENCE",
    "PROGRESS",
    "SCHEMAS",
    "TASKS",
    "TIMINGS",
    "VERDICTS",
    "AdmissionTimeout",
    "BadRow",
    "Buffer",
    "Committed",
    "Consumer",
    "ConsumerFenced",
    "Lag",
    "OffsetRemoved",
    "Policy",
    "Producer",
    "ProducerFenced",
    "Settings",
    "Snapshot",
    "StoreUnavailable",
    "Stream",
    "StreamClosed",
    "StreamDamaged",
    "StreamError",
    "StreamNotFound",
    "StreamSchema",
]
