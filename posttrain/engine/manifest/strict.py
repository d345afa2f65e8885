"""Checking a document against Argo's types, as Hera has them: no key that they do not know, no wrong type.

Hera's models drop a key they do not know without a word; here it is a finding, with the closest
key that exists. The walk also makes the document uniform: a parameter's unquoted number is text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from posttrain.engine.expressions.gotext import plain_number
from posttrain.engine.manifest.findings import Path

Problem = tuple[Path, str]
_ANY_TEXT = {"Parameter": {"value", "default", "enum"}, "ValueFrom": {"default"}}


@lru_cache(maxsize=1)
def models() -> Any:
    """Hera's models; imported when first needed, because that takes a second."""
    from hera.workflows import models

    return models


KINDS = ("Workflow", "CronWorkflow", "WorkflowTemplate", "ClusterWorkflowTemplate")


def check(document: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The document made uniform, and what is wrong with its keys and types, in the order of the document."""
    model = getattr(models(), document["kind"])
    problems: list[Problem] = []
    if document.get("apiVersion") != "argoproj.io/v1alpha1":
        problems.append((("apiVersion",), "must be argoproj.io/v1alpha1"))
    uniform = {**_walk(model, document, (), problems), "kind": document["kind"]}
    try:
        model.model_validate({key: value for key, value in uniform.items() if key != "status"})
    except ValidationError as error:
        problems += [(_place(one["loc"], uniform), _wording(one)) for one in error.errors()]
    return uniform, problems


def _walk(model: type[BaseModel], value: Any, path: Path, problems: list[Problem]) -> Any:
    if "root" in model.model_fields:
        return _into(model.model_fields["root"].annotation, value, path, problems)
    if not isinstance(value, dict) or model.__name__ in ("Plugin", "ObjectMeta"):
        return value
    fields = _fields(model)
    uniform: dict[str, Any] = {}
    for key, one in value.items():
        below = (*path, key)
        if key not in fields and (model.__name__, key) not in _LEFT_OUT_BY_HERA:
            near = difflib.get_close_matches(str(key), fields, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append((below, f"unknown key of {model.__name__}{hint}"))
        elif key in _ANY_TEXT.get(model.__name__, ()):
            uniform[key] = [_as_text(item) for item in one] if isinstance(one, list) else _as_text(one)
        elif one is not None:
            uniform[key] = _into(fields.get(key), one, below, problems)
    return uniform


_LEFT_OUT_BY_HERA = {("CronWorkflowSpec", "schedule"), ("WorkflowStatus", "storedWorkflowTemplateSpec")}


@lru_cache(maxsize=512)
def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _into(annotation: Any, value: Any, path: Path, problems: list[Problem]) -> Any:
    for kind in _choices(annotation):
        origin = get_origin(kind)
        if origin is list and isinstance(value, list):
            inner = get_args(kind)[0]
            return [_into(inner, one, (*path, place), problems) for place, one in enumerate(value)]
        if origin is dict and isinstance(value, dict):
            inner = get_args(kind)[1]
            return {key: _into(inner, one, (*path, key), problems) for key, one in value.items()}
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if kind.__name__ == "Item":
                return _sorted_keys(value)
            if "root" in kind.model_fields or isinstance(value, dict):
                return _walk(kind, value, path, problems)
    return value


def _choices(annotation: Any) -> Iterator[Any]:
    arguments = get_args(annotation)
    if arguments and get_origin(annotation) not in (list, dict):
        for one in arguments:
            yield from _choices(one)
    else:
        yield annotation


def _sorted_keys(value: Any) -> Any:
    """An item as the API server keeps it: keys in order at every level."""
    if isinstance(value, dict):
        return {str(key): _sorted_keys(value[key]) for key in sorted(value, key=str)}
    return [_sorted_keys(one) for one in value] if isinstance(value, list) else value


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return plain_number(value) if isinstance(value, (int, float)) else value


def _place(location: tuple[Any, ...], document: Any) -> Path:
    """The part of a validation error's location that lies in the document (it also names union members)."""
    path: list[str | int] = []
    for step in location:
        inside = (isinstance(document, dict) and step in document) or (
            isinstance(document, list) and isinstance(step, int) and step < len(document)
        )
        if inside:
            path.append(step)
            document = document[step]
        elif step == location[-1] and isinstance(document, dict):
            path.append(step)
    return tuple(path)


def _wording(error: Any) -> str:
    if error["type"] == "missing":
        return "is required"
    shown = repr(error.get("input"))
    shown = shown if len(shown) < 80 else shown[:79] + "…"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]} (got {shown})"
