"""Substitution: what the tags `{{…}}` of a manifest stand for.

A value is a JSON tree; every text in it, keys included, may hold tags. A simple tag names a variable,
a tag that begins with `=` is an expression. Nothing is substituted twice in one pass, and what is
not known stays as it is unless the pass is strict about it. Pure.

How strict: LENIENT leaves every unknown tag; REFERENCES wants each `tasks.` and `steps.` to be known,
EVERYTHING every tag (as the expansion of a loop does).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from enum import Enum
from typing import Any, Protocol

from posttrain.engine.expressions import ExpressionError, ParseError, evaluate, identifiers, nested, with_functions
from posttrain.engine.expressions.gotext import spoils_json, to_json

JSON = dict[str, Any]


class Strictness(Enum):
    LENIENT = re.compile(r"(?!)")
    REFERENCES = re.compile(r"(tasks|steps)(\.|$)")
    EVERYTHING = re.compile(r"")

    def wants(self, tag: str) -> bool:
        return self.value.match(tag) is not None


LENIENT, REFERENCES, EVERYTHING = Strictness


class SubstitutionError(Exception):
    """A tag that cannot be substituted; the message is the controller's."""


class MissingVariable(SubstitutionError):
    """A tag whose variable is not there, in a pass that wants it."""


class Scope(Protocol):
    """Where variables are looked up: by whole dotted name, and as nested mappings for expressions."""

    def get(self, name: str) -> str | None: ...

    def environment(self) -> Mapping[str, Any]: ...


class FlatScope:
    """Variables given by layers of dotted names, the first layer that has one wins."""

    def __init__(self, *layers: Mapping[str, str]):
        self.layers = layers
        self._environment: dict[str, Any] | None = None

    def get(self, name: str) -> str | None:
        for layer in self.layers:
            if name in layer:
                return layer[name]
        return None

    def environment(self) -> Mapping[str, Any]:
        if self._environment is None:
            merged: dict[str, str] = {}
            for layer in reversed(self.layers):
                merged |= layer
            self._environment = with_functions(nested(merged))
        return self._environment


def substitute(value: Any, scope: Scope, strictness: Strictness = LENIENT) -> Any:
    """A copy of `value` with its tags substituted. Raises SubstitutionError."""
    if isinstance(value, str):
        return substitute_text(value, scope, strictness) if "{{" in value else value
    if isinstance(value, list):
        return [substitute(one, scope, strictness) for one in value]
    if isinstance(value, dict):
        return {
            (substitute_text(key, scope, strictness) if "{{" in key else key): substitute(one, scope, strictness)
            for key, one in value.items()
        }
    return value


_TAG = re.compile(r"\{\{(.*?)\}\}", re.S)


def substitute_text(text: str, scope: Scope, strictness: Strictness = LENIENT) -> str:
    """`text` with its tags substituted; see `substitute`."""
    return _TAG.sub(lambda found: _of_tag(found[1], scope, strictness), text)


def tags(value: Any) -> list[str]:
    """Every tag in a JSON tree, as written between the braces."""
    if isinstance(value, str):
        return _TAG.findall(value) if "{{" in value else []
    if isinstance(value, list):
        return [tag for one in value for tag in tags(one)]
    if isinstance(value, dict):
        return [tag for key, one in value.items() for tag in [*tags(key), *tags(one)]]
    return []


def _of_tag(tag: str, scope: Scope, strictness: Strictness) -> str:
    if tag.startswith("="):
        return _of_expression(tag[1:], scope, strictness)
    name = tag.strip()
    found = scope.get(name)
    if found is not None:
        return _pasted(found)
    outer, braces, inner = tag.rpartition("{{")
    if braces and outer and (within := scope.get(inner)) is not None:
        return "{{" + outer + _pasted(within)
    if strictness.wants(name) and not (strictness is REFERENCES and ".outputs.artifacts." in name):
        raise MissingVariable(f"failed to resolve {{{{{tag}}}}}")
    return "{{" + tag + "}}"


def _pasted(value: str) -> str:
    if spoils_json(value):
        raise SubstitutionError("cannot finish template replacement because the result was invalid JSON")
    return value


_NEVER_GUESSED = (
    "item", "retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message",
    "workflow.status", "workflow.failures",
)  # fmt: skip


def _of_expression(text: str, scope: Scope, strictness: Strictness) -> str:
    environment = scope.environment()
    try:
        missing = [name for name in identifiers(text) if not known(name, environment)]
    except ParseError as error:
        raise SubstitutionError(f"failed to evaluate expression: {error}") from None
    wanted = next((name for name in missing if strictness.wants(name)), None)
    if wanted is not None:
        raise MissingVariable(f"failed to evaluate expression: {wanted} is missing")
    may_stay = bool(missing) or strictness is LENIENT
    if may_stay and any(name in text and name in missing for name in _NEVER_GUESSED):
        return "{{=" + text + "}}"
    try:
        value = evaluate(text, environment)
    except ExpressionError as error:
        if may_stay:
            return "{{=" + text + "}}"
        raise SubstitutionError(f"failed to evaluate expression: {error}") from None
    if value is None:
        if may_stay:
            return "{{=" + text + "}}"
        raise SubstitutionError(f'failed to evaluate expression "{text}"')
    if isinstance(value, str):
        return value
    try:
        return to_json(value)
    except ValueError as error:
        if may_stay:
            return "{{=" + text + "}}"
        raise SubstitutionError(f"failed to marshal evaluated expression: {error}") from None


