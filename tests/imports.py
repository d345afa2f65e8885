"""The imports of the project's modules, read from their sources without importing any."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("posttrain", "steps", "workflows")


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    found = {}
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str, *, at_top: bool = False) -> frozenset[str]:
    """The modules that `module` names in import statements; with `at_top` those that importing it runs."""
    path = modules()[module]
    tree = ast.parse(path.read_text(), filename=str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in _walk(tree, at_top=at_top):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in modules()}
    return frozenset(found)


def _walk(node: ast.AST, *, at_top: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if at_top and (lazy or typing):
            continue
        yield child
        yield from _walk(child, at_top=at_top)


def closure(start: Iterable[str], *, at_top: bool = False) -> set[str]:
    """`start`, with all modules of ours that they import, and these import; a package stands for all in it."""
    names = list(start)
    todo = [m for m in modules() for name in names if m == name or (name in OURS and m.startswith(f"{name}."))]
    found: set[str] = set()
    while todo:
        module = todo.pop()
        if module in found:
            continue
        found.add(module)
        parents = [module.rpartition(".")[0]] if "." in module else []
        todo += [m for m in [*imports(module, at_top=at_top), *parents] if m in modules()]
    return found


def third_party(wanted: Iterable[str], *, at_top: bool = False) -> Iterator[tuple[str, str]]:
    """(module, package) for each import of something that is neither ours nor the standard library's."""
    for module in sorted(wanted):
        for name in sorted({n.partition(".")[0] for n in imports(module, at_top=at_top)}):
            if name and name not in OURS and name not in sys.stdlib_module_names and name != "tests":
                yield module, name
