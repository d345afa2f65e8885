"""Rules for what a template takes and gives, and for templates that run something."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from posttrain.engine.expressions import ParseError, called_names, known_function
from posttrain.engine.library import kind_of
from posttrain.engine.linting import scopes
from posttrain.engine.manifest.findings import Path
from posttrain.engine.templates import tags

if TYPE_CHECKING:
    from posttrain.engine.linting.checks import Checks

JSON = dict[str, Any]
_SOURCES = ("path", "jqFilter", "jsonPath", "parameter", "expression")
_SOURCES_OF = {
    "container": ("path",), "script": ("path",), "containerSet": ("path",), "resource": ("jqFilter", "jsonPath"),
    "dag": ("parameter", "expression"), "steps": ("parameter", "expression"),
}  # fmt: skip
_WITHHELD = ("sprig.env", "sprig.expandenv")


class LeafChecks:
    """Of one walk over a manifest: what concerns what templates take, give and run."""

    def __init__(self, checks: Checks):
        self.checks = checks

    def inputs(self, template: JSON, where: Path) -> bool:
        inputs, leaf = template.get("inputs") or {}, kind_of(template) in scopes.LEAVES
        path = (*where, "inputs")
        good = self.checks.names(inputs.get("parameters") or [], (*path, "parameters"), scopes.VALUE_NAME)
        good = self.checks.names(inputs.get("artifacts") or [], (*path, "artifacts"), scopes.VALUE_NAME) and good
        for place, one in enumerate(inputs.get("artifacts") or []):
            here = (*path, "artifacts", place)
            if leaf and not one.get("path"):
                self.checks.say(here, f"{one.get('name')}: artifact path is required")
            elif not leaf and one.get("path"):
                self.checks.say((*here, "path"), "is only valid in container and script templates")
            if one.get("from"):
                self.checks.say((*here, "from"), "is not valid in inputs")
        for place, one in enumerate(template.get("initContainers") or []):
            if not one.get("name"):
                self.checks.say((*where, "initContainers", place), "initContainers must all have a container name")
        return good

    def leaf(self, template: JSON, scope: set[str], where: Path) -> None:
        kind = kind_of(template) or ""
        unknown = scopes.unresolvable(template, scope)
        if unknown is not None:
            self.checks.say(where, f"failed to resolve {{{{{unknown}}}}}")
        self.functions(template, where)
        body = template[kind] if isinstance(template[kind], dict) else {}
        if kind in ("container", "script") and not body.get("image"):
            self.checks.say((*where, kind, "image"), "may not be empty")
        if kind == "container":
            self._mounts(template, body, where)
        seconds = template.get("activeDeadlineSeconds")
        if seconds is not None and not re.fullmatch(r"[0-9]+|\{\{.*\}\}", str(seconds)):
            self.checks.say((*where, "activeDeadlineSeconds"), "must be a positive integer > 0 or an argo variable")
        if template.get("parallelism") is not None:
            self.checks.say((*where, "parallelism"), "is only valid for steps and dag templates")

    def _mounts(self, template: JSON, container: JSON, where: Path) -> None:
        taken: dict[str, str] = {}
        for place, mount in enumerate(container.get("volumeMounts") or []):
            if mount.get("mountPath") in taken:
                self.checks.say(
                    (*where, "container", "volumeMounts", place, "mountPath"),
                    f"'{mount['mountPath']}' already mounted in {taken[mount['mountPath']]}",
                )
            taken[mount.get("mountPath", "")] = f"container.volumeMounts.{mount.get('name')}"
        for place, artifact in enumerate((template.get("inputs") or {}).get("artifacts") or []):
            if artifact.get("path") in taken:
                path = (*where, "inputs", "artifacts", place, "path")
                self.checks.say(path, f"'{artifact['path']}' already mounted in {taken[artifact['path']]}")
            taken[artifact.get("path", "")] = f"inputs.artifacts.{artifact.get('name')}"

    def functions(self, value: Any, where: Path) -> None:
        """Expressions call only functions that there are; one that cannot be parsed is left to the run, as in Argo."""
        for tag in tags(value):
            if tag.startswith("="):
                self.expression(tag[1:], where)

    def expression(self, text: str, where: Path) -> None:
        try:
            names = called_names(text)
        except ParseError:
            return
        for name in sorted(names):
            plain = "." not in name
            if (plain or name.startswith("sprig.")) and not known_function(name) and name not in _WITHHELD:
                self.checks.say(where, f"there is no function {name} in {text!r}")

    def outputs(self, template: JSON, scope: set[str], where: Path) -> None:
        outputs, kind, path = template.get("outputs") or {}, kind_of(template), (*where, "outputs")
        self.checks.names(outputs.get("parameters") or [], (*path, "parameters"), scopes.VALUE_NAME)
        self.checks.names(outputs.get("artifacts") or [], (*path, "artifacts"), scopes.VALUE_NAME)
        unknown = scopes.unresolvable(outputs, scope)
        if unknown is not None:
            self.checks.say(path, f"failed to resolve {{{{{unknown}}}}}")
        for place, one in enumerate(outputs.get("artifacts") or []):
            here = (*path, "artifacts", place)
            if kind in scopes.LEAVES and not one.get("path"):
                self.checks.say(here, f"{one.get('name')}: artifact path is required")
            if kind not in scopes.LEAVES and one.get("path"):
                self.checks.say((*here, "path"), "is only valid in container and script templates")
            self._global_name(one, here)
        for place, one in enumerate(outputs.get("parameters") or []):
            self._output(one, kind or "", (*path, "parameters", place))

    def _output(self, one: JSON, kind: str, here: Path) -> None:
        source = one.get("valueFrom")
        if source is not None and one.get("value") is not None:
            self.checks.say(here, f"{one.get('name')} has both valueFrom and value specified. Choose one")
            return
        if source is None:
            if one.get("value") is None:
                self.checks.say(here, f"{one.get('name')} does not have valueFrom or value specified")
            return
        given = [key for key in _SOURCES if source.get(key)] + ["supplied"] * (source.get("supplied") is not None)
        if len(given) != 1:
            word = "is unspecified" if not given else "is given several times"
            self.checks.say(
                (*here, "valueFrom"), f"the type {word}: choose one of path, jqFilter, jsonPath, parameter, expression"
            )
            return
        wanted = _SOURCES_OF.get(kind)
        if wanted and given[0] not in wanted:
            self.checks.say((*here, "valueFrom"), f"{' or '.join(wanted)} must be specified for {kind} templates")
        if source.get("expression"):
            self.expression(source["expression"], (*here, "valueFrom", "expression"))
        self._global_name(one, here)

    def _global_name(self, one: JSON, here: Path) -> None:
        name = one.get("globalName")
        if name and "{{" not in name and not re.fullmatch(r"[-a-zA-Z0-9_]+", name):
            self.checks.say((*here, "globalName"), f"{name!r} must consist of alpha-numeric characters, '_' or '-'")
