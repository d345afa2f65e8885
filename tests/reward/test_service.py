"""The reward service: computed once however often it is asked, stored, replayed, streamed; no failure is a number."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from posttrain.lakestream import Stream
from posttrain.reward.api import Ask, ReplayRequest, Verdict
from posttrain.reward.client import RewardClient
from posttrain.reward.desk import Desk
from posttrain.reward.model import Status
from posttrain.reward.service import create_app
from posttrain.reward.settings import Lane, RewardSettings
from tests.rollout.fuzz import fuzz
from tests.rollout.postgres import postgres
from tests.rollout.test_service import served

T = TypeVar("T")
FUNCTIONS = """
import os, pathlib, time
def counted(question):
    with open(question["metadata"]["log"], "a") as log:
        log.write("x")
    time.sleep(0.2)
    return {"reward": 0.5, "evidence": {"seen": question["extracted"]}}
def crashes(question):
    os._exit(9)
def raises(question):
    raise RuntimeError("no such luck")
def never_ends(question):
    while True:
        pass
def no_number(question):
    return float("nan")
"""


@pytest.fixture
def settings(tmp_path: Path) -> RewardSettings:
    (tmp_path / "rewarding.py").write_text(FUNCTIONS)
    names = ("counted", "crashes", "raises", "never_ends", "no_number")
    return RewardSettings(
        str(tmp_path / "verdicts.db"), stream=str(tmp_path / "verdicts"), function_path=str(tmp_path),
        functions=[f"rewarding:{name}" for name in names], lanes={"function:rewarding:never_ends": Lane(1, 1.5)},
    )  # fmt: skip


def at(settings: RewardSettings, work: Callable[[Desk], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Desk(settings) as desk:
            return await work(desk)

    return asyncio.run(run())


def ask(verifier: str, completion: str, answer: str = "", trajectory: str = "t/0", **metadata: Any) -> Ask:
    return Ask(
        task="t", trajectory=trajectory, verifier=verifier, completion=completion, answer=answer, metadata=metadata
    )


def rows(settings: RewardSettings) -> list[dict[str, Any]]:
    return Stream.open(settings.stream).snapshot().to_table().to_pylist()


def test_the_same_question_a_hundred_times_at_once_is_computed_once(settings, tmp_path):
    log = tmp_path / "log"
    asks = [ask("function:rewarding:counted", "so", trajectory=f"t/{n % 10}", log=str(log)) for n in range(100)]

    async def work(desk: Desk) -> list[Verdict]:
        found = await asyncio.gather(*(desk.verdicts([each]) for each in asks))
        return [verdict for (verdict,) in found]

    verdicts = at(settings, work)
    assert log.read_text() == "x" and {v.reward for v in verdicts} == {0.5}
    assert [v.trajectory for v in verdicts] == [a.trajectory for a in asks]
    again = at(settings, lambda desk: desk.verdicts(asks[:1]))[0]
    assert log.read_text() == "x" and again.stored and again.evidence == {"extracted": "so", "seen": "so"}
    assert sorted(row["trajectory"] for row in rows(settings)) == [f"t/{n}" for n in range(10)]


def test_no_failure_is_ever_a_number_nor_stored_as_an_answer(settings):
    wanted = {
        "crashes": Status.verifier_error, "raises": Status.verifier_error, "never_ends": Status.timed_out,
        "no_number": Status.verifier_error,
    }  # fmt: skip
    asks = [ask(f"function:rewarding:{name}", "so") for name in wanted]
    asks += [ask("function:os:system", "so"), ask("nothing", "so"), ask("reasoning_gym", "so")]
    asks += [ask("exact", "so").model_copy(update={"version": "0"}), ask("math", "1", answer="")]
    asks += [ask("regex", "<answer>a</answer>", pattern="("), ask("unit_tests", "```python\nx\n```", cases=[])]
    verdicts = at(settings, lambda desk: desk.verdicts(asks))
    assert [v.status for v in verdicts] == [
        *wanted.values(), *[Status.not_found] * 4, *[Status.invalid_answer] * 3,
    ]  # fmt: skip
    assert all(v.reward is None and v.correct is None and v.evidence["error"] for v in verdicts)
    assert rows(settings) == []
    again = at(settings, lambda desk: desk.verdicts(asks[1:2]))[0]
    assert not again.stored  # asked again it is computed again


def test_a_verifier_that_never_ends_holds_up_nobody_else(settings):
    async def work(desk: Desk) -> tuple[list[Verdict], bool]:
        stuck = [asyncio.create_task(desk.verdicts([ask("function:rewarding:never_ends", str(n))])) for n in range(3)]
        await asyncio.sleep(0)
        others = await desk.verdicts([ask("exact", f"<answer>{n}</answer>", "7", trajectory=str(n)) for n in range(50)])
        still = not any(task.done() for task in stuck)
        for task in stuck:
            assert (await task)[0].status is Status.timed_out
        return others, still

    others, still = at(settings, work)
    assert [v.reward for v in others] == [float(n == 7) for n in range(50)] and still


def test_replaying_a_thousand_verdicts_gives_the_same_and_a_changed_one_is_told(settings, tmp_path):
    asks = [ask("numeric", f"I say {n % 40}", str(n % 37), trajectory=f"t/{n}") for n in range(1000)]
    asks = [a.model_copy(update={"metadata": {"n": n}}) for n, a in enumerate(asks)]
    at(settings, lambda desk: desk.verdicts(asks))
    page = at(settings, lambda desk: desk.replay(ReplayRequest(limit=1000)))
    assert (page.compared, page.same, page.next) == (1000, 1000, None)
    assert len(rows(settings)) == 1000

    changing = ask("function:rewarding:counted", "so", log=str(tmp_path / "log"))
    (old,) = at(settings, lambda desk: desk.verdicts([changing]))
    (tmp_path / "rewarding.py").write_text(FUNCTIONS.replace("0.5", "0.75"))
    replayed = at(settings, lambda desk: desk.replay(ReplayRequest(verifier="function:rewarding:counted")))
    (difference,) = replayed.differences
    assert (difference.reward, difference.other_reward) == (
        0.5,
        0.75,
    ) and difference.version != difference.other_version
    (new,) = at(settings, lambda desk: desk.verdicts([changing]))
    assert new.reward == 0.75 and new.key != old.key
    found = at(settings, lambda desk: desk.compare(changing.verifier, old.version, new.version, 10))
    assert [(d.reward, d.other_reward) for d in found] == [(0.5, 0.75)]


def test_a_composite_weighs_its_parts_and_fails_with_any_of_them(settings):
    parts = [
        {"verifier": "numeric", "weight": 3, "name": "right"},
        {"verifier": "regex", "name": "short", "metadata": {"pattern": ".{1,5}"}},
    ]
    good, bad = (
        ask("composite", "<answer>12</answer>", "12", parts=parts),
        ask("composite", "<answer>12</answer>", "12", parts=[*parts, {"verifier": "function:rewarding:raises"}]),
    )
    nested = ask("composite", "x", parts=[{"verifier": "composite", "metadata": {"parts": parts}}])
    whole, failed, refused = at(settings, lambda desk: desk.verdicts([good, bad, nested]))
    assert whole.reward == 1.0 and whole.components == {"right": 1.0, "short": 1.0}
    assert failed.status is Status.verifier_error and "no such luck" in failed.evidence["error"]
    assert refused.status is Status.invalid_answer
    wrong = at(settings, lambda desk: desk.verdicts([good.model_copy(update={"answer": "13"})]))[0]
    assert wrong.reward == 0.25 and wrong.correct is False


def test_replicas_that_share_an_index_agree_and_stream_each_verdict_once(settings):
    with postgres() as url:
        first, second = (replace(settings, database=url, replica=f"replica-{n}") for n in (1, 2))
        asks = [ask("exact", f"<answer>{n % 5}</answer>", "3", trajectory=f"t/{n}") for n in range(40)]

        async def both() -> tuple[list[Verdict], list[Verdict]]:
            async with Desk(first) as one, Desk(second) as other:
                return tuple(await asyncio.gather(one.verdicts(asks), other.verdicts(asks)))

        here, there = asyncio.run(both())
    assert [v.reward for v in here] == [v.reward for v in there] == [float(n % 5 == 3) for n in range(40)]
    assert sorted(row["trajectory"] for row in rows(settings)) == sorted(a.trajectory for a in asks)


def test_over_http_with_its_client_and_its_metrics(settings):
    app = create_app(settings)
    with served(app, app.state.desk.begin_to_end) as url, RewardClient(url, patience=20) as client:
        verdict = client.verdict(ask("exact", "<answer>a</answer>", "a"))
        assert verdict.reward == 1.0 and verdict.evidence == {"extracted": "a"} and not verdict.stored
        many: list[Any] = []
        threads = [
            threading.Thread(target=lambda: many.extend(client.verdicts([ask("exact", "<answer>a</answer>", "a")] * 3)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(many) == 24 and all(v.stored for v in many)
        assert [page.same for page in client.replay(ReplayRequest())] == [1]
        assert client.status().stored == {"scored": 1}
        shown = client.send("GET", "/metrics").text
        assert 'posttrain_reward_computed_total{status="scored",verifier="exact"} 1.0' in shown
    assert len(rows(settings)) == 1


def test_the_document_holds_for_whatever_is_sent(tmp_path):
    assert fuzz(create_app(RewardSettings(str(tmp_path / "verdicts.db"))), 5) >= 9


@pytest.mark.slow
def test_the_document_holds_for_much_more(tmp_path):
    fuzz(create_app(RewardSettings(str(tmp_path / "verdicts.db"))), 300)
