"""Between the agentic level and the chat level: a trajectory is its calls, and calls make a trajectory.

Invariants: `lower(lift(calls))` gives the calls again, with their messages; nothing that was said is kept twice. A call
goes on from the latest turn whose history it repeats, said alike, and adds to; one that repeats none of them
begins a history of its own, and where there were turns before, that is a fork with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from posttrain.llmm.ir.agentic import Call, Copy, Trajectory, Turn
from posttrain.llmm.ir.chat import ChatRequest, Message, Reasoning, ToolResult
from posttrain.llmm.ir.same import bare

Fork = str


def lift(id: str, calls: Iterable[Call]) -> Trajectory:
    """The trajectory of calls with whole requests, in the order in which they were made."""
    turns: list[Turn] = []
    histories: list[tuple[Message, ...]] = []
    for index, call in enumerate(calls):
        messages = call.request.messages if call.request is not None else ()
        parent, fork = _parent(messages, histories)
        known = 0 if parent is None else len(histories[parent])
        repeated = zip(messages, histories[parent] if parent is not None else (), strict=False)
        copies = tuple(Copy(at, new) for at, (new, old) in enumerate(repeated) if new != old)
        choices = call.response.choices if call.response is not None else ()
        said = choices[0] if choices else None
        request = None if call.request is None else msgspec.structs.replace(call.request, messages=())
        response = None if call.response is None else msgspec.structs.replace(call.response, choices=choices[1:])
        turns.append(
            Turn(
                index=index, parent=parent, fork=fork, copies=copies, seen=messages[known:], said=said,
                call=msgspec.structs.replace(call, request=request, response=response),
            )
        )  # fmt: skip
        histories.append((*messages, said.message) if said is not None else messages)
    return Trajectory(id=id, turns=tuple(turns))


def lower(trajectory: Trajectory) -> list[Call]:
    """The calls of a trajectory, each with the whole of its request."""
    calls: list[Call] = []
    histories: list[tuple[Message, ...]] = []
    for turn in trajectory.turns:
        before = [] if turn.parent is None else list(histories[turn.parent])
        for copy in turn.copies:
            before[copy.at] = copy.message
        request, response = turn.call.request, turn.call.response
        messages = (*before, *turn.seen)
        said = () if turn.said is None else (turn.said,)
        if request is not None:
            request = msgspec.structs.replace(request, messages=messages)
        if response is not None:
            response = msgspec.structs.replace(response, choices=(*said, *response.choices))
        calls.append(msgspec.structs.replace(turn.call, request=request, response=response))
        histories.append((*messages, turn.said.message) if turn.said is not None else messages)
    return calls


def request(trajectory: Trajectory, turn: int) -> ChatRequest:
    """The request of one turn. Raises IndexError where there is none, ValueError where it was not kept."""
    found = lower(trajectory)[turn].request
    if found is None:
        raise ValueError(f"turn {turn} of {trajectory.id} was recorded without its request")
    return found


def _parent(messages: Sequence[Message], histories: Sequence[tuple[Message, ...]]) -> tuple[int | None, Fork | None]:
    """The latest turn that `messages` go on from; else why there is none."""
    if not histories:
        return None, None
    new = [bare(message) for message in messages]
    for index in range(len(histories) - 1, -1, -1):
        old = histories[index]
        if len(old) <= len(new) and all(bare(a) == b for a, b in zip(old, new, strict=False)):
            return index, None if index == len(histories) - 1 else "went back"
    return None, _why([bare(message) for message in histories[-1]], new)


def _why(old: list[Message], new: list[Message]) -> Fork:
    if len(new) < len(old) and new == old[: len(new)]:
        return "shortened"
    for was, now in zip(old, new, strict=False):
        if was == now:
            continue
        if was.role != now.role or (was is old[0] and now.role in ("system", "developer", "user")):
            return "another conversation" if was is old[0] else "edited"
        if [part for part in was.parts if not isinstance(part, Reasoning)] == [*now.parts]:
            return "reasoning dropped"
        if all(isinstance(part, ToolResult) for part in (*was.parts, *now.parts)):
            return "tool results changed"
        return "edited"
    return "edited"
