"""The ledger of a trajectory, from its turns: calls of the model, the tools' calls that they show, the outcome.

Invariants: `trace.rebuild` gives the trajectory again; an event's cause is what it could not have happened without: a
call of the model comes of the tool result that it brings, of the turn that it goes on from, or of the tool's call that
spawned its agent. Tools are not seen at work: one is told of once its result was brought.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from posttrain.errors import UserError
from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.session import spawns
from posttrain.llmm.ir import climb
from posttrain.llmm.ir.agentic import Call, Trajectory, Turn
from posttrain.llmm.ir.chat import Text, ToolCall, ToolResult
from posttrain.llmm.trace import Asked, Converted, Ended, Event, Judged, Lost, Started, Used


@dataclass(frozen=True)
class Note:
    """What is known of a call besides its turn."""

    failure: str | None = None
    vendor: str | None = None
    losses: tuple[Lost, ...] = ()
    conversions: tuple[Converted, ...] = ()


@dataclass(frozen=True)
class _Made:
    """A call with the whole of its request, and who made it. `parent` is the call that it goes on from."""

    turn: Turn
    call: Call
    agent: str | None
    parent: str | None
    spawned: str | None


def record(
    trajectory: Trajectory, name: str, *, others: Trajectory | None = None, notes: Mapping[str, Note] | None = None,
    metadata: dict[str, str] | None = None,
) -> list[Event]:  # fmt: skip
    """The ledger of a trajectory whose calls are told in the dialect `name`. `others` holds calls of the same run that
    are no turns of it: failed ones, a vendor's. `notes` are by the ids of calls.

    Raises UserError where a call was kept without its request.
    """
    begin = trajectory.started if trajectory.started is not None else time.time()
    made = [*_made(trajectory), *(_made(others) if others is not None else ())]
    made.sort(key=lambda one: begin if one.call.started is None else one.call.started)
    told: list[Event] = [
        Started(
            id="start", at=begin, trajectory=trajectory.id, task=trajectory.task, group=trajectory.group, dialect=name,
            metadata=metadata or None,
        )
    ]  # fmt: skip
    told += _after_their_causes(_told(made, name, begin, notes or {}))
    if trajectory.outcome is not None:
        at, outcome = begin + (trajectory.seconds or 0.0), trajectory.outcome
        if outcome.reward is not None:
            told.append(
                Judged(
                    id="verdict", at=at, cause=told[-1].id, verifier="recorded", status="scored",
                    reward=outcome.reward, details=outcome.details,
                )
            )  # fmt: skip
        told.append(Ended(id="end", at=at, cause=told[-1].id, status=outcome.status))
    return told


def _made(trajectory: Trajectory) -> Iterator[_Made]:
    for line in (trajectory, *trajectory.children):
        agent = None if line is trajectory else line.id
        for turn, call in zip(line.turns, climb.lower(line), strict=True):
            parent = None if turn.parent is None else line.turns[turn.parent].call.id
            yield _Made(turn, call, agent or call.agent, parent, line.spawned)


def _told(made: Sequence[_Made], name: str, begin: float, notes: Mapping[str, Note]) -> list[Event]:
    brought = _brought(made, begin)
    tools, spawners = [used for group in brought.values() for used in group], dict[str, str]()
    told: list[Event] = [*tools]
    for one in made:
        call, results = one.call, brought.get(one.call.id)
        if call.request is None:
            raise UserError("was kept without its request", field=f"call {call.id}")
        it, note = dialect(call.dialect or name), notes.get(call.id, Note())
        at = begin if call.started is None else call.started
        if one.agent is not None and one.agent not in spawners:
            spawners[one.agent] = _spawner(one, at, tools, set(spawners.values()))
        first = spawners.get(one.agent or "", "start")
        told.append(
            Asked(
                id=call.id, at=at, cause=results[-1].id if results else one.parent or first, seconds=call.seconds,
                dialect=it.name, request=it.lower_request(call.request), agent=one.agent, policy=call.policy,
                response=None if call.response is None else it.lower_response(call.response),
                tokens=one.turn.tokens, failure=note.failure, vendor=note.vendor, losses=note.losses,
            )
        )  # fmt: skip
        told += note.conversions
    return told


def _brought(made: Sequence[_Made], begin: float) -> dict[str, list[Used]]:
    """For each call of the model the tools' calls whose results its request brings."""
    waiting: list[tuple[_Made, ToolCall]] = []
    found: dict[str, list[Used]] = {}
    count = 0
    for one in made:
        for result in (part for message in one.turn.seen for part in message.parts if isinstance(part, ToolResult)):
            asker = next((w for w in waiting if w[0].agent == one.agent and _answers(result, w[1])), None)
            if asker is None:
                continue
            waiting.remove(asker)
            of, asked = asker
            at = (of.call.started or begin) + (of.call.seconds or 0.0)
            count += 1
            used = Used(
                id=f"tool{count}", at=at, cause=of.call.id, call=asked.id or "", name=asked.name,
                seconds=None if one.call.started is None else max(0.0, one.call.started - at),
                arguments=asked.arguments, result=_result(result), error="failed" if result.error else None,
            )  # fmt: skip
            found.setdefault(one.call.id, []).append(used)
        said = one.turn.said.message.parts if one.turn.said is not None else ()
        waiting += [(one, part) for part in said if isinstance(part, ToolCall)]
    return found


def _answers(result: ToolResult, asked: ToolCall) -> bool:
    return result.call == asked.id if result.call is not None else result.name == asked.name


def _result(result: ToolResult) -> object:
    if result.value is not None:
        return result.value
    shown = (part.text if isinstance(part, Text) else f"[{part.type}]" for part in result.content)
    return "\n".join(shown)


def _spawner(first: _Made, at: float, tools: Sequence[Used], taken: set[str]) -> str:
    """The tool's call that an agent's first call comes of: the one it names, or one that spawns and was under way."""
    for used in tools:
        if first.spawned is not None:
            if used.call == first.spawned:
                return used.id
        elif spawns(used.name) and used.id not in taken and used.at <= at <= used.at + (used.seconds or 0.0):
            return used.id
    return "start"


def _after_their_causes(told: list[Event]) -> list[Event]:
    """In order of time, but none before what caused it: clocks are set back at times."""
    by_id = {event.id: event for event in told}
    placed: dict[str, Event] = {}

    def place(event: Event) -> None:
        if event.id not in placed:
            if event.cause in by_id:
                place(by_id[event.cause])
            placed[event.id] = event

    for event in sorted(told, key=lambda event: event.at):
        place(event)
    return list(placed.values())
