"""Trajectories under way: a key names one, calls with it become its turns, `finish` ends it.

Invariants: a trajectory ends once, whoever says so how often; what is ended takes no more calls. One that the
gateway's end left open is ended as `interrupted` when the gateway starts again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from posttrain.llmm import ir, trace
from posttrain.llmm.gateway.errors import GatewayError
from posttrain.llmm.gateway.experience import Keeper
from posttrain.llmm.gateway.journal import CallFailed, CallPassed, Closed, Journal, Opened, TurnTaken
from posttrain.llmm.gateway.limits import KeyLimits
from posttrain.llmm.gateway.settings import GatewaySettings
from posttrain.llmm.gateway.telemetry import Metrics
from posttrain.llmm.ir.agentic import Copy, Status
from posttrain.llmm.tokens.history import History, Plan, Sampled
from posttrain.llmm.tokens.messages import template_messages
from posttrain.llmm.tokens.model import ChatModel

JSON = dict[str, Any]
STATUSES = ("finished", "truncated", "failed", "aborted")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REMEMBERED = 1000  # ended trajectories, and responses of one key that `previous_response_id` can name


class Responses:
    """The conversations that a client may go on with by the id of a response."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[ir.Message, ...]] = OrderedDict()

    def remember(self, response: str, messages: tuple[ir.Message, ...]) -> None:
        self._known[response] = messages
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def resume(self, request: ir.ChatRequest) -> tuple[ir.Message, ...]:
        """All messages of the request. Raises GatewayError (404) where `previous` is not known."""
        if request.previous is None:
            return request.messages
        if request.previous not in self._known:
            raise GatewayError(404, f"no response {request.previous!r}", param="previous_response_id")
        before = self._known[request.previous]
        if request.messages and request.messages[0].role in ("system", "developer"):  # new instructions
            head, rest = request.messages[:1], request.messages[1:]
            return (*head, *(m for m in before if m.role not in ("system", "developer")), *rest)
        return (*before, *request.messages)


@dataclass
class Trajectory:
    opened: Opened
    history: History
    limits: KeyLimits
    version: str | None = None
    responses: Responses = field(default_factory=Responses)
    said: list[tuple[ir.Message, ...]] = field(default_factory=list)  # all messages up to the end of each turn
    calls: int = 0  # under way
    ended: asyncio.Future[int] | None = None
    closed: Closed | None = None

    @property
    def now(self) -> datetime:
        """What its templates are told: the day it began on."""
        return datetime.fromtimestamp(self.opened.started)

    def describe(self) -> JSON:
        turns = self.history.nodes
        return {
            "id": self.opened.id,
            "task": self.opened.task,
            "group": self.opened.group,
            "status": self.closed.status if self.closed else "open",
            "turns": len(turns),
            "rows": len(self.history.rows()),
            "sampled_tokens": sum(len(turn.sampled.ids) for turn in turns),
            "forks": self.history.forks,
            "version": self.version,
        }


