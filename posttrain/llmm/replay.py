"""Replay of a ledger: its conversions run again, and the model where asked; the first difference is named.

Invariants: nothing of the ledger is changed; what is compared is what the ledger says with what this program makes of
the same bodies now. A model's answer is compared bare: what it says, not how its vendor wrote it down, nor the ids of
its calls, which a server makes up anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from posttrain.errors import UserError
from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.crossing import convert
from posttrain.llmm.ir.chat import Message, ToolCall
from posttrain.llmm.ir.origin import Json
from posttrain.llmm.ir.same import bare, first_difference
from posttrain.llmm.trace import Asked, Converted, Event, Lost, rebuild

Model = Callable[[str, Json], Json]  # (dialect, request) -> response
LOGPROB_TOLERANCE = 1e-3  # of a model in fp32


@dataclass(frozen=True)
class Difference:
    """`event` is the id of the one that came out otherwise, `what` was run again, `path` is in what it made."""

    event: str
    what: str
    path: str
    was: Any
    now: Any


def replay(ledger: Iterable[Event], model: Model | None = None) -> Difference | None:
    """The first difference; None where all comes out the same. `model` is asked every request again."""
    return next(differences(ledger, model), None)


def differences(ledger: Iterable[Event], model: Model | None = None) -> Iterator[Difference]:
    """Every event's first difference, in order."""
    for event in ledger:
        if isinstance(event, Asked):
            yield from _asked(event)
            if model is not None and event.response is not None:
                yield from _answered(event, model)
        elif isinstance(event, Converted):
            yield from _converted(event)


def compare(one: Iterable[Event], other: Iterable[Event]) -> Difference | None:
    """Where the trajectories of two ledgers first differ, bare: turn by turn, as they were lived."""
    here, there = bare(rebuild(one)), bare(rebuild(other))
    for mine, theirs in zip(here.turns, there.turns, strict=False):
        for part in ("parent", "fork", "seen", "said", "tokens"):
            found = first_difference(getattr(mine, part), getattr(theirs, part), part)
            if found is not None:
                return Difference(mine.call.id, f"turn {mine.index}", *found)
    found = first_difference(len(here.turns), len(there.turns), "turns") or first_difference(
        here.outcome, there.outcome, "outcome"
    )
    if found is not None:
        return Difference("", "trajectory", *found)
    for child, sibling in zip(here.children, there.children, strict=False):
        if (found := first_difference(child.turns, sibling.turns, "turns")) is not None:
            return Difference("", f"sub-agent {child.id}", *found)
    found = first_difference(len(here.children), len(there.children), "children")
    return None if found is None else Difference("", "trajectory", *found)


def _asked(event: Asked) -> Iterator[Difference]:
    it = dialect(event.dialect)
    for what, wire, again in (
        ("request", event.request, lambda body: it.lower_request(it.lift_request(body))),
        ("response", event.response, lambda body: it.lower_response(it.lift_response(body))),
    ):
        if wire is not None and (found := first_difference(wire, again(wire))) is not None:
            yield Difference(event.id, f"{what} of {event.dialect} lifted and lowered", *found)


def _converted(event: Converted) -> Iterator[Difference]:
    if event.kind not in ("request", "response"):
        raise UserError("is neither request nor response", field=f"{event.id}.kind", value=event.kind)
    crossing = convert(event.source, event.target, event.wire, event.kind)  # type: ignore[arg-type]
    what = f"{event.kind} from {event.source} to {event.target}"
    found = first_difference(event.result, crossing.wire, "result")
    if found is None:
        now = tuple(Lost(loss.path, loss.value, loss.reason) for loss in crossing.losses)
        found = first_difference(event.losses, now, "losses")
    if found is not None:
        yield Difference(event.id, what, *found)


def _answered(event: Asked, model: Model) -> Iterator[Difference]:
    it = dialect(event.dialect)
    was, now = it.lift_response(event.response or {}), it.lift_response(model(event.dialect, event.request))
    for index, (mine, theirs) in enumerate(zip(was.choices, now.choices, strict=False)):
        for part in ("message", "stop", "stop_sequence"):
            was_, now_ = (bare(_numbered(getattr(choice, part))) for choice in (mine, theirs))
            found = first_difference(was_, now_, f"choices.{index}.{part}")
            if found is not None:
                yield Difference(event.id, "answer of the model", *found)
                return
        if (differs := _logprobs_differ(mine.logprobs, theirs.logprobs)) is not None:
            place, old, new = differs
            yield Difference(event.id, "answer of the model", f"choices.{index}.logprobs.{place}", old, new)
            return
    if len(was.choices) != len(now.choices):
        yield Difference(event.id, "answer of the model", "choices", len(was.choices), len(now.choices))


def _numbered(value: Any) -> Any:
    """A message with its calls' numbers in the place of their ids."""
    if not isinstance(value, Message):
        return value
    parts = [
        msgspec.structs.replace(part, id=str(number)) if isinstance(part, ToolCall) else part
        for number, part in enumerate(value.parts)
    ]
    return msgspec.structs.replace(value, parts=tuple(parts))


def _logprobs_differ(one: Any, other: Any) -> tuple[int, Any, Any] | None:
    """The first token whose log-probabilities are further apart than an fp32 model's are from run to run."""
    if one is None or other is None:
        return None
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine.token != theirs.token:
            return place, mine.token, theirs.token
        if abs((mine.logprob or 0.0) - (theirs.logprob or 0.0)) > LOGPROB_TOLERANCE:
            return place, mine.logprob, theirs.logprob
    return None
