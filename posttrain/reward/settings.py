"""Settings of the reward service. Imports nothing heavy.

Invariant: what runs is named here. A question chooses among functions, judges and preference models by name; it can
bring none of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from posttrain.errors import UserError
from posttrain.units import at_least

DATABASE_VARIABLE = "POSTTRAIN_REWARD_DATABASE"


@dataclass
class Lane:
    """Verdicts of one kind that are computed at once, and how many seconds each may take on the clock."""

    concurrency: int = 1
    seconds: float = 120.0


@dataclass
class CalibrationPoint:
    """A judge's mark and the reward it stands for; between two points the line between them."""

    mark: float = 0.0
    reward: float = 0.0


@dataclass
class JudgeSettings:
    """A model behind an OpenAI-compatible address. `key_variable` names the environment variable with its key.

    The judge is asked for a mark from 0 to `best`; `samples` marks are averaged. `calibration` maps marks to rewards;
    without one the reward is the mark over `best`.
    """

    url: str = ""
    model: str = ""
    key_variable: str = ""
    instructions: str = ""  # in place of the built-in ones
    best: int = 10
    samples: int = 1
    temperature: float = 0.0
    max_tokens: int = 1024
    tries: int = 4  # of a call that fails and of a reply that has no mark
    seconds: float = 120.0  # one call
    calibration: list[CalibrationPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("http://", "https://")):
            raise UserError("is no address", field="judges.url", value=self.url, remedy="write http://HOST:PORT/v1")
        for name in ("best", "samples", "tries", "max_tokens"):
            at_least(f"judges.{name}", getattr(self, name), 1)
        marks = [point.mark for point in self.calibration]
        if marks and (len(marks) < 2 or marks != sorted(set(marks))):
            remedy = "give at least two points, their marks rising"
            raise UserError("is no calibration", field="judges.calibration", value=marks, remedy=remedy)


@dataclass
class RewardSettings:
    """`database` is the index (a path, or a `postgresql://` URL that replicas share); `stream` the Lakestream stream
    `verdicts`, empty for none. A name in `functions` is `module:function`; `function_path` is where modules lie."""

    database: str = "verdicts.db"
    stream: str = ""
    replica: str = "reward-0"  # the stream's producer: another one for each replica
    lanes: dict[str, Lane] = field(default_factory=dict)  # laid over the built-in ones, by the verifier's kind
    longest_queue: int = 10_000  # verdicts that wait in one lane before callers are told to come later
    functions: list[str] = field(default_factory=list)
    function_path: str = ""
    judges: dict[str, JudgeSettings] = field(default_factory=dict)
    preference_models: dict[str, str] = field(default_factory=dict)  # name -> directory
    sandbox_driver: str = "bubblewrap"
    largest_bytes: int = 16 << 20  # of one request

    def __post_init__(self) -> None:
        for name in self.functions:
            if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name, re.ASCII):
                raise UserError("is no function", field="functions", value=name, remedy="write module:function")
        for name, lane in self.lanes.items():
            if lane.concurrency < 1 or not lane.seconds > 0:
                raise UserError("must be more than 0", field=f"lanes.{name}", value=[lane.concurrency, lane.seconds])
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.replica, re.ASCII):
            remedy = "use letters, digits, '.', '_' and '-'"
            raise UserError("is no name", field="replica", value=self.replica, remedy=remedy)
        at_least("longest_queue", self.longest_queue, 1)
        at_least("largest_bytes", self.largest_bytes, 1)
