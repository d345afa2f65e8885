"""`depends` against a naive evaluator of its own, and the order of things in a DAG."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from posttrain.engine.graph.dag import Plan
from posttrain.engine.graph.depends import dependencies, holds, results

NAMES = ["a", "b-1", "Cc"]
WORDS = ["Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned"]
PHASE_OF = {
    "Succeeded": "Succeeded",
    "Failed": "Failed",
    "Errored": "Error",
    "Skipped": "Skipped",
    "Omitted": "Omitted",
}

# An expression as a tree: ("is", name, word or None), ("not", x), ("and", x, y), ("or", x, y)
leaves = st.tuples(st.just("is"), st.sampled_from(NAMES), st.sampled_from([*WORDS, None]))
trees = st.recursive(
    leaves,
    lambda below: st.tuples(st.just("not"), below) | st.tuples(st.sampled_from(["and", "or"]), below, below),
    max_leaves=8,
)


def written(tree) -> str:
    match tree:
        case ("is", name, None):
            return name
        case ("is", name, word):
            return f"{name}.{word}"
        case ("not", below):
            return f"!({written(below)})"
        case (word, left, right):
            return f"({written(left)}) {'&&' if word == 'and' else '||'} ({written(right)})"
    raise AssertionError(tree)


def naive(tree, nodes) -> bool:
    match tree:
        case ("is", name, None):
            return any(naive(("is", name, word), nodes) for word in ("Succeeded", "Skipped", "Daemoned"))
        case ("is", name, "Daemoned"):
            return nodes[name].get("daemoned", False)
        case ("is", name, word):
            return nodes[name]["phase"] == PHASE_OF[word]
        case ("not", below):
            return not naive(below, nodes)
        case ("and", left, right):
            return naive(left, nodes) and naive(right, nodes)
        case ("or", left, right):
            return naive(left, nodes) or naive(right, nodes)
    raise AssertionError(tree)


STATES = [{"type": "Pod", "phase": phase} for phase in PHASE_OF.values()]
STATES.append({"type": "Pod", "phase": "Running", "daemoned": True})


@given(trees)
def test_holds_for_exactly_the_states_of_the_truth_table(tree) -> None:
    tasks = {name: {"name": name} for name in NAMES}
    found = dependencies({"name": "x", "depends": written(tree)}, tasks.get)
    for states in itertools.product(STATES, repeat=len(NAMES)):
        nodes = dict(zip(NAMES, states, strict=True))
        table = {name: results(node, lambda _: []) for name, node in nodes.items()}
        assert holds(found.logic, table) == naive(tree, nodes), (written(tree), nodes)


@given(trees)
def test_names_are_those_that_are_written(tree) -> None:
    def names(tree):
        return {tree[1]} if tree[0] == "is" else set().union(*map(names, tree[1:]))

    found = dependencies({"name": "x", "depends": written(tree)}, {name: {"name": name} for name in NAMES}.get)
    assert set(found.names) == names(tree)


@st.composite
def dags(draw):
    """A DAG without cycles, its tasks in any order."""
    size = draw(st.integers(1, 9))
    tasks = []
    for place in range(size):
        before = draw(st.lists(st.integers(0, place - 1), unique=True, max_size=3)) if place else []
        task = {"name": f"t{place}"}
        if before:
            task["dependencies"] = [f"t{one}" for one in before]
        tasks.append(task)
    return {"tasks": draw(st.permutations(tasks))}


@given(dags())
def test_a_task_is_looked_at_after_those_it_needs(dag) -> None:
    plan = Plan(dag)
    assert set(plan.order) == set(plan.tasks)
    for name, needed in plan.needs.items():
        for other in needed.names:
            assert plan.order[other] < plan.order[name]
            assert plan.is_ancestor(other, name) and not plan.is_ancestor(name, other)


@given(dags())
def test_ancestors_are_the_transitive_closure(dag) -> None:
    plan = Plan(dag)

    def naive_ancestors(name: str) -> set[str]:
        direct = set(plan.tasks[name].get("dependencies", ()))
        return direct.union(*(naive_ancestors(one) for one in direct))

    for name in plan.tasks:
        assert set(plan.ancestors(name)) == naive_ancestors(name)
