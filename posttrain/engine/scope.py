"""Variables that a step or task may name: looked up when they are asked for, not gathered beforehand.

A scope answers for whole dotted names (simple tags) and as nested mappings (expressions). The
variables of another step or task come from its node; artifacts are objects among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from posttrain.engine.expressions import ExpressionError, evaluate, nested, with_functions
from posttrain.engine.nodes import Node
from posttrain.engine.templates import substitute_text

JSON = dict[str, Any]


class ScopeError(Exception):
    """A reference that leads nowhere; the message is the controller's."""


def variables_of(node: Node) -> dict[str, str]:
    """What others may read of a node, by names relative to it."""
    found = {"id": node["id"], "startedAt": node.get("startedAt"), "finishedAt": node.get("finishedAt")}
    found |= {"ip": node.get("podIP"), "status": node["phase"], "hostNodeName": node.get("hostNodeName")}
    outputs = node.get("outputs") or {}
    found |= {"outputs.result": outputs.get("result"), "exitCode": outputs.get("exitCode")}
    for one in outputs.get("parameters") or []:
        found[f"outputs.parameters.{one['name']}"] = one.get("value")
    return {name: text for name, text in found.items() if text is not None}


def artifacts_of(node: Node) -> dict[str, JSON]:
    """A node's output artifacts, by names relative to it."""
    listed = (node.get("outputs") or {}).get("artifacts") or []
    return {f"outputs.artifacts.{one['name']}": one for one in listed}


class Referred:
    """What one step or task offers: its variables and its artifacts."""

    def __init__(self, variables: Mapping[str, str], artifacts: Mapping[str, JSON]):
        self.variables, self.artifacts = variables, artifacts

    @cached_property
    def tree(self) -> dict[str, Any]:
        return nested({**self.variables, **self.artifacts})


class _Family(Mapping[str, Any]):
    """`tasks` or `steps` in an expression: each member is looked up when it is named."""

    def __init__(self, find: Callable[[str], Referred | None], names: Callable[[], list[str]]):
        self._find, self._names = find, names

    def __getitem__(self, name: str) -> Any:
        found = self._find(name)
        if found is None:
            raise KeyError(name)
        return found.tree

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._names() if name in self])

    def __len__(self) -> int:
        return len(list(iter(self)))


class TemplateScope:
    """The scope inside a DAG or step template.

    `family` is `tasks` or `steps`; `find` gives what a member of it offers, or None; `globals` are the
    workflow's variables, `inputs` the template's own.
    """

    def __init__(
        self,
        family: str,
        find: Callable[[str], Referred | None],
        names: Callable[[], list[str]],
        inputs: JSON,
        globals: Mapping[str, str],
        global_artifacts: Mapping[str, JSON],
    ):
        self.family, self.find, self.names = family, find, names
        self.globals, self.global_artifacts = globals, global_artifacts
        parameters, artifacts = inputs.get("parameters") or [], inputs.get("artifacts") or []
        self.inputs = {f"inputs.parameters.{one['name']}": one.get("value") or "" for one in parameters}
        self.input_artifacts = {f"inputs.artifacts.{one['name']}": one for one in artifacts}
        self.extra: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        family, _, rest = name.partition(".")
        if name in self.extra:
            return self.extra[name]
        if family == self.family:
            member, _, rest = rest.partition(".")
            found = self.find(member)
            return found.variables.get(rest) if found and rest else None
        return self.inputs.get(name) if family == "inputs" else self.globals.get(name)

    def environment(self) -> Mapping[str, Any]:
        flat = {**self.globals, **self.global_artifacts, **self.inputs, **self.input_artifacts}
        tree = nested(flat)
        tree[self.family] = _Family(self._find_with_extra, self.names)
        return with_functions(tree)

    def _find_with_extra(self, name: str) -> Referred | None:
        prefix = f"{self.family}.{name}."
        extra = {key.removeprefix(prefix): text for key, text in self.extra.items() if key.startswith(prefix)}
        found = self.find(name)
        if not extra:
            return found
        return Referred({**(found.variables if found else {}), **extra}, found.artifacts if found else {})

    def artifact(self, tag: str) -> JSON | None:
        """The artifact that `{{…}}` names, or None."""
        name = tag.strip().removeprefix("{{").removesuffix("}}").strip()
        family, _, rest = name.partition(".")
        if family == self.family:
            member, _, rest = rest.partition(".")
            found = self.find(member)
            return found.artifacts.get(rest) if found else None
        return self.input_artifacts.get(name) or self.global_artifacts.get(name)

    def resolve_artifact(self, wanted: JSON) -> JSON:
        """The artifact that `from` or `fromExpression` stands for, under its own name. Raises ScopeError."""
        if wanted.get("fromExpression"):
            try:
                found = evaluate(wanted["fromExpression"], self.environment())
            except ExpressionError as error:
                raise ScopeError(str(error)) from None
            if not isinstance(found, dict):
                raise ScopeError(f"Variable {{{{{wanted['fromExpression']}}}}} is not an artifact")
        else:
            found = self.artifact(wanted["from"])
            if found is None:
                name = wanted["from"].strip().removeprefix("{{").removesuffix("}}").strip()
                raise ScopeError(f'Unable to resolve: "{name}"')
        resolved = {key: value for key, value in found.items() if key != "globalName"} | {"name": wanted["name"]}
        if wanted.get("subPath"):
            resolved["subPath"] = _joined(found.get("subPath"), substitute_text(wanted["subPath"], self))
        if wanted.get("optional"):
            resolved["optional"] = True
        return resolved

    def output(self, source: JSON) -> Any:
        """The value of an output parameter's `valueFrom`. Raises ScopeError and ExpressionError."""
        if source.get("expression"):
            return evaluate(source["expression"], self.environment())
        if not source.get("parameter"):
            return ""
        name = source["parameter"].strip().removeprefix("{{").removesuffix("}}").strip()
        if name.startswith("="):
            return evaluate(name[1:], self.environment())
        found = self.get(name)
        if found is None:
            raise ScopeError(f'Unable to resolve: "{name}"')
        return found


def _joined(below: str | None, above: str) -> str:
    return f"{below.rstrip('/')}/{above}" if below else above
