"""Bodies of the TaskServer's requests and answers. Durations are seconds; times are of the server's clock."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from posttrain.json_text import Body, Json, Whole, storable
from posttrain.rollout.tasks.model import Outcome, State

NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=200)]
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Seconds = Annotated[float, Field(gt=0, le=366 * 86400, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)]
LARGEST_BATCH = 1000


Reason = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=20_000), AfterValidator(storable)]


class NewTask(Body):
    """`timeout` bounds one attempt, `deadline` everything from now on, waiting and retries included. A task with a
    `parent` ends within the parent's deadline and is cancelled when the parent ends. The same `key` again names the
    task that is there."""

    kind: Name
    queue: Name = "default"
    payload: Json = None
    priority: Whole = Field(default=0, ge=-1000, le=1000)
    key: Name | None = None
    parent: Id | None = None
    timeout: Seconds | None = None
    deadline: Seconds | None = None
    max_attempts: Whole = Field(default=5, ge=1, le=100)


class Submission(Body):
    tasks: list[NewTask] = Field(min_length=1, max_length=LARGEST_BATCH)


class Submitted(BaseModel):
    """`created` is false where the key named a task that was there."""

    id: str
    state: State
    created: bool


class SubmittedAll(BaseModel):
    tasks: list[Submitted]


class AttemptView(BaseModel):
    id: str
    number: int
    worker: str
    started: float
    ended: float | None
    outcome: Outcome | None
    reason: str | None


class TaskView(BaseModel):
    """`result` is the digest under which `/v1/results/{digest}` holds the value; null where there is none."""

    id: str
    kind: str
    queue: str
    priority: int
    key: str | None
    parent: str | None
    state: State
    attempts: int
    max_attempts: int
    submitted: float
    started: float | None
    ended: float | None
    deadline: float | None
    worker: str | None
    result: str | None
    reason: str | None


class TaskDetail(TaskView):
    payload: Any
    history: list[AttemptView]


class TaskList(BaseModel):
    """`next` is what to give as `after` for more; null at the end."""

    tasks: list[TaskView]
    next: int | None


class WaitFor(Body):
    """Answers once one of `ids` has ended, or after `wait` seconds; with the ended ones, their results in place."""

    ids: list[Id] = Field(min_length=1, max_length=LARGEST_BATCH)
    wait: Wait = 30.0


class Ended(BaseModel):
    id: str
    state: State
    result: Any = None
    reason: str | None = None


class EndedAll(BaseModel):
    """`unknown` are ids that name no task (never did, or removed after they had ended)."""

    tasks: list[Ended]
    unknown: list[str]


class LeaseRequest(Body):
    """`request` is a name for this call: repeated after a lost answer it gives the same leases and no new ones."""

    worker: Name
    kinds: list[Name] = Field(min_length=1, max_length=100)
    count: Whole = Field(default=1, ge=1, le=LARGEST_BATCH)
    wait: Wait = 0.0
    request: Id
    capacity: Whole = Field(default=0, ge=0, le=1_000_000)


class Lease(BaseModel):
    """`seconds_left` until the attempt's deadline, null for none; `lease_seconds` within which to be heard of."""

    attempt: str
    task: str
    number: int
    kind: str
    queue: str
    payload: Any
    seconds_left: float | None
    lease_seconds: float


class Leases(BaseModel):
    leases: list[Lease]


class Heartbeat(Body):
    worker: Name
    attempts: list[Id] = Field(max_length=10_000)
    capacity: Whole = Field(default=0, ge=0, le=1_000_000)


class HeartbeatAnswer(BaseModel):
    """`lost` attempts are over (cancelled, out of time, given to another): end their work, nobody wants its result."""

    lost: list[str]


class Completion(Body):
    result: Json = None


class Failure(Body):
    outcome: Literal["failed", "timed_out", "out_of_memory", "over_quota", "cancelled", "infrastructure_error"]
    reason: Reason = ""
    result: Json = None


class Report(Body):
    """How an attempt ended, for many at once."""

    attempt: Id
    outcome: Outcome = Field(strict=False)  # which comes as its text
    reason: Reason = ""
    result: Json = None


class Reports(Body):
    reports: list[Report] = Field(min_length=1, max_length=LARGEST_BATCH)


class Reported(BaseModel):
    """`refused`: the attempt had ended otherwise before, and this result counts for nothing."""

    attempt: str
    status: Literal["accepted", "repeated", "refused", "unknown"]
    state: State | None


class ReportedAll(BaseModel):
    reports: list[Reported]


class Cancelled(BaseModel):
    """The task's state now, and how many tasks ended by this call (its children among them)."""

    state: State
    cancelled: int


class Draining(Body):
    """A drained kind ("*": all) takes no new tasks; those there are worked off."""

    kind: Literal["*"] | Name = "*"
    drain: bool = True


class QueueView(BaseModel):
    kind: str
    queue: str
    pending: int
    leased: int
    oldest_seconds: float


class Status(BaseModel):
    drained: list[str]
    queues: list[QueueView]
    states: dict[str, int]
    workers: int
    capacity: int


class Problem(BaseModel):
    detail: str
