"""What `validate` and `lint` look at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from posttrain import engine
from posttrain.contract.config import to_plain
from posttrain.engine.linting.carried import not_carried
from posttrain.engine.manifest import parse
from posttrain.errors import UserError
from posttrain.validation import check_route
from workflows.definition import Definition

JSON = dict[str, Any]
_OF_EACH_POD = ("/tmp/", "/var/tmp/", "/run/")


def problems_of(definition: Definition, workspace: Path) -> list[UserError]:
    """What is wrong with the configuration of the route's steps, beside the world they will run in."""
    sections = {name: value for name, value in vars(definition.config).items() if is_dataclass(value)}
    used = {t["container"]["command"][-1] for t in _templates(definition.render("check")) if "container" in t}
    pairs = [(import_module(f"steps.{name}").SPEC, value) for name, value in sections.items()]
    pairs = [(spec, value) for spec, value in pairs if spec.package in used]
    return [*check_route(pairs, workspace), *(p for spec, value in pairs for p in _unseen(spec.name, to_plain(value)))]


def read_manifest(source: str) -> engine.Manifest:
    """The manifest in the file `source`, or on standard input for `-`; UserError for its first fault."""
    return engine.load(_given(source))


def findings_of(source: str, *, here: bool) -> list[str]:
    """Everything that is wrong with a manifest, one line each; `here`: what this machine's engine cannot run, too."""
    manifest = parse(_given(source))
    elsewhere = set() if here else set(not_carried(manifest))
    return [str(finding) for finding in engine.lint(manifest) if finding not in elsewhere]


def parameters_of(manifest: engine.Manifest, items: list[str]) -> dict[str, str]:
    """KEY=VALUE as parameters of the workflow. Argo takes a key that the workflow lacks; here it is a slip."""
    spec = manifest.spec.get("workflowSpec") or manifest.spec
    known = [p["name"] for p in (spec.get("arguments") or {}).get("parameters") or []]
    given = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise UserError("is no parameter", field=item, remedy="write KEY=VALUE")
        if key not in known and "workflowTemplateRef" not in spec:  # a template has parameters of its own
            remedy = f"known: {', '.join(known) or 'none'}"
            raise UserError("the workflow has no such parameter", field=key, value=value, remedy=remedy)
        given[key] = value
    return given


def is_manifest(what: str) -> bool:
    """Whether `what` names a manifest rather than a route."""
    return what == "-" or what.endswith((".yaml", ".yml", ".json"))


def _given(source: str) -> str | Path:
    """The file that `source` names, or what standard input holds; its last line ends, as a text of none is a path."""
    try:
        return sys.stdin.buffer.read().decode() + "\n" if source == "-" else Path(source)
    except UnicodeDecodeError:
        raise UserError("is no UTF-8 text", field="standard input") from None


def _unseen(key: str, value: Any) -> Iterator[UserError]:
    """The paths in `value` that are there for this process, and for no step."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _unseen(f"{key}.{name}", inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _unseen(f"{key}[{place}]", inner)
    elif isinstance(value, str) and value.removeprefix("path:").startswith(_OF_EACH_POD):
        yield UserError(
            "no step sees this directory: each has its own of that name", field=key, value=value,
            remedy="put it into the workspace and give its path below it",
        )  # fmt: skip


def _templates(manifest: JSON) -> list[JSON]:
    return manifest["spec"]["templates"]
