"""Loops: the items of a step or task, the names of their nodes, and their outputs gathered again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from posttrain.engine.expressions import ExpressionError, decide
from posttrain.engine.expressions.gotext import GoJSONError, Number, plain_number, read_json, to_json
from posttrain.engine.nodes import Node, hooked, retried
from posttrain.engine.templates import EVERYTHING, LENIENT, FlatScope, SubstitutionError, substitute

JSON = dict[str, Any]
LOOPS = ("withItems", "withParam", "withSequence")
MOST_ITEMS = 100_000  # of one loop: each is a node that is kept


class LoopError(Exception):
    """A loop that cannot be expanded; the message is the controller's."""


def loops(task: JSON) -> bool:
    """Whether a step or task is fanned out (an empty withItems is none)."""
    return bool(task.get("withItems")) or bool(task.get("withParam")) or task.get("withSequence") is not None


def expand(task: JSON, globals: Mapping[str, str]) -> list[tuple[str, JSON]]:
    """(name, task with the item filled in) for every item, in order. Raises LoopError and SubstitutionError.

    A loop whose bounds are no good is empty where `when` is false anyway.
    """
    try:
        items = _items(task)
    except LoopError:
        if not _certainly_false(task.get("when") or ""):
            raise
        items = []
    body = {key: value for key, value in task.items() if key not in LOOPS}
    strictness = LENIENT if _certainly_false(task.get("when") or "") else EVERYTHING
    return [_expanded(body, index, item, globals, strictness) for index, item in enumerate(items)]


def _expanded(body: JSON, index: int, item: Any, globals: Mapping[str, str], strictness: Any) -> tuple[str, JSON]:
    variables, shown = item_variables(item)
    name = f"{body['name']}({index}:{shown.replace('(', '').replace(')', '')})"
    return name, {**substitute(body, FlatScope(variables, globals), strictness), "name": name}


def _certainly_false(when: str) -> bool:
    try:
        return not decide(when)
    except ExpressionError:
        return False


def _items(task: JSON) -> list[Any]:
    if task.get("withItems"):
        return task["withItems"]
    if task.get("withParam"):
        return _listed(task["withParam"])
    return _sequence(task["withSequence"])


def _listed(text: str) -> list[Any]:
    prefix = f"withParam value could not be parsed as a JSON list: {text.strip()}: "
    try:
        found = read_json(text, keep_numbers=True)
    except GoJSONError as error:
        raise LoopError(prefix + str(error)) from None
    if found is None:
        return []
    if not isinstance(found, list):
        kind = "object" if isinstance(found, dict) else "string" if isinstance(found, str) else "bool"
        kind = "number" if isinstance(found, Number) else kind
        raise LoopError(f"{prefix}json: cannot unmarshal {kind} into Go value of type []v1alpha1.Item")
    return found


def _bound(value: Any) -> int:
    text = str(value)
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise LoopError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)


def _sequence(sequence: JSON) -> list[str]:
    start = _bound(sequence["start"]) if sequence.get("start") is not None else 0
    if sequence.get("end") is not None:
        end = _bound(sequence["end"])
    elif sequence.get("count") is not None:
        count = _bound(sequence["count"])
        if count == 0:
            return []
        end = start + count - 1
    else:
        raise LoopError("neither end nor count was specified in withSequence")
    form = sequence.get("format") or "%d"
    step = 1 if start <= end else -1
    if abs(end - start) >= MOST_ITEMS:
        raise LoopError(f"a loop of {abs(end - start) + 1} items is more than the {MOST_ITEMS} that are carried")
    return [go_format(form, number) for number in range(start, end + step, step)]


def go_format(form: str, number: int) -> str:
    """Go's Sprintf with one whole number."""
    used = False

    def write(found: re.Match[str]) -> str:
        nonlocal used
        if found[0] == "%%":
            return "%"
        if used:
            return f"%!{found[1][-1]}(MISSING)"
        used = True
        verb = found[1][-1]
        if verb in "dxXo":
            return found[0] % number
        if verb == "b":
            return format(number, "b")
        return str(number) if verb == "v" else f"%!{verb}(int={number})"

    text = re.sub(r"%([-+ 0#]*\d*\w)|%%", write, form)
    return text if used else f"{text}%!(EXTRA int={number})"


def item_variables(item: Any) -> tuple[dict[str, str], str]:
    """What `item` and its like stand for, and how the item is written in a node's name."""
    if isinstance(item, dict):
        members = {key: _member(value) for key, value in item.items()}
        variables = {f"item.{key}": text for key, text in members.items()}
        variables["item"] = to_json(item)
        return variables, ",".join(sorted(f"{key}:{text}" for key, text in members.items()))
    if isinstance(item, list):
        return {"item": to_json(item)}, "[" + " ".join(_member(one) for one in item) + "]"
    if isinstance(item, str):
        return {"item": item}, _member(item)
    if item is None:
        return {"item": "null"}, "[]"
    return {"item": _member(item)}, _member(item)


def _member(value: Any) -> str:
    """A value inside an item: JSON, of which a text loses its quotes but keeps its escapes."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, float):
        return plain_number(value)
    text = to_json(value, escape_html=False)
    return text[1:-1] if isinstance(value, str) else text


def gather(children: Iterable[Node]) -> dict[str, str]:
    """The outputs of a loop's succeeded items as variables: lists in the order of the items.

    Raises SubstitutionError where a result is no JSON.
    """
    nodes = sorted(
        (one for one in children if not hooked(one) and not retried(one)), key=lambda one: item_index(one["name"])
    )
    maps: list[dict[str, str]] = []
    lists: dict[str, list[str]] = {}
    found: list[Any] = []
    for node in nodes:
        outputs = node.get("outputs")
        if not outputs or node["phase"] != "Succeeded":
            continue
        values = {one["name"]: one.get("value") or "" for one in outputs.get("parameters") or []}
        if values:
            maps.append(values)
        for name, value in values.items():
            lists.setdefault(name, []).append(value)
        if outputs.get("result") is not None:
            try:
                found.append(read_json(outputs["result"], keep_numbers=True))
            except GoJSONError as error:
                raise SubstitutionError(str(error)) from None
    variables = {"outputs.result": to_json(found, sort_keys=False), "outputs.parameters": to_json(maps)}
    return variables | {f"outputs.parameters.{name}": _one_list(values) for name, values in lists.items()}


def _one_list(values: list[str]) -> str:
    """Lists and objects are embedded when all of them are; otherwise everything is text."""
    decoded: list[Any] = []
    for value in values:
        try:
            decoded.append(read_json(value))
        except GoJSONError:
            return to_json(values)
    return to_json(decoded if all(isinstance(one, (list, dict)) for one in decoded) else values)


def item_index(name: str) -> int:
    """The number of a loop's item in the name of its node, `each(3:text)`."""
    found = re.search(r"\((\d+):", name[name.rfind("(") :]) or re.search(r"\((\d+):[^()]*\)[^()]*$", name)
    return int(found[1]) if found else 0
