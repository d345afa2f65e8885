"""What other processes may ask of a run that an engine drives, by orders laid down in the run's directory.

    <run>/orders/ID.json    {operation, arguments}, written by whoever asks
    <run>/orders/ID.reply   {ok, error}, written by the engine that drives the run

An order for a run that nobody drives waits for the engine that takes it up.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from posttrain.contract.files import write_atomic
from posttrain.engine.nodes import FULFILLED, Node
from posttrain.engine.pods import wake
from posttrain.engine.run.bodies import with_defaults
from posttrain.engine.run.controller import Controller
from posttrain.engine.run.errors import TemplateError
from posttrain.engine.selectors import matches
from posttrain.engine.store import RunStore
from posttrain.errors import UserError

JSON = dict[str, Any]
_PATIENCE = 15.0
_numbers = itertools.count()


def ask(store: RunStore, operation: str, arguments: JSON) -> None:
    """Lay down an order and wait until it is carried out. Raises UserError where it is refused."""
    id = f"{time.time_ns():020d}-{os.getpid()}-{next(_numbers)}"
    order, reply = store.orders / f"{id}.json", store.orders / f"{id}.reply"
    store.orders.mkdir(exist_ok=True)
    write_atomic(order, json.dumps({"operation": operation, "arguments": arguments}))
    wake(store.pods, "order")
    until = time.monotonic() + _PATIENCE
    while not reply.exists():
        if not store.held() and not reply.exists():
            if store.read().status.get("phase") not in FULFILLED:
                return  # the next engine finds it
            order.unlink(missing_ok=True)
            raise UserError(f"workflow {store.directory.name} has ended", field=operation)
        if time.monotonic() > until:
            raise UserError(f"the engine that drives run {store.directory.name} does not answer", field=operation)
        time.sleep(0.02)
    answer = json.loads(reply.read_text())
    reply.unlink()
    if not answer["ok"]:
        raise UserError(answer["error"], field=operation)


def forget(store: RunStore) -> None:
    """Take away the orders that nobody carried out: they were meant for what the run was before."""
    for path in store.orders.glob("*"):
        path.unlink()


def take_orders(store: RunStore) -> Callable[[Controller], None]:
    """A function that carries out the orders that have come in since it was last called."""

    def take(run: Controller) -> None:
        try:
            names = sorted(one.name for one in os.scandir(store.orders) if one.name.endswith(".json"))
        except FileNotFoundError:
            return
        for name in names:
            try:
                order = json.loads((store.orders / name).read_bytes())
                carry_out, arguments = OPERATIONS[order["operation"]], order["arguments"]
            except (ValueError, KeyError, TypeError):
                raise UserError("is damaged", field=str(store.orders / name), remedy="delete it") from None
            answer: JSON = {"ok": True}
            try:
                carry_out(run, **arguments)
            except UserError as error:
                answer = {"ok": False, "error": error.problem}
            run.commit()
            write_atomic(store.orders / (name.removesuffix(".json") + ".reply"), json.dumps(answer))
            (store.orders / name).unlink()

    return take


def _not_over(run: Controller) -> None:
    if run.done:
        raise UserError(f"workflow {run.state.name} has ended")


def stop(run: Controller, selector: str = "", message: str = "") -> None:
    """Stop the workflow (its exit handler runs), or fail the suspended nodes that are meant."""
    _not_over(run)
    if selector:
        for node in _suspended(run, selector):
            run.suspended_bodies[node["id"]].end("Failed", message)
    else:
        run.interruptions.shut_down("Stop")


def terminate(run: Controller) -> None:
    _not_over(run)
    run.interruptions.shut_down("Terminate")


def suspend(run: Controller) -> None:
    _not_over(run)
    run.interruptions.suspend()


def resume(run: Controller, selector: str = "") -> None:
    """Let go of the suspended nodes that are meant; without a selector of all, and of the workflow itself."""
    _not_over(run)
    if not selector:
        run.interruptions.resume()
    for node in _suspended(run, selector) if selector else list(_waiting(run)):
        try:
            if node.get("outputs"):
                run.state.change(node, {"outputs": with_defaults(node["outputs"], node)})
        except TemplateError as error:
            raise UserError(str(error)) from None
        run.suspended_bodies[node["id"]].end("Succeeded")


def set_outputs(run: Controller, selector: str, parameters: dict[str, str], message: str = "", phase: str = "") -> None:
    """Set supplied output parameters, a message or the phase of suspended nodes."""
    _not_over(run)
    for node in _suspended(run, selector):
        outputs = node.get("outputs") or {}
        if parameters:
            _set_parameters(run, node, outputs, parameters)
        if message:
            run.state.change(node, {"message": message})
        if phase:
            run.suspended_bodies[node["id"]].end(phase, message)


def _set_parameters(run: Controller, node: Node, outputs: JSON, parameters: dict[str, str]) -> None:
    listed = outputs.get("parameters") or []
    if not listed:
        raise UserError("cannot set output parameters because node is not expecting any raw parameters")
    known = {one["name"]: one for one in listed}
    for name in parameters:
        if name not in known:
            raise UserError(f"node is not expecting output parameter '{name}'")
        if known[name].get("value") is not None and (known[name].get("valueFrom") or {}).get("supplied") is None:
            raise UserError(f"node output parameter '{name}' is already set to '{known[name]['value']}'")
    changed = [
        {**{k: v for k, v in one.items() if k != "valueFrom"}, "value": parameters[one["name"]]}
        if one["name"] in parameters
        else one
        for one in listed
    ]
    run.state.change(node, {"outputs": {**outputs, "parameters": changed}})


def _waiting(run: Controller) -> list[Node]:
    return [run.state.nodes[id] for id in run.suspended_bodies if run.state.nodes[id]["phase"] == "Running"]


def _suspended(run: Controller, selector: str) -> list[Node]:
    found = [node for node in _waiting(run) if matches(selector, node)]
    if not found:
        raise UserError(
            "currently, set only targets suspend nodes: no suspend nodes matching nodeFieldSelector: " + selector
        )
    return found


OPERATIONS: dict[str, Callable[..., None]] = {
    "stop": stop, "terminate": terminate, "suspend": suspend, "resume": resume, "set": set_outputs,
}  # fmt: skip
