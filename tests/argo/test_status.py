"""Reading a workflow object: what was planned and what happened, as one list."""

from __future__ import annotations

from typing import Any

import pytest

from posttrain.argo.status import WAITING, named, steps_of, waiting_nodes
from posttrain.errors import UserError


def workflow(nodes: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "metadata": {"name": "run"},
        "spec": {"entrypoint": "main", "templates": [{"name": "main", "dag": {"tasks": tasks}}]},
        "status": {"nodes": nodes},
    }


TASKS = [
    {"name": "a", "template": "t"},
    {"name": "b", "template": "t", "depends": "a.Succeeded && (a || !a.Failed)"},
    {"name": "c", "template": "t", "dependencies": ["a", "b"]},
]


def test_a_workflow_that_has_not_started_shows_every_step_in_order() -> None:
    found = steps_of(workflow({}, TASKS))
    assert [(s.name, s.phase, s.waits_for) for s in found] == [
        ("a", WAITING, ()), ("b", WAITING, ("a",)), ("c", WAITING, ("a", "b")),
    ]  # fmt: skip


def test_attempts_are_counted_and_not_listed() -> None:
    attempt = {"type": "Pod", "nodeFlag": {"retried": True}}
    nodes = {
        "r": {"displayName": "a", "type": "Retry", "phase": "Running", "children": ["r0", "r1"]},
        "r0": attempt | {"displayName": "a(0)", "phase": "Failed"},
        "r1": attempt | {"displayName": "a(1)", "phase": "Running"},
    }
    first, *_ = steps_of(workflow(nodes, TASKS))
    assert (first.name, first.phase, first.attempts) == ("a", "Running", 2)
    assert len(steps_of(workflow(nodes, TASKS))) == 3


def test_a_step_whose_pod_waits_for_room_is_pending_and_says_why() -> None:
    nodes = {
        "r": {"displayName": "a", "type": "Retry", "phase": "Running", "children": ["r0"]},
        "r0": {"displayName": "a(0)", "type": "Pod", "phase": "Pending", "message": "no cpu"}
        | {"nodeFlag": {"retried": True}},
    }
    first, *_ = steps_of(workflow(nodes, TASKS))
    assert (first.phase, first.message) == ("Pending", "no cpu")


def test_the_exit_handlers_step_comes_last_and_is_marked() -> None:
    nodes = {
        "x": {"displayName": "report", "name": "run.onExit[0].report", "type": "Pod", "phase": "Running"},
        "a": {"displayName": "a", "name": "run.a", "type": "Pod", "phase": "Succeeded",
              "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:05Z"},
    }  # fmt: skip
    found = steps_of(workflow(nodes, TASKS))
    assert [s.name for s in found] == ["a", "b", "c", "report"]
    assert [s.exit_handler for s in found] == [False, False, False, True]
    assert found[0].finished - found[0].started == 5.0  # type: ignore[operator]


def test_a_step_and_its_attempts_go_by_the_steps_name_and_one_that_is_not_there_is_named() -> None:
    tasks = [{"name": "prepare-data", "template": "t"}, {"name": "sft", "template": "t"}]
    shown = ["prepare-data", "prepare-data(0)", "sft(1)"]
    assert list(filter(named(workflow({}, tasks), "prepare_data"), shown)) == shown[:2]
    assert list(filter(named(workflow({}, tasks), None), shown)) == shown
    with pytest.raises(UserError, match=r"no such step \(got 'prepare'\); known: prepare-data, sft"):
        named(workflow({}, tasks), "prepare")


def test_what_waits_for_an_approval_is_a_suspended_node_that_is_running() -> None:
    nodes = {
        "a": {"displayName": "a", "type": "Suspend", "phase": "Running"},
        "b": {"displayName": "b", "type": "Suspend", "phase": "Succeeded"},
        "c": {"displayName": "c", "type": "Pod", "phase": "Running"},
    }
    assert waiting_nodes(workflow(nodes, TASKS)) == ["a"]
    assert waiting_nodes({"metadata": {"name": "run"}, "spec": {}}) == []
