"""Whole graphs with decided pods: what may start starts, nothing else does, and it always ends."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.laws.support import WORK, as_told, run_decided, workflow
from tests.engine.laws.test_depends import PHASE_OF, WORDS, naive, written

ENDS = ["Succeeded", "Succeeded", "Failed", "Error"]
COUNT = itertools.count()


def conditions(names: list[str]):
    leaves = st.tuples(st.just("is"), st.sampled_from(names), st.sampled_from([*WORDS[:-1], None]))
    return st.recursive(
        leaves,
        lambda below: st.tuples(st.just("not"), below) | st.tuples(st.sampled_from(["and", "or"]), below, below),
        max_leaves=4,
    )


@st.composite
def tasks(draw):
    """(name, depends tree or None, when, how the pod ends) for tasks that depend on earlier ones."""
    found: list[tuple] = []
    for place in range(draw(st.integers(1, 8))):
        names = [one[0] for one in found]
        tree = draw(st.none() | conditions(names)) if names else None
        found.append((f"t{place}", tree, draw(st.sampled_from([True, True, True, False])), draw(st.sampled_from(ENDS))))
    return found


def manifest(listed, *, fail_fast: bool) -> dict:
    shown = []
    for name, tree, when, end in listed:
        task = {"name": name, "template": "work", "arguments": {"parameters": [{"name": "end", "value": end}]}}
        if tree is not None:
            task["depends"] = written(tree)
        if not when:
            task["when"] = "yes == no"
        shown.append(task)
    return workflow({"name": "main", "dag": {"failFast": fail_fast, "tasks": shown}}, WORK)


@given(tasks(), st.integers(0, 10**6))
@settings(max_examples=30)
def test_without_fail_fast_every_task_ends_as_the_definition_says(tmp_path_factory, listed, seed) -> None:
    nodes, pods = run_decided(
        tmp_path_factory.mktemp(f"w{next(COUNT)}"), manifest(listed, fail_fast=False), as_told, seed
    )
    expected: dict[str, dict] = {}
    for name, tree, when, end in listed:
        if tree is not None and not naive(tree, expected):
            phase = "Omitted"
        else:
            phase = end if when else "Skipped"
        expected[name] = {"phase": phase}
    assert {name: nodes[f"w.{name}"]["phase"] for name in expected} == {n: one["phase"] for n, one in expected.items()}
    assert nodes["w"]["phase"] in ("Succeeded", "Failed", "Error")
    assert nodes[""]["phase"] == nodes["w"]["phase"]
    assert len(pods.started) == len(set(pods.started))
    assert len(pods.started) == sum(one["phase"] in ENDS for one in expected.values())


@given(tasks(), st.integers(0, 10**6))
@settings(max_examples=30)
def test_with_fail_fast_nothing_starts_whose_condition_is_false(tmp_path_factory, listed, seed) -> None:
    nodes, _ = run_decided(tmp_path_factory.mktemp(f"w{next(COUNT)}"), manifest(listed, fail_fast=True), as_told, seed)
    known = {name: nodes[f"w.{name}"] for name, *_ in listed if f"w.{name}" in nodes}
    for name, tree, when, end in listed:
        if name in known:
            may_run = (tree is None or naive(tree, known)) and when
            assert (known[name]["phase"] == end and known[name]["type"] == "Pod") == may_run
    assert nodes["w"]["phase"] in ("Succeeded", "Failed", "Error")
    failed = any(one["phase"] in ("Failed", "Error") for one in known.values())
    assert failed or nodes["w"]["phase"] == "Succeeded"
    assert set(PHASE_OF.values()) >= {one["phase"] for one in known.values()}


@st.composite
def groups(draw):
    """Groups of steps: (name, when, how the pod ends, whether a failure is excused)."""
    numbers = itertools.count()
    step = st.tuples(st.sampled_from([True, True, False]), st.sampled_from(ENDS), st.booleans())
    return [
        [(f"s{next(numbers)}", *draw(step)) for _ in range(draw(st.integers(1, 3)))]
        for _ in range(draw(st.integers(1, 5)))
    ]


@given(groups(), st.integers(0, 10**6))
@settings(max_examples=30)
def test_steps_go_on_until_a_group_fails(tmp_path_factory, listed, seed) -> None:
    shown = [
        [
            {
                "name": name, "template": "work", "arguments": {"parameters": [{"name": "end", "value": end}]},
                "when": "yes == yes" if when else "yes == no", "continueOn": {"failed": excused, "error": excused},
            }
            for name, when, end, excused in group
        ]
        for group in listed
    ]  # fmt: skip
    main = {"name": "main", "steps": shown}
    nodes, _ = run_decided(tmp_path_factory.mktemp(f"w{next(COUNT)}"), workflow(main, WORK), as_told, seed)
    going = True
    for place, group in enumerate(listed):
        for name, when, end, _ in group:
            node = nodes.get(f"w[{place}].{name}")
            assert (node is not None) == going
            if node is not None:
                assert node["phase"] == (end if when else "Skipped")
        going = going and not any(when and end != "Succeeded" and not excused for _, when, end, excused in group)
    assert nodes["w"]["phase"] == ("Succeeded" if going else "Failed")
