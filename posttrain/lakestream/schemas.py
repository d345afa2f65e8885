"""The streams that the rest of the platform uses, as versioned Arrow schemas.

Upgrade rule: a version never changes a column of an older one. A new version adds columns that may be null,
or declares a function that makes a table of the version before into one of its own. A stream keeps the
version that it was created with; whoever opens it with a newer schema gets its rows upgraded as they are
read, and whoever opens it with an older one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from posttrain.lakestream.errors import StreamError

Upgrade = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class StreamSchema:
    """A named schema. `upgrades[v]` makes rows of version v into rows of v + 1, where nulls will not do."""

    name: str
    version: int
    arrow: pa.Schema
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)

    def accepts(self, name: str, version: int) -> bool:
        return self.name == name and version <= self.version

    def upgrade(self, rows: pa.Table, version: int) -> pa.Table:
        """`rows` of `version` as rows of this version."""
        for step in range(version, self.version):
            if step in self.upgrades:
                rows = self.upgrades[step](rows)
        for column in self.arrow:
            if column.name not in rows.column_names:
                if not column.nullable:
                    raise StreamError(f"version {version} lacks it and no upgrade fills it", field=column.name)
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        return rows.select(self.arrow.names).cast(self.arrow)


def _column(name: str, kind: pa.DataType, *, needed: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=not needed)


_TEXT, _TOKENS, _TIME = pa.string(), pa.list_(pa.int32()), pa.timestamp("us", tz="UTC")

TASKS = StreamSchema("tasks", 1, pa.schema([
    _column("task", _TEXT, needed=True),         # unique over the stream
    _column("source", _TEXT, needed=True),
    _column("messages", _TEXT, needed=True),     # JSON list of {role, content}
    _column("verifier", _TEXT),
    _column("answer", _TEXT),
    _column("metadata", _TEXT),                  # JSON, what the verifier needs
    _column("tier", _TEXT),
    _column("group_size", pa.int32()),           # samples wanted of this task
]))  # fmt: skip

# T: tokens of the whole trajectory, prompt included; the four lists have one entry for each.
EXPERIENCE = StreamSchema("experience", 2, pa.schema([
    _column("trajectory", _TEXT, needed=True),
    _column("task", _TEXT, needed=True),
    _column("group", _TEXT, needed=True),        # samples of one task that are compared with each other
    _column("messages", _TEXT),                  # JSON, the turns as they were said
    _column("tokens", _TOKENS, needed=True),     # [T]
    _column("loss_mask", pa.list_(pa.int8()), needed=True),    # [T], 1 where the policy chose the token
    _column("logprobs", pa.list_(pa.float32())),               # [T], of the sampling policy; 0 where the mask is 0
    _column("policy_versions", pa.list_(pa.struct([            # spans in order that cover the sampled tokens
        pa.field("version", pa.int64()), pa.field("start", pa.int32()), pa.field("end", pa.int32()),
    ]))),
    _column("reward", pa.float32()),
    _column("status", _TEXT, needed=True),       # finished, truncated, failed, aborted
    _column("started", _TIME),
    _column("seconds", pa.float32()),
    # since version 2
    _column("group_rows", pa.int32()),           # of this group, which stand beside each other; null: not known
    _column("ended", _TEXT),                     # rule or failure that ended it; null: it ended by itself
]))  # fmt: skip

# What the trainer has done, one row for each update and each time that it found samples wanting.
PROGRESS = StreamSchema("progress", 1, pa.schema([
    _column("version", pa.int64(), needed=True),   # of the weights that it has made
    _column("trained", pa.int64(), needed=True),   # groups so far, in updates that are done
    _column("dropped", pa.int64(), needed=True),   # groups so far
    _column("offset", pa.int64(), needed=True),    # in `experience`
    _column("at", _TIME, needed=True),
]))  # fmt: skip

VERDICTS = StreamSchema("verdicts", 1, pa.schema([
    _column("trajectory", _TEXT, needed=True),
    _column("verifier", _TEXT, needed=True),
    _column("reward", pa.float32(), needed=True),
    _column("correct", pa.bool_()),
    _column("well_formed", pa.bool_()),
    _column("details", _TEXT),                   # JSON
    _column("seconds", pa.float32()),
]))  # fmt: skip

TIMINGS = StreamSchema("timings", 1, pa.schema([
    _column("service", _TEXT, needed=True),
    _column("name", _TEXT, needed=True),         # what was timed
    _column("started", _TIME, needed=True),
    _column("seconds", pa.float64(), needed=True),
    _column("attributes", _TEXT),                # JSON
]))  # fmt: skip

EVALUATIONS = StreamSchema("evaluations", 1, pa.schema([
    _column("run", _TEXT, needed=True),
    _column("step", _TEXT, needed=True),
    _column("digest", _TEXT, needed=True),       # of the step's results: with run and step the evaluation's name
    _column("ended", _TIME, needed=True),
    _column("model", _TEXT, needed=True),        # references
    _column("data", _TEXT, needed=True),
    _column("how", _TEXT, needed=True),          # JSON, sampling and form of the answer
    _column("id", _TEXT, needed=True),           # of the row of `data`, where prompt and metadata are
    _column("tier", _TEXT),
    _column("sample", pa.int32(), needed=True),
    _column("completion", _TEXT, needed=True),
    _column("tokens", pa.int32(), needed=True),
    _column("finish_reason", _TEXT),
    _column("correct", pa.bool_(), needed=True),
    _column("well_formed", pa.bool_(), needed=True),
    _column("extracted", _TEXT),
    _column("answer", _TEXT),
]))  # fmt: skip

SCHEMAS = {schema.name: schema for schema in (TASKS, EXPERIENCE, PROGRESS, VERDICTS, TIMINGS, EVALUATIONS)}
