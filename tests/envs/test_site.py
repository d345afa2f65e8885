"""What is laid beside the wheels does what it stands in for."""

from __future__ import annotations

from itertools import product

import pycosat
from hypothesis import given
from hypothesis import strategies as st

VARIABLES = 4
literals = st.integers(1, VARIABLES).flatmap(lambda v: st.sampled_from([v, -v]))
formulas = st.lists(st.lists(literals, min_size=1, max_size=3), min_size=1, max_size=8)


def satisfying(clauses: list[list[int]]) -> set[tuple[int, ...]]:
    """By trying every assignment of the variables that occur."""
    used = sorted({abs(literal) for clause in clauses for literal in clause})
    found = set()
    for signs in product((1, -1), repeat=len(used)):
        chosen = {sign * variable for sign, variable in zip(signs, used, strict=True)}
        if all(chosen & set(clause) for clause in clauses):
            found.add(tuple(sorted(chosen, key=abs)))
    return found


@given(formulas)
def test_itersolve_gives_every_solution_once(clauses: list[list[int]]) -> None:
    used = {abs(literal) for clause in clauses for literal in clause}
    given_back = [tuple(x for x in sorted(s, key=abs) if abs(x) in used) for s in pycosat.itersolve(clauses)]
    assert set(given_back) == satisfying(clauses)


@given(formulas)
def test_solve_gives_one_or_says_that_there_is_none(clauses: list[list[int]]) -> None:
    answer = pycosat.solve(clauses)
    if satisfying(clauses):
        assert all(set(answer) & set(clause) for clause in clauses)
    else:
        assert answer == "UNSAT"
