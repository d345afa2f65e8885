"""The interface of pycosat over python-sat.

reasoning-gym imports pycosat, which exists as C source only; python-sat has wheels. Laid into every
environment's site-packages by envs/install, so that none of them needs a compiler to be installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from pysat.solvers import Cadical153


def itersolve(clauses: Iterable[Iterable[int]]) -> Iterator[list[int]]:
    """Every assignment that satisfies `clauses` (DIMACS literals), each as a list of literals."""
    with Cadical153(bootstrap_with=[list(clause) for clause in clauses]) as solver:
        yield from solver.enum_models()


def solve(clauses: Iterable[Iterable[int]]) -> list[int] | str:
    """One assignment that satisfies `clauses`, or "UNSAT"."""
    return next(islice(itersolve(clauses), 1), "UNSAT")
