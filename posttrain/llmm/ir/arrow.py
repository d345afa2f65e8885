"""A trajectory as a row of the `experience` stream, and back.

A row holds one line of turns: a prompt, what was sampled and what came between, as one sequence of tokens. A
trajectory that forked is several rows. The whole of the IR goes into `messages` as JSON, so that nothing is lost.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from posttrain.errors import UserError
from posttrain.llmm.ir.agentic import Trajectory
from posttrain.llmm.ir.json import from_json, to_json
from posttrain.llmm.ir.tokens import Tokens, loss_mask, policy_versions, wrong

if TYPE_CHECKING:
    import pyarrow as pa

_STATUS = {"interrupted": "aborted"}  # the stream's closed set


def rows(trajectory: Trajectory) -> list[dict[str, Any]]:
    """The trajectory's rows, one for each turn whose tokens no later turn goes on with.

    Raises UserError where the tokens of a turn break an invariant of theirs.
    """
    continued = {turn.parent for turn in trajectory.turns if turn.parent is not None and turn.tokens is not None}
    ends = [turn for turn in trajectory.turns if turn.tokens is not None and turn.index not in continued]
    text = to_json(trajectory).decode()
    out = []
    for number, turn in enumerate(ends):
        assert turn.tokens is not None
        row = _tokens(turn.tokens, f"{trajectory.id} turn {turn.index}")
        outcome = trajectory.outcome
        row.update(
            trajectory=trajectory.id if len(ends) == 1 else f"{trajectory.id}#{number}",
            task=trajectory.task or "", group=trajectory.group or "", messages=text,
            reward=None if outcome is None else outcome.reward,
            status="aborted" if outcome is None else _STATUS.get(outcome.status, outcome.status),
            started=None if trajectory.started is None else _time(trajectory.started), seconds=trajectory.seconds,
        )  # fmt: skip
        out.append(row)
    return out


def table(trajectories: list[Trajectory]) -> pa.Table:
    """`rows` of several, with the stream's schema."""
    import pyarrow as pa

    from posttrain.lakestream.schemas import EXPERIENCE

    return pa.Table.from_pylist([row for each in trajectories for row in rows(each)], schema=EXPERIENCE.arrow)


def trajectory(row: dict[str, Any]) -> Trajectory:
    """The trajectory that a row is of. Raises UserError where the row was not made from one."""
    value = from_json(row.get("messages") or "")
    if not isinstance(value, Trajectory):
        raise UserError("holds no trajectory", field="messages", value=type(value).__name__)
    return value


def _tokens(tokens: Tokens, where: str) -> dict[str, Any]:
    if (reason := wrong(tokens)) is not None:
        raise UserError(reason, field=where)
    return {
        "tokens": list(tokens.ids),
        "loss_mask": loss_mask(tokens),
        "logprobs": None if tokens.logprobs is None else list(tokens.logprobs),
        "policy_versions": [
            {"version": version, "start": start, "end": end} for version, start, end in policy_versions(tokens)
        ],
    }


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
