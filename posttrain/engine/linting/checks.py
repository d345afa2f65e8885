"""Argo's own rules: what the controller refuses as an invalid spec, found before a run is made.

The walk goes the way the controller's validation goes, because what a template may name of the
workflow's outputs depends on what was seen before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from posttrain.engine.cron.rules import schedule_problems
from posttrain.engine.library import Library, Source, TemplateNotFound, executed_spec, kinds_of
from posttrain.engine.linting import scopes
from posttrain.engine.linting.graphs import GraphChecks
from posttrain.engine.linting.leaves import LeafChecks
from posttrain.engine.manifest import Finding, Manifest
from posttrain.engine.manifest.findings import Path
from posttrain.engine.templates import has_location

JSON = dict[str, Any]

_NAME_RULE = "must consist of alpha-numeric characters or '-', and must start with an alpha-numeric character"
_POLICIES = ("Always", "OnError", "OnFailure", "OnTransientError", "", None)


class Checks:
    """`findings` after `run`. A template is checked once, wherever it is called from first."""

    def __init__(self, manifest: Manifest, parameters: Mapping[str, str] | None):
        self.manifest, self.parameters = manifest, parameters
        self.findings: list[Finding] = []
        self.base: Path = ("spec", "workflowSpec") if manifest.kind == "CronWorkflow" else ("spec",)
        self.spec: JSON = manifest.spec.get("workflowSpec") or {} if manifest.kind == "CronWorkflow" else manifest.spec
        self.objects = manifest.objects
        self.is_template = manifest.kind in ("WorkflowTemplate", "ClusterWorkflowTemplate")
        self.globals: set[str] = set()
        self.seen: set[tuple[str, str]] = set()
        self.graphs, self.leaves = GraphChecks(self), LeafChecks(self)

    def say(self, path: Path, message: str) -> None:
        self.findings.append(self.manifest.finding((*self.base, *path), message))

    def run(self) -> None:
        """All checks; those that lean on one that failed are left out."""
        limit = 52 if self.manifest.kind == "CronWorkflow" else 63
        if len(self.manifest.metadata.get("name") or "") > limit:
            message = f"the name must not be more than {limit} characters long"
            self.findings.append(self.manifest.finding(("metadata", "name"), message))
        if self.manifest.kind == "CronWorkflow":
            self._cron()
        if self.spec.get("workflowTemplateRef") and self.spec.get("templates"):
            self.say(("templates",), "templates cannot stand beside a workflowTemplateRef")
            return
        try:
            self.executed = executed_spec(self.spec, self.objects)
        except TemplateNotFound as error:
            self.say(("workflowTemplateRef",), str(error))
            return
        self.library = Library(self.manifest.name, self.executed, self.objects)
        if not self.names(self.spec.get("templates") or [], ("templates",), scopes.FIELD_NAME):
            return
        self.arguments(self.executed.get("arguments") or {}, ("arguments",), need_values=self.parameters is not None)
        self._globals()
        self._calls()

    def _cron(self) -> None:
        for path, message in schedule_problems(self.manifest.spec):
            self.findings.append(self.manifest.finding(("spec", *path), message))

    def _globals(self) -> None:
        metadata, own = self.manifest.metadata, self.executed.get("workflowMetadata") or {}
        names = ("name", "namespace", "mainEntrypoint", "serviceAccountName", "uid", "status", "labels", "labels.json",
                 "annotations", "annotations.json")  # fmt: skip
        self.globals = {f"workflow.{name}" for name in names}
        listed = (self.executed.get("arguments") or {}).get("parameters") or []
        if listed or self.parameters:
            self.globals |= {"workflow.parameters", "workflow.parameters.json"}
        self.globals |= {f"workflow.parameters.{one.get('name')}" for one in listed}
        self.globals |= {f"workflow.parameters.{name}" for name in self.parameters or {}}
        labels = [*(metadata.get("labels") or {}), *(own.get("labels") or {}), *(own.get("labelsFrom") or {})]
        self.globals |= {f"workflow.labels.{name}" for name in labels}
        annotations = [*(metadata.get("annotations") or {}), *(own.get("annotations") or {})]
        self.globals |= {f"workflow.annotations.{name}" for name in annotations}
        if self.executed.get("priority") is not None:
            self.globals.add("workflow.priority")

    def _calls(self) -> None:
        """The entry, the exit handler, the hooks, then every template for itself."""
        entry = self.executed.get("entrypoint")
        arguments = {"parameters": [*((self.executed.get("arguments") or {}).get("parameters") or [])]}
        arguments["artifacts"] = (self.executed.get("arguments") or {}).get("artifacts") or []
        known = {one.get("name") for one in arguments["parameters"]}
        extra = [{"name": name, "value": text} for name, text in (self.parameters or {}).items() if name not in known]
        arguments["parameters"] += extra
        if not entry and not self.is_template:
            self.say(("entrypoint",), "is required")
            return
        if entry:
            self.holder(
                {"template": entry}, self.library.local, None if self.is_template else arguments, ("entrypoint",)
            )
        if self.executed.get("onExit"):
            self.globals.add("workflow.failures")
            self.holder({"template": self.executed["onExit"]}, self.library.local, arguments, ("onExit",))
        self.hooks(self.executed.get("hooks") or {}, ("hooks",), self.library.local)
        for place, template in enumerate(self.spec.get("templates") or []):
            self.holder({"template": template.get("name", "")}, self.library.local, None, ("templates", place))

    # -- parts that others use

    def names(self, things: list[JSON], path: Path, rule: re.Pattern[str]) -> bool:
        """Names are there, well formed and unique."""
        seen: set[str] = set()
        good = True
        for place, one in enumerate(things):
            name = one.get("name") or ""
            problem = ""
            if not name:
                problem = "is required"
            elif not rule.fullmatch(name):
                problem = f"'{name}' is invalid: {_NAME_RULE}"
            elif name in seen:
                problem = f"'{name}' is not unique"
            seen.add(name)
            if problem:
                self.say((*path, place, "name"), problem)
                good = False
        return good

    def arguments(self, arguments: JSON, path: Path, *, need_values: bool) -> None:
        """Arguments have names and values, and keep to their enums."""
        parameters, artifacts = arguments.get("parameters") or [], arguments.get("artifacts") or []
        self.names(parameters, (*path, "parameters"), scopes.VALUE_NAME)
        self.names(artifacts, (*path, "artifacts"), scopes.VALUE_NAME)
        for place, one in enumerate(parameters):
            self._argument(one, (*path, "parameters", place), need_values)
        for place, one in enumerate(artifacts):
            where = (*path, "artifacts", place)
            if not one.get("from") and not one.get("fromExpression") and not has_location(one):
                self.say(where, f"{one.get('name')}: from, an artifact location, or a key is required")
            if one.get("from") and one.get("fromExpression"):
                self.say(where, f"{one.get('name')} must not have both from and fromExpression")

    def _argument(self, one: JSON, path: Path, need_values: bool) -> None:
        name, value = one.get("name"), (self.parameters or {}).get(one.get("name", ""), one.get("value"))
        source = one.get("valueFrom")
        if value is None and source is None and need_values:
            self.say(path, f"{name} has neither value nor valueFrom")
        if source is not None:
            allowed = [key for key in ("configMapKeyRef", "event", "supplied") if source.get(key) is not None]
            foreign = [key for key in ("path", "jsonPath", "parameter", "expression") if source.get(key)]
            if not allowed or foreign:
                self.say((*path, "valueFrom"), f"{name}: only default, configMapKeyRef and supplied are allowed here")
        if one.get("enum") is not None:
            if not one["enum"]:
                self.say((*path, "enum"), f"{name}: the enum should contain at least one value")
            elif value is not None and value not in one["enum"]:
                self.say((*path, "value"), f"{name}: {value!r} should be present in the enum list {one['enum']}")

    def hooks(self, hooks: JSON, path: Path, source: Source) -> None:
        """Named hooks have an expression, and every hook a template that exists."""
        for name, hook in hooks.items():
            if name != "exit" and not hook.get("expression"):
                self.say((*path, name), f"{name}: Expression required")
            self.called(hook, source, (*path, name))

    def called(self, holder: JSON, source: Source, path: Path) -> tuple[JSON, Source] | None:
        """The template that a step, task or hook calls, or None, with a finding where there is none."""
        name, reference = holder.get("template") or "", holder.get("templateRef")
        if reference is not None:
            if name:
                self.say(path, "template name cannot be specified with templateRef")
                return None
            for field in ("name", "template"):
                if not reference.get(field):
                    self.say((*path, "templateRef", field), "is required")
                    return None
            if "{{" in f"{reference['name']}{reference['template']}":
                return None
        elif "{{" in name:
            return None
        try:
            return self.library.resolve(holder, source)
        except TemplateNotFound:
            shown = f"template reference {reference['name']}.{reference['template']} not found" if reference else ""
            self.say(path, shown or f"template name '{name}' undefined")
            return None

    def holder(self, holder: JSON, source: Source, arguments: JSON | None, path: Path) -> JSON | None:
        """Check the template that is called; with None for arguments whatever it takes counts as given."""
        found = self.called(holder, source, path)
        if found is None:
            return None
        template, inside = found
        where = self._place_of(template, inside, path) if holder.get("inline") is None else (*path, "inline")
        if (template.get("retryStrategy") or {}).get("retryPolicy") not in _POLICIES:
            self.say(
                (*where, "retryStrategy", "retryPolicy"),
                f"{template['retryStrategy']['retryPolicy']} is not a valid RetryPolicy",
            )
        self.template(template, inside, arguments, where, path)
        return template

    def _place_of(self, template: JSON, source: Source, path: Path) -> Path:
        if source is self.library.local:
            for place, one in enumerate(self.spec.get("templates") or []):
                if one.get("name") == template.get("name"):
                    return ("templates", place)
        return path

    def template(self, template: JSON, source: Source, arguments: JSON | None, where: Path, called_at: Path) -> None:
        """One template, as it is called with these arguments."""
        kinds = kinds_of(template)
        if len(kinds) != 1:
            word = "type is unknown" if not kinds else f"has multiple types ({', '.join(kinds)}): choose one of them"
            self.say(where, f"template '{template.get('name', '')}' {word}")
            return
        if arguments is not None and not self.supplied(template, arguments, called_at):
            return
        self.timeout(template, kinds[0], where)
        key = (source.scope, str(template.get("name") or id(template)))
        if key in self.seen:
            return
        self.seen.add(key)
        if not self.leaves.inputs(template, where):
            return
        if arguments is None:
            template = _without_values(template)
        scope = self.globals | scopes.of_inputs(template) | scopes.of_leaf(template)
        if kinds[0] == "steps":
            self.graphs.steps(template, source, scope, where)
        elif kinds[0] == "dag":
            self.graphs.dag(template, source, scope, where)
        else:
            self.leaves.leaf(template, scope, where)
        self.leaves.outputs(template, scope | self.globals, where)

    def supplied(self, template: JSON, arguments: JSON, path: Path) -> bool:
        """Whether every input that has no value of its own is given."""
        given = {one.get("name") for one in arguments.get("parameters") or []}
        name = template.get("name", "")
        inputs = template.get("inputs") or {}
        for one in inputs.get("parameters") or []:
            own = one.get("value") is not None or one.get("default") is not None or one.get("valueFrom")
            if one.get("name") not in given and not own:
                self.say(path, f"templates.{name} inputs.parameters.{one.get('name')} was not supplied")
                return False
        artifacts = {one.get("name") for one in arguments.get("artifacts") or []}
        for one in inputs.get("artifacts") or []:
            if one.get("name") not in artifacts and not one.get("optional") and not has_location(one):
                self.say(path, f"templates.{name} inputs.artifacts.{one.get('name')} was not supplied")
                return False
        return True

    def timeout(self, template: JSON, kind: str, where: Path) -> None:
        if not template.get("timeout"):
            return
        if kind in ("dag", "steps", "suspend"):
            self.say((*where, "timeout"), f"a {kind} template doesn't support the timeout field")
        elif re.fullmatch(r"[+-]?\d+", template["timeout"]):
            self.say(
                (*where, "timeout"),
                f"invalid duration format in timeout {template['timeout']!r}: it needs a unit, as in 30s",
            )


def _without_values(template: JSON) -> JSON:
    """A template for any arguments: what its inputs would be without them is not looked at, as Argo does not."""
    inputs = template.get("inputs") or {}
    if not any("value" in one for one in inputs.get("parameters") or []):
        return template
    parameters = [{key: one[key] for key in one if key != "value"} for one in inputs["parameters"]]
    return {**template, "inputs": {**inputs, "parameters": parameters}}
