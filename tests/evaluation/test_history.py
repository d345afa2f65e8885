"""The history of evaluations: each is there once, whatever happens to the step that adds it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

from posttrain.evaluation.history import URI, Evaluation, remember
from posttrain.evaluation.schema import How, Result
from posttrain.evaluation.settings import Sampling
from posttrain.lakestream import Stream
from posttrain.lakestream.events import Event, listen
from posttrain.reward.score import AnswerForm

HOW = How(Sampling(samples=2, temperature=0.7), AnswerForm())
FIRST = Evaluation("r1", "evaluate", "models/a", "lake/set.lance@1", "sha256:" + "1" * 64)


def results(right: int, of: int = 4) -> list[Result]:
    return [
        Result(
            id=f"p{n}", tier="easy", sample=0, prompt="?", messages="[]", completion="1", tokens=3,
            finish_reason="stop", correct=n < right, well_formed=True, extracted=None, answer="1", verifier="exact",
            metadata="{}",
        )
        for n in range(of)
    ]  # fmt: skip


def ask(workspace: Path, query: str) -> list[tuple]:
    return Stream.open(workspace / URI).snapshot().sql(query).fetchall()


def test_evaluations_of_many_runs_are_one_table(tmp_path: Path) -> None:
    assert remember(tmp_path, FIRST, results(1), HOW)
    assert remember(tmp_path, replace(FIRST, run="r2", model="models/b", digest="sha256:" + "2" * 64), results(3), HOW)
    query = "SELECT run, model, count(*), avg(correct::int) FROM rows GROUP BY ALL ORDER BY run"
    assert ask(tmp_path, query) == [("r1", "models/a", 4, 0.25), ("r2", "models/b", 4, 0.75)]
    assert ask(tmp_path, "SELECT DISTINCT how FROM rows") == [(HOW.to_json(),)]


def test_a_step_started_again_adds_nothing_and_one_with_other_results_adds_them(tmp_path: Path) -> None:
    assert [remember(tmp_path, FIRST, results(1), HOW) for _ in range(3)] == [True, False, False]
    assert remember(tmp_path, replace(FIRST, digest="sha256:" + "3" * 64), results(4), HOW)
    query = "SELECT count(*), count(DISTINCT digest) FROM rows"
    assert ask(tmp_path, query) == [(8, 2)]
    assert ask(tmp_path, "SELECT avg(correct::int) FROM rows WHERE ended = (SELECT max(ended) FROM rows)") == [(1.0,)]


def add(workspace: Path, die_at: int, number: int, times: int) -> None:
    """Remember evaluations of `number`, and die at the event `die_at` by a signal that nothing can catch."""
    seen: list[str] = []

    def count(event: Event) -> None:
        if len(seen) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(event.name)
        (workspace / f"events-{number}").write_text(" ".join(seen))

    with listen(count):
        for time in range(times):
            remember(workspace, replace(FIRST, run=f"r{number}-{time}"), results(2), HOW)


def start(*arguments: object) -> multiprocessing.process.BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["posttrain.evaluation.history"])
    process = context.Process(target=add, args=arguments)
    process.start()
    return process


def test_a_death_at_any_moment_leaves_it_to_be_added_once(tmp_path: Path) -> None:
    whole = start(tmp_path, -1, 0, 1)
    whole.join(60)
    events = (tmp_path / "events-0").read_text().split()
    assert {"created", "registered", "staged", "committed", "acknowledged"} <= set(events)
    for point in range(len(events)):
        workspace = tmp_path / str(point)
        workspace.mkdir()
        dying = start(workspace, point, 1, 1)
        dying.join(60)
        assert dying.exitcode == -signal.SIGKILL, events[point]
        remember(workspace, replace(FIRST, run="r1-0"), results(2), HOW)
        assert ask(workspace, "SELECT count(*) FROM rows") == [(4,)], events[point]
        assert Stream.open(workspace / URI).verify() == []


def test_steps_that_end_at_the_same_time_add_each_of_theirs(tmp_path: Path) -> None:
    steps = [start(tmp_path, -1, number, 5) for number in range(4)]
    for step in steps:
        step.join(120)
        assert step.exitcode == 0
    assert ask(tmp_path, "SELECT count(*), count(DISTINCT run) FROM rows") == [(80, 20)]
    described = Stream.open(tmp_path / URI).describe()
    assert [(p.name, p.commits) for p in described.producers] == [("evaluate", 20)]
