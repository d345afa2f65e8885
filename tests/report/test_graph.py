"""The layout of a graph: laws that hold for every DAG."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from posttrain.report.graph import columns, essential, positions


@st.composite
def dags(draw: st.DrawFn) -> dict[str, list[str]]:
    """Steps s0, s1, … each of which waits for some of the earlier ones."""
    size = draw(st.integers(0, 12))
    return {
        f"s{i}": [f"s{j}" for j in draw(st.lists(st.integers(0, i - 1), unique=True))] if i else [] for i in range(size)
    }


def closure(edges: list[tuple[str, str]], names: list[str]) -> set[tuple[str, str]]:
    reached = {name: {name} for name in names}
    for _ in names:
        for source, target in edges:
            reached[target] |= reached[source]
    return {(s, t) for t, sources in reached.items() for s in sources if s != t}


@given(dags())
def test_a_step_stands_right_of_all_it_waits_for(dag: dict[str, list[str]]) -> None:
    column = columns(dag)
    assert all(column[source] < column[name] for name, sources in dag.items() for source in sources)
    assert all(column[name] == 0 for name, sources in dag.items() if not sources)


@given(dags())
def test_the_drawn_edges_say_the_same_and_none_can_be_left_out(dag: dict[str, list[str]]) -> None:
    every = [(source, name) for name, sources in dag.items() for source in sources]
    drawn = essential(dag)
    assert closure(drawn, list(dag)) == closure(every, list(dag))
    for edge in drawn:
        assert edge not in closure([e for e in drawn if e != edge], list(dag))


@given(dags())
def test_no_two_steps_stand_in_one_place(dag: dict[str, list[str]]) -> None:
    place = positions(dag)
    assert len(set(place.values())) == len(dag) == len(place)


def test_a_step_that_waits_for_one_that_is_not_shown_is_drawn_all_the_same() -> None:
    assert positions({"a": ["hidden"]}) == {"a": (0, 0.0)}
    assert essential({"a": ["hidden"]}) == []
