"""The ledger of a trajectory: what was asked, answered, called, converted, judged and lost, in the order it happened.

Invariants: append only, one event on one line of JSON; an event names the one that caused it, which stands before it;
a line that a crash cut off is the last one and counts as not written. Bodies are kept as they were on the wire, so that
the trajectory can be rebuilt, and the conversions run again, from the ledger alone.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from posttrain.errors import UserError
from posttrain.llmm.dialects import dialect
from posttrain.llmm.ir import climb
from posttrain.llmm.ir.agentic import Call, Outcome, Status, Trajectory
from posttrain.llmm.ir.origin import Json
from posttrain.llmm.ir.tokens import Tokens

if TYPE_CHECKING:
    import pyarrow as pa

    from posttrain.lakestream.schemas import StreamSchema


class Lost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a conversion lost: where in the IR, its value, and why."""

    path: str
    value: Any
    reason: str


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="event", tag=str.lower):
    """`id` is unique in the ledger; `cause` is the id of the event that led to this one; `at` is in seconds since
    1970, when it began, and `seconds` how long it took."""

    id: str
    at: float
    cause: str | None = None
    seconds: float | None = None


class Started(_Event, frozen=True):
    """`dialect` is the one that the agent speaks, where it speaks one."""

    trajectory: str
    task: str | None = None
    group: str | None = None
    dialect: str | None = None
    metadata: dict[str, str] | None = None


class Asked(_Event, frozen=True):
    """A call of the model. `request` and `response` are bodies of `dialect`, the answer as a whole where it was
    streamed; `agent` names the sub-agent that called, `failure` why there is no whole answer. `tokens` are the
    engine's; `vendor` is who answered in the policy's place; `losses` are what the model was not told of the request.
    """

    dialect: str
    request: Json
    response: Json | None = None
    agent: str | None = None
    failure: str | None = None
    policy: int | None = None
    tokens: Tokens | None = None
    vendor: str | None = None
    losses: tuple[Lost, ...] = ()


class Used(_Event, frozen=True):
    """A tool's call, carried out: `call` is the id that the model gave it. Whoever sees the calls of the model alone
    knows that it ran between the answer that asked for it and the request that brought its result."""

    call: str
    name: str
    arguments: Any = None
    result: Any = None
    error: str | None = None


class Converted(_Event, frozen=True):
    """A body of one dialect made into one of another, with what was lost."""

    source: str
    target: str
    kind: str  # request or response
    wire: Json
    result: Json
    losses: tuple[Lost, ...] = ()


class Judged(_Event, frozen=True):
    """A verifier's word. Only `scored` carries a reward."""

    verifier: str
    status: str
    reward: float | None = None
    details: dict[str, Any] | None = None


class Ended(_Event, frozen=True):
    status: Status


