"""The reward service without HTTP: a question is computed once, however many ask it, and its verdict is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from posttrain.contract.digest import digest_value
from posttrain.database import connect, create_tables, page
from posttrain.group_commit import Refused, Writer
from posttrain.reward import store
from posttrain.reward.api import Ask, Difference, Replay, ReplayRequest, ServiceStatus, Verdict, VerifierView
from posttrain.reward.engine import Busy, Engine
from posttrain.reward.model import Finding, Problem, Question, Status
from posttrain.reward.settings import RewardSettings

_SECONDS = (0.002, 0.005, 0.02, 0.05, 0.1, 0.5, 1, 5, 20, 60, 300)


class Desk:
    """`async with Desk(settings)`. Replicas share nothing but the database, where it is PostgreSQL."""

    def __init__(self, settings: RewardSettings):
        self.settings, self.closing = settings, False
        self._database = connect(settings.database, field="database")
        create_tables(self._database, store.METADATA, store.LOCK)
        self._computing: dict[str, asyncio.Task[Verdict]] = {}
        self.registry = CollectorRegistry()
        self._computed = Counter(
            "reward_computed", "Verdicts computed", ["verifier", "status"], "posttrain", registry=self.registry
        )
        self._known = Counter(
            "reward_known", "Answers from the index or from one under way", ["verifier"], "posttrain",
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "reward_seconds", "From question to finding, turns waited for included", ["verifier"], "posttrain",
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        waiting = Gauge(
            "reward_computing", "Questions that wait or are computed", [], "posttrain", registry=self.registry
        )
        waiting.set_function(lambda: len(self._computing))

    async def __aenter__(self) -> Desk:
        self.engine = Engine(self.settings)
        self._writer = Writer(self._database, store.LOCK)
        self._outbox = None
        if self.settings.stream:
            from posttrain.reward.streaming import Outbox

            arguments = (self._database, self.settings.stream, self.settings.replica)
            self._outbox = await asyncio.to_thread(Outbox, *arguments)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing = True
        await asyncio.gather(*self._computing.values(), return_exceptions=True)
        await self.engine.close()
        await asyncio.to_thread(self._writer.close)
        if self._outbox is not None:
            await asyncio.to_thread(self._outbox.close)
        self._database.dispose()

    def begin_to_end(self) -> None:
        """Say that no more is to be sent here; what is under way is still answered."""
        self.closing = True

    async def verdicts(self, asks: Sequence[Ask]) -> list[Verdict]:
        """In the order of `asks`. Raises Refused where a lane has too many waiting already."""
        keyed = [(ask, *await self._key(ask)) for ask in asks]
        known = await asyncio.to_thread(
            store.find, self._database, [key for _, key, _, finding in keyed if not finding]
        )
        wanted = [self._one(ask, key, version, finding, known.get(key)) for ask, key, version, finding in keyed]
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Busy):
                raise Refused(503, f"too many verdicts wait in the lane {answer}; ask again later")
            if isinstance(answer, BaseException):
                raise answer
        verdicts = [answer for answer in answers if isinstance(answer, Verdict)]
        await self._note(asks, verdicts)
        return verdicts

    async def replay(self, wanted: ReplayRequest) -> Replay:
        """Compute a page of stored verdicts again, and say what came out otherwise."""
        equal = {"verifier": wanted.verifier, "version": wanted.version}
        rows, following = await self._page(wanted.after, wanted.limit, equal)

        async def again(row: store.Row) -> Difference | None:
            question = store.question_of(row)
            version, finding = await self._version(question)
            finding = finding or await self.engine.find(question)
            if (finding.status, finding.reward) == (row.status, row.reward):
                return None
            return Difference(
                key=row.key, verifier=row.verifier, version=row.version, status=row.status, reward=row.reward,
                other_version=version, other_status=finding.status, other_reward=finding.reward,
            )  # fmt: skip

        found = [d for d in await asyncio.gather(*map(again, rows)) if d is not None]
        return Replay(compared=len(rows), same=len(rows) - len(found), differences=found, next=following)

    async def compare(self, verifier: str, one: str, other: str, limit: int) -> list[Difference]:
        return await asyncio.to_thread(store.pairs, self._database, verifier, one, other, limit)

    async def page(self, after: int, limit: int, **equal: str | None) -> tuple[list[Verdict], int | None]:
        rows, following = await self._page(after, limit, equal)
        return [store.verdict_of(row, task="", trajectory="", stored=True) for row in rows], following

    async def status(self) -> ServiceStatus:
        waiting = {name: turns.waiting for name, turns in self.engine.turns.items()}
        views = [
            VerifierView(name=name, lane=v.lane, waiting=waiting.get(v.lane, 0))
            for name, v in sorted(self.engine.verifiers.items())
        ]
        unstreamed = await asyncio.to_thread(lambda: self._outbox.left if self._outbox else 0)
        return ServiceStatus(
            verifiers=views, stored=await asyncio.to_thread(store.counts, self._database), unstreamed=unstreamed
        )

    async def _page(
        self, after: int, limit: int, equal: Mapping[str, str | None]
    ) -> tuple[list[store.Row], int | None]:
        """Verdicts in the order in which they were stored, and where the next page begins."""
        return await asyncio.to_thread(page, self._database, store.VERDICTS, after, limit, equal)

    async def _key(self, ask: Ask) -> tuple[str, str, Finding | None]:
        """The verdict's key and the verifier's version; what is found already, where the question cannot be asked."""
        question = ask.question()
        version, finding = await self._version(question)
        if finding is None and ask.version is not None and ask.version != version:
            said = f"{ask.verifier} has version {version} here, not {ask.version}"
            version, finding = ask.version, Finding(Status.not_found, evidence={"error": said})
        return digest_value([question.digest, version]), version, finding

    async def _version(self, question: Question) -> tuple[str, Finding | None]:
        try:
            return await self.engine.version(question), None
        except Problem as problem:
            return "", Finding(problem.status, evidence={"error": problem.detail} | problem.evidence)

    async def _one(self, ask: Ask, key: str, version: str, finding: Finding | None, row: store.Row | None) -> Verdict:
        if finding is not None:
            self._computed.labels(_label(ask.verifier), finding.status.value).inc()
            return _unstored(ask, key, version, finding)
        if row is not None:
            self._known.labels(_label(ask.verifier)).inc()
            return store.verdict_of(row, task=ask.task, trajectory=ask.trajectory, stored=True)
        if key in self._computing:
            task = self._computing[key]
            self._known.labels(_label(ask.verifier)).inc()
        else:
            task = asyncio.create_task(self._compute(ask, key, version))
            self._computing[key] = task
            task.add_done_callback(lambda _: self._computing.pop(key))
        # A caller that goes away must not end what others wait for.
        verdict = await asyncio.shield(task)
        return verdict.model_copy(update={"task": ask.task, "trajectory": ask.trajectory})

    async def _compute(self, ask: Ask, key: str, version: str) -> Verdict:
        question, began = ask.question(), time.monotonic()
        finding = await self.engine.find(question)
        seconds = time.monotonic() - began
        self._computed.labels(_label(ask.verifier), finding.status.value).inc()
        self._seconds.labels(_label(ask.verifier)).observe(seconds)
        replica = self.settings.replica
        row = await asyncio.wrap_future(
            self._writer.do(lambda db: store.keep(db, key, version, question, finding, seconds, ask, replica))
        )
        return store.verdict_of(row, task=ask.task, trajectory=ask.trajectory, stored=False)

    async def _note(self, asks: Sequence[Ask], verdicts: Sequence[Verdict]) -> None:
        """Another trajectory with an answer that is known has its own row in the stream."""
        scored = [(a, v) for a, v in zip(asks, verdicts, strict=True) if v.status is Status.scored]
        there = await asyncio.to_thread(store.noted, self._database, [(v.key, a.trajectory) for a, v in scored])
        lacking = [(a, v) for a, v in scored if (v.key, a.trajectory) not in there]
        if lacking:
            replica = self.settings.replica

            def write(db: store.Connection) -> None:
                for ask, verdict in lacking:
                    store.note(db, verdict.key, verdict.status, ask, replica)

            await asyncio.wrap_future(self._writer.do(write))


def _unstored(ask: Ask, key: str, version: str, finding: Finding) -> Verdict:
    return Verdict(
        key=key, task=ask.task, trajectory=ask.trajectory, verifier=ask.verifier, version=version,
        status=finding.status, reward=None, correct=None, well_formed=None, components={},
        evidence=dict(finding.evidence), seconds=0.0, stored=False,
    )  # fmt: skip


def _label(verifier: str) -> str:
    """A verifier's kind: names that callers make up must not become series of their own."""
    return verifier.partition(":")[0] if verifier.partition(":")[0] in _KINDS else "other"


_KINDS = ("exact", "numeric", "math", "regex", "json_schema", "composite", "unit_tests", "reasoning_gym", "function",
          "judge", "preference")  # fmt: skip
