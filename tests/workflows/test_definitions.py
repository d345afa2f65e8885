"""A definition that does not fit the specs of its steps fails while it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from steps import evaluate, prepare_data, prepare_model, serve
from workflows.config import Sft
from workflows.profile import Profile, load_profile
from workflows.templates.route import Route, _json, route, single

PROFILE: Profile = load_profile("laptop")


def read(define_with: Callable[[Route], object]) -> dict[str, Any]:
    with route("sft", Sft(), PROFILE, run="r") as (workflow, r), r.graph():
        define_with(r)
    return workflow.to_dict()


def test_an_input_that_is_not_given_is_named() -> None:
    with pytest.raises(AssertionError, match="evaluate lacks its input data"):
        read(lambda r: r.task(evaluate.SPEC, model="m"))


def test_an_input_that_the_step_does_not_have_is_named() -> None:
    with pytest.raises(AssertionError, match="prepare_data has no input modle; known: model"):
        read(lambda r: r.task(prepare_data.SPEC, model="m", modle="m"))


def test_an_output_that_the_step_does_not_have_is_named() -> None:
    with pytest.raises(AssertionError, match="prepare_model has no output weights; known: model, parameters"):
        read(lambda r: r.task(prepare_model.SPEC)["weights"])


def test_only_a_service_has_an_address() -> None:
    with pytest.raises(AssertionError, match="prepare_model is no service"):
        read(lambda r: r.task(prepare_model.SPEC).address)


def test_what_another_dependency_waits_for_is_not_named_again() -> None:
    def chain(r: Route) -> None:
        model = r.task(prepare_model.SPEC)
        data = r.task(prepare_data.SPEC, model=model["model"])
        r.task(evaluate.SPEC, "first", model=model["model"], data=data["evaluation"])
        r.task(serve.SPEC, after=[model], release="r")

    found = read(chain)["spec"]["templates"]
    tasks = next(t for t in found if "dag" in t)["dag"]["tasks"]
    assert {t["name"]: t.get("depends") for t in tasks} == {
        "prepare-model": None, "prepare-data": "prepare-model", "first": "prepare-data", "serve": "prepare-model",
    }  # fmt: skip


def test_a_text_that_looks_like_a_tag_is_none_to_argo_and_the_same_to_the_step() -> None:
    value = {"template": "{{question}} and {{=1+1}}", "deep": {"empty": {}}}
    text = _json(value)
    assert "{{" not in text
    assert json.loads(text) == value


def test_a_single_step_is_a_graph_of_one_task_with_all_it_needs() -> None:
    workflow = single(
        evaluate.SPEC,
        PROFILE,
        run="r",
        step="baseline",
        seed=3,
        config={"limit": 5},
        inputs={"model": "m", "data": "d"},
    ).to_dict()
    (graph, template) = sorted(workflow["spec"]["templates"], key=lambda t: "container" in t)
    (task,) = graph["dag"]["tasks"]
    given = {p["name"]: p["value"] for p in task["arguments"]["parameters"]}
    assert given == {"step": "baseline", "config": '{"limit": 5}', "model": "m", "data": "d"}
    assert (task["name"], task["template"], template["name"]) == ("baseline", "evaluate", "evaluate")
    assert "onExit" not in workflow["spec"]