def known(name: str, environment: Mapping[str, Any]) -> bool:
    """Whether a dotted name leads to something in an environment of nested mappings."""
    place: Any = environment
    for step in name.split("."):
        if not isinstance(place, Mapping) or step not in place:
            return False
        place = place[step]
    return True


def process_arguments(
    template: JSON,
    arguments: JSON,
    globals: Mapping[str, str],
    local: Mapping[str, str],
    config_map_value: Callable[[str, str], str],
) -> JSON:
    """A template ready to run: inputs filled from the arguments, every tag it can know substituted.

    `config_map_value(name, key)` reads a config map or raises LookupError. Raises SubstitutionError.
    """
    template = deepcopy(template)
    given = {one["name"]: one for one in arguments.get("parameters") or []}
    for parameter in (template.get("inputs") or {}).get("parameters") or []:
        _fill_parameter(parameter, given.get(parameter["name"]), globals, config_map_value)
    _fill_artifacts(template, {one["name"]: one for one in arguments.get("artifacts") or []})
    return substitute_parameters(template, globals, local)


def _fill_parameter(
    parameter: JSON, argument: JSON | None, globals: Mapping[str, str], config_map_value: Callable[[str, str], str]
) -> None:
    if parameter.get("value") is None and parameter.get("default") is not None:
        parameter["value"] = parameter["default"]
    if argument is not None:
        parameter.pop("valueFrom", None)
        parameter.pop("value", None)
        key = "value" if argument.get("value") is not None else "valueFrom"
        if argument.get(key) is not None:
            parameter[key] = argument[key]
    reference = (parameter.get("valueFrom") or {}).get("configMapKeyRef")
    if reference:
        name, key = (_global_or_itself(reference.get(one, ""), globals) for one in ("name", "key"))
        try:
            parameter["value"] = config_map_value(name, key)
        except LookupError as error:
            default = parameter["valueFrom"].get("default")
            if default is None:
                raise SubstitutionError(
                    f"unable to retrieve inputs.parameters.{parameter['name']} from ConfigMap: {error.args[0]}"
                ) from None
            parameter["value"] = default
    elif parameter.get("value") is None:
        raise SubstitutionError(f"inputs.parameters.{parameter['name']} was not supplied")


def _global_or_itself(text: str, globals: Mapping[str, str]) -> str:
    found = re.fullmatch(r"\{\{(.*)\}\}", text)
    if not found:
        return text
    if found[1].strip() not in globals:
        raise SubstitutionError(f"parameter {found[1].strip()} not found")
    return globals[found[1].strip()]


LOCATIONS = ("s3", "raw", "http", "git", "artifactory", "hdfs", "oss", "gcs", "azure", "plugin")


def has_location(artifact: JSON) -> bool:
    """Whether an artifact says where it lies."""
    return any(artifact.get(key) for key in LOCATIONS)


def _fill_artifacts(template: JSON, given: dict[str, JSON]) -> None:
    artifacts = (template.get("inputs") or {}).get("artifacts") or []
    for place, declared in enumerate(artifacts):
        argument = given.get(declared["name"])
        if not declared.get("optional") and not has_location(declared):
            if argument is None:
                raise SubstitutionError(f"inputs.artifacts.{declared['name']} was not supplied")
            if not has_location(argument):
                raise SubstitutionError(f"inputs.artifacts.{declared['name']} missing location information")
        if argument is not None:
            own = {key: declared[key] for key in ("path", "mode", "recurseMode") if key in declared}
            artifacts[place] = {k: v for k, v in argument.items() if k not in ("path", "mode", "recurseMode")} | own


def substitute_parameters(template: JSON, globals: Mapping[str, str], local: Mapping[str, str]) -> JSON:
    """`template` with global and local variables substituted, then its own inputs and paths."""
    template = substitute(template, FlatScope(local, globals))
    return substitute(template, FlatScope(own_variables(template)))


def own_variables(template: JSON) -> dict[str, str]:
    """What a template's own text may name: its inputs and the paths of its artifacts and outputs."""
    inputs, outputs = template.get("inputs") or {}, template.get("outputs") or {}
    parameters = inputs.get("parameters") or []
    variables = {f"inputs.parameters.{one['name']}": one["value"] for one in parameters if one.get("value") is not None}
    variables["inputs.parameters"] = to_json([parameter_json(one) for one in parameters], sort_keys=False)
    filled = FlatScope(dict(variables))
    for side, artifacts in (("inputs", inputs.get("artifacts")), ("outputs", outputs.get("artifacts"))):
        for one in artifacts or []:
            if one.get("path"):
                variables[f"{side}.artifacts.{one['name']}.path"] = substitute(one["path"], filled)
    for one in outputs.get("parameters") or []:
        if path := (one.get("valueFrom") or {}).get("path"):
            variables[f"outputs.parameters.{one['name']}.path"] = substitute(path, filled)
    return variables


_PARAMETER_ORDER = ("name", "default", "value", "valueFrom", "globalName", "enum", "description")


def parameter_json(parameter: JSON) -> JSON:
    """A parameter's fields in the order in which Argo writes them."""
    return {key: parameter[key] for key in _PARAMETER_ORDER if parameter.get(key) not in (None, [])}
