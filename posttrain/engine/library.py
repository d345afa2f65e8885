"""Where templates come from: the workflow itself, workflow templates, or the task that needs them. Pure."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from posttrain.engine.manifest.objects import Objects

JSON = dict[str, Any]

KINDS = ("container", "script", "dag", "steps", "suspend", "containerSet", "resource", "data", "http", "plugin")
POD_KINDS = ("container", "script", "containerSet", "resource", "data")


class TemplateNotFound(LookupError):
    """A template that nobody defines; the message is the controller's."""


def kinds_of(template: JSON) -> list[str]:
    """The kinds of body that a template has: one, if all is well. No groups are no steps."""
    return [kind for kind in KINDS if template.get(kind) is not None and template[kind] != []]


def kind_of(template: JSON) -> str | None:
    """Which kind of body a template has, or None."""
    return next(iter(kinds_of(template)), None)


@dataclass(frozen=True)
class Source:
    """A set of templates that call each other by name. `scope` is what a node's `templateScope` says."""

    scope: str
    templates: JSON

    @classmethod
    def of(cls, scope: str, spec: JSON) -> Source:
        return cls(scope, {one.get("name", ""): one for one in spec.get("templates") or []})


class Library:
    """Finds the template that a step, task or hook calls for, as seen from a source."""

    def __init__(self, workflow_name: str, spec: JSON, objects: Objects):
        self.spec, self.objects = spec, objects
        self.local = Source.of(f"local/{workflow_name}", spec)
        self._sources: dict[tuple[str, bool], Source] = {}

    @cached_property
    def defaults(self) -> JSON:
        return self.spec.get("templateDefaults") or {}

    def resolve(self, holder: JSON, source: Source) -> tuple[JSON, Source]:
        """The template for `holder` (its `inline`, `template` or `templateRef`) with defaults, and where it is from.

        Raises TemplateNotFound.
        """
        if holder.get("inline") is not None:
            return self._with_defaults(holder["inline"]), source
        reference = holder.get("templateRef")
        name = reference["template"] if reference else holder.get("template", "")
        if reference:
            source = self._referred(reference["name"], bool(reference.get("clusterScope")))
        if name not in source.templates:
            if reference:
                raise TemplateNotFound(f"template {name} not found in workflow template {reference['name']}")
            raise TemplateNotFound(f"template {name} not found")
        return self._with_defaults(source.templates[name]), source

    def _referred(self, name: str, cluster: bool) -> Source:
        found = self._sources.get((name, cluster))
        if found is None:
            table = self.objects.cluster_workflow_templates if cluster else self.objects.workflow_templates
            if name not in table:
                kind = "clusterworkflowtemplates" if cluster else "workflowtemplates"
                raise TemplateNotFound(f'{kind}.argoproj.io "{name}" not found')
            found = Source.of(f"{'cluster' if cluster else 'namespaced'}/{name}", table[name].get("spec") or {})
            self._sources[name, cluster] = found
        return found

    def _with_defaults(self, template: JSON) -> JSON:
        if not self.defaults:
            return template
        kind = kind_of(template)
        merged = merge(self.defaults, template)
        return {key: value for key, value in merged.items() if key not in KINDS or key == kind}


_MERGE_KEYS = {
    "env": "name", "volumeMounts": "mountPath", "volumes": "name", "sidecars": "name", "initContainers": "name",
    "ports": "containerPort", "imagePullSecrets": "name", "hostAliases": "ip", "parameters": "name",
    "artifacts": "name",
    "templates": "name",
}  # fmt: skip


def merge(below: Any, above: Any, key: str = "") -> Any:
    """A strategic merge: mappings by key, lists of named things by name, everything else `above`."""
    if isinstance(below, dict) and isinstance(above, dict):
        mixed = {one: merge(below[one], above[one], one) if one in below else deepcopy(above[one]) for one in above}
        return {**{one: deepcopy(value) for one, value in below.items() if one not in above}, **mixed}
    if isinstance(below, list) and isinstance(above, list) and key in _MERGE_KEYS:
        own = _MERGE_KEYS[key]
        listed = {one.get(own): one for one in above if isinstance(one, dict)}
        joined = [merge(one, listed[one.get(own)]) if one.get(own) in listed else deepcopy(one) for one in below]
        known = {one.get(own) for one in below}
        return joined + [deepcopy(one) for one in above if one.get(own) not in known]
    return deepcopy(above)


def executed_spec(spec: JSON, objects: Objects) -> JSON:
    """The spec that a run carries out: with `workflowTemplateRef`, that template's under the workflow's own.

    Raises TemplateNotFound.
    """
    reference = spec.get("workflowTemplateRef")
    if not reference:
        return spec
    cluster = bool(reference.get("clusterScope"))
    table = objects.cluster_workflow_templates if cluster else objects.workflow_templates
    if reference["name"] not in table:
        kind = "clusterworkflowtemplates" if cluster else "workflowtemplates"
        raise TemplateNotFound(f'{kind}.argoproj.io "{reference["name"]}" not found')
    below = table[reference["name"]].get("spec") or {}
    own = {key: value for key, value in spec.items() if key != "workflowTemplateRef"}
    joined = merge({key: value for key, value in below.items() if key != "arguments"}, own)
    joined["arguments"] = _joined_arguments(spec.get("arguments") or {}, below.get("arguments") or {})
    return joined


def _joined_arguments(own: JSON, below: JSON) -> JSON:
    """The workflow's arguments first, then those of the template that it does not name."""
    joined: JSON = {}
    for side in ("parameters", "artifacts"):
        mine = own.get(side) or []
        known = {one["name"] for one in mine}
        every = [*mine, *(one for one in below.get(side) or [] if one["name"] not in known)]
        if every:
            joined[side] = deepcopy(every)
    return joined
