"""A run that has ended, made ready to go on: which nodes are forgotten, which are opened again. Pure but for the state.

What failed, or was left out because of it, is forgotten; templates around it are opened again; what
succeeded stays, unless it is asked to run again with everything that came after it.
"""

from __future__ import annotations

from posttrain.engine.nodes import BAD, DAG, FAN, GROUP, RETRY, STEPS, Node, hooked
from posttrain.engine.run.state import RunState
from posttrain.engine.selectors import matches
from posttrain.errors import UserError

_GROUPS = (DAG, STEPS, GROUP, FAN, RETRY)


def prepare(state: RunState, *, restart_successful: bool, selector: str) -> list[str]:
    """Change the state for another round; gives the ids of the nodes that were forgotten. Raises UserError."""
    phase = state.status.get("phase")
    if phase not in ("Failed", "Error") and not (phase == "Succeeded" and restart_successful and selector):
        raise UserError(
            f"workflow {state.name} is {phase or 'not started'}: only one that failed can be retried", field="retry",
            remedy="a succeeded one only with --restart-successful and a node field selector",
        )  # fmt: skip
    parents = _parents(state)
    gone: set[str] = set()
    opened: set[str] = set()
    for node in state.nodes.values():
        if node["phase"] in (*BAD, "Omitted") or _of_exit_handler(state, node):
            _forget(state, node, gone, opened)
    if restart_successful and selector:
        meant = [one for one in state.nodes.values() if matches(selector, one)]
        if not meant:
            raise UserError("names no step of the run", field="node field selector", value=selector)
        for node in meant:
            for id in _below(state, node):
                _forget(state, state.nodes[id], gone, opened)
    for id in list(gone | opened):
        opened |= _above(state, id, parents)
    opened -= gone
    state.delete(gone)
    for node in state.nodes.values():
        for child in [one for one in node.get("children") or [] if one in gone]:
            state.drop_child(node, child)
    for id in opened:
        state.change(state.nodes[id], {"phase": "Running", "message": None, "finishedAt": None, "outputs": None})
        state.finished.pop(id, None)
    return sorted(gone)


def _of_exit_handler(state: RunState, node: Node) -> bool:
    root = f"{state.name}.onExit"
    return node["name"] == root or node["name"].startswith((root + ".", root + "[", root + "("))


def _forget(state: RunState, node: Node, gone: set[str], opened: set[str]) -> None:
    if node["id"] in gone:
        return
    if node["type"] in _GROUPS and not _of_exit_handler(state, node):
        opened.add(node["id"])
        if node["type"] == RETRY:
            gone.update(id for id in node.get("children") or [] if id in state.nodes)
        return
    gone.add(node["id"])
    for child in [state.nodes[id] for id in node.get("children") or [] if id in state.nodes]:
        if hooked(child):
            gone.update(_below(state, child))


def _below(state: RunState, node: Node) -> list[str]:
    """A node and all that hangs under it."""
    seen: dict[str, None] = {}
    queue = [node["id"]]
    while queue:
        id = queue.pop()
        if id not in seen and id in state.nodes:
            seen[id] = None
            queue += state.nodes[id].get("children") or []
    return list(seen)


def _parents(state: RunState) -> dict[str, list[str]]:
    parents: dict[str, list[str]] = {}
    for node in state.nodes.values():
        for child in node.get("children") or []:
            parents.setdefault(child, []).append(node["id"])
    return parents


def _above(state: RunState, id: str, parents: dict[str, list[str]]) -> set[str]:
    """The templates, groups and loops that a node is part of."""
    found: set[str] = set()
    queue = [id]
    while queue:
        node = state.nodes.get(queue.pop())
        if node is None:
            continue
        inside = [node["boundaryID"]] if node.get("boundaryID") else []
        inside += [one for one in parents.get(node["id"], ()) if state.nodes[one]["type"] in (GROUP, FAN, RETRY)]
        for one in inside:
            if one not in found and one in state.nodes:
                found.add(one)
                queue.append(one)
    return found