class Trajectories:
    def __init__(self, settings: GatewaySettings, model: ChatModel, journal: Journal, keeper: Keeper,
                 metrics: Metrics):  # fmt: skip
        self._settings, self._model, self._journal, self._keeper = settings, model, journal, keeper
        self._metrics = metrics
        self._by_id: dict[str, Trajectory] = {}
        self._by_key: dict[str, Trajectory] = {}
        self._ended: deque[Trajectory] = deque()
        self._next = max([keeper.cursor, *(n for n, _ in journal.closed_ones())]) + 1

    def recover(self) -> int:
        """End what an earlier process left open, and see that all that ended is in the stream. Returns how many
        were open."""
        left = self._journal.open_ones()
        for name in left:
            self._journal.mend(name)
            self._journal.close(name, Closed(status="interrupted", at=time.time()), self._number())
            self._metrics.trajectories.labels("interrupted").inc()
        for number, path in self._journal.closed_ones():
            if number <= self._keeper.cursor:
                self._keeper.settle(path)
            else:
                self._keeper.put(number, path)
        return len(left)

    def open(
        self, *, task: str, group: str | None, name: str | None, metadata: dict[str, str]
    ) -> tuple[Trajectory, str]:
        """A new trajectory, and its key. Raises GatewayError (409, 422)."""
        name = name or secrets.token_hex(8)
        if not _ID.fullmatch(name):
            raise GatewayError(422, "must be up to 100 letters, digits, '.', '_' and '-'", param="id")
        if name in self._by_id or self._journal.find_closed(name):
            raise GatewayError(409, f"there is a trajectory {name!r}", param="id")
        key = "pt-" + secrets.token_urlsafe(24)
        opened = Opened(
            id=name, task=task, group=group or task, key=digest(key), started=time.time(), metadata=metadata
        )
        history = History(self._model.codec, rewrites=self._settings.rewrites)  # type: ignore[arg-type]
        trajectory = Trajectory(opened, history, KeyLimits(self._settings.trajectory_limits))
        self._journal.write(name, opened)
        self._by_id[name] = self._by_key[opened.key] = trajectory
        self._metrics.open.inc()
        return trajectory, key

    def of_key(self, key: str) -> Trajectory | None:
        """The trajectory that `key` names. Raises GatewayError (409) where that has ended."""
        found = self._by_key.get(digest(key))
        if found is not None and found.closed is not None:
            raise GatewayError(409, f"the trajectory {found.opened.id!r} has ended: {found.closed.status}")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._by_id

    def find(self, name: str) -> Trajectory:
        """Raises GatewayError (404)."""
        if name not in self._by_id:
            raise GatewayError(404, f"no trajectory {name!r}")
        return self._by_id[name]

    def take(
        self, trajectory: Trajectory, plan: Plan, sampled: Sampled, turn: ir.Turn, request: ir.ChatRequest, *,
        version: str, losses: tuple[trace.Lost, ...],
    ) -> None:  # fmt: skip
        """Add a turn. Raises GatewayError (409) where the trajectory ended meanwhile."""
        if trajectory.closed is not None:
            raise GatewayError(409, f"the trajectory {trajectory.opened.id!r} has ended")
        assert turn.said is not None
        said = template_messages(ir.ChatRequest(messages=(turn.said.message,))).messages[0]
        counted = sum(trajectory.history.forks.values())
        index = trajectory.history.add(plan, sampled, said)
        before = trajectory.said[plan.parent] if plan.parent is not None else ()
        trajectory.said.append((*request.messages, turn.said.message))
        repeated = enumerate(zip(request.messages, before, strict=False))
        turn = msgspec.structs.replace(
            turn, index=index, parent=plan.parent, fork=plan.fork, seen=request.messages[len(before) :],
            copies=tuple(Copy(at, new) for at, (new, old) in repeated if new != old),
        )  # fmt: skip
        entry = TurnTaken(
            turn=turn, new=plan.new, ids=sampled.ids, logprobs=sampled.logprobs,
            policy=sampled.policy, version=version, losses=losses,
        )  # fmt: skip
        self._journal.write(trajectory.opened.id, entry)
        self._metrics.turns.inc()
        if plan.fork and sum(trajectory.history.forks.values()) > counted:
            self._metrics.forks.labels(plan.fork).inc()

    def note(self, trajectory: Trajectory, call: CallFailed | CallPassed) -> None:
        """A call that is no turn: one that failed, or that a vendor answered."""
        if trajectory.closed is None:
            self._journal.write(trajectory.opened.id, call)

    async def finish(
        self, name: str, status: Status, reward: float | None, details: dict[str, object] | None = None
    ) -> JSON:
        """End a trajectory; its rows are in the stream when this returns. Ended before: how it ended then."""
        if name not in self._by_id and (closed := self._journal.find_closed(name)):
            return {"id": name, "status": closed.status, "reward": closed.reward}
        trajectory = self.find(name)
        if trajectory.closed is None:
            if trajectory.calls:
                raise GatewayError(409, f"{trajectory.calls} calls of it are under way", retry_after=1.0)
            self._close(trajectory, Closed(status=status, at=time.time(), reward=reward, details=details))
        assert trajectory.closed is not None and trajectory.ended is not None
        try:
            await asyncio.shield(trajectory.ended)
        except Exception as problem:
            raise GatewayError(503, f"it has ended, and is not in the stream yet: {problem}") from None
        return trajectory.describe() | {"reward": trajectory.closed.reward}

    def _close(self, trajectory: Trajectory, closed: Closed) -> None:
        number = self._number()
        path = self._journal.close(trajectory.opened.id, closed, number)
        trajectory.closed = closed
        trajectory.ended = asyncio.wrap_future(self._keeper.put(number, path))
        self._metrics.trajectories.labels(closed.status).inc()
        self._metrics.open.dec()
        self._ended.append(trajectory)
        if len(self._ended) > _REMEMBERED:  # what the journal knows of it is enough
            oldest = self._ended.popleft()
            del self._by_id[oldest.opened.id], self._by_key[oldest.opened.key]

    def _number(self) -> int:
        number = self._next
        self._next += 1
        return number


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