Event = Started | Asked | Used | Converted | Judged | Ended
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class Ledger:
    """Appends events to a file. A second writer of the file is not guarded against: a trajectory has one."""

    def __init__(self, path: Path, *, sync: bool = False):
        """`sync`: each event is on disk when `append` returns; else it is with the operating system. Cuts off a
        last line that a crash left half written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._sync = path, sync
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed by `close`
        _cut(self._file)

    def append(self, event: Event) -> None:
        line = _encode(event) + b"\n"
        written = self._file.write(line)
        while written < len(line):
            written += self._file.write(line[written:])
        if self._sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _cut(file: io.FileIO) -> None:
    end = file.seek(0, os.SEEK_END)
    at = end
    while at > 0:
        start = max(0, at - 65536)
        file.seek(start)
        block = file.read(at - start)
        if (found := block.rfind(b"\n")) >= 0:
            at = start + found + 1
            break
        at = start
    if at < end:
        os.ftruncate(file.fileno(), at)
    file.seek(0, os.SEEK_END)


def read(path: Path) -> list[Event]:
    """The events of a ledger. Raises UserError naming the line that is none."""
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror}", field=str(path)) from None
    return list(events(text, str(path)))


def events(text: bytes, where: str = "trace") -> Iterator[Event]:
    """The events in `text`; what follows the last line break is a line that was cut off."""
    seen: set[str] = set()
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        try:
            event = _decode(line)
        except msgspec.MsgspecError as problem:
            raise UserError(f"line {number} is no event: {problem}", field=where) from None
        if event.id in seen:
            raise UserError(f"line {number} repeats the id {event.id}", field=where)
        if event.cause is not None and event.cause not in seen:
            raise UserError(f"line {number} was caused by {event.cause}, which does not stand before it", field=where)
        seen.add(event.id)
        yield event


def rebuild(ledger: Iterable[Event]) -> Trajectory:
    """The trajectory that a ledger tells of: its turns by the calls, sub-agents as children, the outcome.

    Raises UserError where the ledger has no beginning, DialectError where a body is not of its dialect.
    """
    told = list(ledger)
    start = next((event for event in told if isinstance(event, Started)), None)
    if start is None:
        raise UserError("has no beginning", field="trace")
    asked: dict[str | None, list[Asked]] = {None: []}
    for event in told:
        if isinstance(event, Asked):
            asked.setdefault(event.agent, []).append(event)
    spawns = {event.id: event.call for event in told if isinstance(event, Used)}
    children = tuple(
        msgspec.structs.replace(_line(agent, calls), spawned=spawns.get(calls[0].cause or ""))
        for agent, calls in asked.items()
        if agent is not None
    )
    end = next((event for event in reversed(told) if isinstance(event, Ended)), None)
    verdict = next((event for event in reversed(told) if isinstance(event, Judged)), None)
    outcome = None
    if end is not None:
        scored = verdict is not None and verdict.status == "scored"
        outcome = Outcome(
            status=end.status, reward=verdict.reward if scored and verdict is not None else None,
            details=None if verdict is None else verdict.details,
        )  # fmt: skip
    return msgspec.structs.replace(
        _line(start.trajectory, asked[None]), task=start.task, group=start.group, children=children, outcome=outcome,
        started=start.at, seconds=None if end is None else end.at - start.at,
    )  # fmt: skip


def _line(id: str, calls: list[Asked]) -> Trajectory:
    lifted = climb.lift(id, map(call_of, calls))
    turns = tuple(
        turn if event.tokens is None else msgspec.structs.replace(turn, tokens=event.tokens)
        for turn, event in zip(lifted.turns, calls, strict=True)
    )
    return msgspec.structs.replace(lifted, turns=turns)


def call_of(event: Asked) -> Call:
    """The call with its bodies lifted."""
    it = dialect(event.dialect)
    return Call(
        id=event.id, dialect=event.dialect, request=it.lift_request(event.request),
        response=None if event.response is None else it.lift_response(event.response), started=event.at,
        seconds=event.seconds, policy=event.policy, agent=event.agent,
    )  # fmt: skip


def stream_schema() -> StreamSchema:
    """The stream of ledgers: one row an event."""
    import pyarrow as pa

    from posttrain.lakestream.schemas import StreamSchema

    text = pa.string()
    columns = [
        pa.field("trajectory", text, nullable=False),
        pa.field("number", pa.int64(), nullable=False),  # of the event in its ledger, from 0
        pa.field("event", text, nullable=False),
        pa.field("id", text, nullable=False),
        pa.field("cause", text),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("seconds", pa.float64()),
        pa.field("body", text, nullable=False),  # the line of JSON
    ]
    return StreamSchema("trace", 1, pa.schema(columns))


def stream_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of ledgers with the stream's schema."""
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=stream_schema().arrow)


def stream_rows(ledger: Iterable[Event]) -> list[dict[str, Any]]:
    """The rows of a ledger for the stream of ledgers."""
    told = list(ledger)
    start = next((event for event in told if isinstance(event, Started)), None)
    return [
        {
            "trajectory": "" if start is None else start.trajectory, "number": number,
            "event": type(event).__name__.lower(), "id": event.id, "cause": event.cause, "at": int(event.at * 1e6),
            "seconds": event.seconds, "body": _encode(event).decode(),
        }
        for number, event in enumerate(told)
    ]  # fmt: skip
