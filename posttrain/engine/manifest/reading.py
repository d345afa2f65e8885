"""From a file to a `Manifest`: one workflow (or cron workflow, or template) and the objects it needs.

Every document is checked against Argo's types before anything else looks at it, so the rest of the
engine may take a field for what the types say it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import yaml

from posttrain.engine.manifest import strict
from posttrain.engine.manifest.findings import Finding, Path, dotted
from posttrain.engine.manifest.objects import SUPPORTED, Objects
from posttrain.engine.manifest.yaml import lines_of, read_documents
from posttrain.errors import UserError

JSON = dict[str, Any]
_SIZE_LIMIT = 16 << 20
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass
class Manifest:
    """`document` is the workflow itself; `place` its number among the documents of `file`."""

    document: JSON
    objects: Objects = field(default_factory=Objects)
    file: str = "<manifest>"
    text: str = ""
    place: int = 0
    problems: list[Finding] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.document["kind"]

    @property
    def spec(self) -> JSON:
        return self.document.get("spec") or {}

    @property
    def metadata(self) -> JSON:
        return self.document.get("metadata") or {}

    @property
    def name(self) -> str:
        return self.metadata.get("name") or self.metadata.get("generateName") or ""

    @cached_property
    def _lines(self) -> list[dict[Path, int]]:
        return lines_of(self.text) if self.text else []

    def finding(self, path: Path, message: str, place: int | None = None) -> Finding:
        """A finding at `path` of a document, with the line of the closest field that is there."""
        place = self.place if place is None else place
        table = self._lines[place] if place < len(self._lines) else {}
        near = path
        while near and near not in table:
            near = near[:-1]
        return Finding(self.file, table.get(near, 1), dotted(path) or self.kind, message)


def load(source: str | FilePath | JSON) -> Manifest:
    """Read a manifest from a file, a text of YAML or JSON, or a document. Raises UserError at the first thing wrong."""
    manifest = parse(source)
    if manifest.problems:
        first = manifest.problems[0]
        more = f" (and {len(manifest.problems) - 1} more: see posttrain lint)" if len(manifest.problems) > 1 else ""
        raise UserError(f"{first.message}{more}", field=f"{first.file}:{first.line}: {first.path}")
    return manifest


def parse(source: str | FilePath | JSON) -> Manifest:
    """Like `load`, but with what is wrong with keys and types kept in `problems`.

    Raises UserError where there is nothing that could be checked: no file, no YAML, no workflow.
    """
    file, text, documents = _documents(source)
    objects = Objects()
    workflows = [place for place, one in enumerate(documents) if one["kind"] not in SUPPORTED]
    if len(workflows) > 1:
        kinds = ", ".join(documents[place]["kind"] for place in workflows)
        raise UserError(f"one manifest describes one workflow, this has several ({kinds})", field=file)
    main = workflows[0] if workflows else len(documents) - 1
    if documents[main]["kind"] not in strict.KINDS:
        raise UserError("there is no Workflow in it", field=file)
    manifest = Manifest({}, objects, file, text, main)
    for place, document in enumerate(documents):
        if document["kind"] in strict.KINDS:
            document, problems = strict.check(document)
            manifest.problems += [manifest.finding(path, message, place) for path, message in problems]
        if place == main:
            manifest.document = document
        if document["kind"] in SUPPORTED:
            objects.add(document)
    manifest.problems += [manifest.finding(path, message) for path, message in _naming(manifest.document)]
    return manifest


def _naming(document: JSON) -> list[tuple[Path, str]]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return [(("metadata",), "is required, with a name or a generateName")]
    name = metadata.get("name") or metadata.get("generateName")
    if not name:
        return [(("metadata", "name"), "is required (or generateName)")]
    if not isinstance(name, str) or not _NAME.fullmatch(name.rstrip("-") if "generateName" in metadata else name):
        return [(("metadata", "name"), f"{name!r} must consist of lower case letters, digits, '-' and '.'")]
    return [] if isinstance(document.get("spec"), dict) else [(("spec",), "is required")]


def _documents(source: str | FilePath | JSON) -> tuple[str, str, list[JSON]]:
    if isinstance(source, dict):
        return "<manifest>", "", [_document(source, "<manifest>", 0)]
    file, text = "<manifest>", str(source)
    if isinstance(source, FilePath) or "\n" not in text:
        file = str(source)
        text = _read(FilePath(source))
    try:
        found = read_documents(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
        raise UserError(f"is no YAML: {getattr(error, 'problem', None) or error}", field=where) from None
    except RecursionError:
        raise UserError("is nested too deeply", field=file) from None
    if not found:
        raise UserError("is empty", field=file, remedy="give it a Workflow")
    return file, text, [_document(one, file, place) for place, one in enumerate(found)]


def _read(file: FilePath) -> str:
    try:
        if file.stat().st_size > _SIZE_LIMIT:
            raise UserError(f"is larger than {_SIZE_LIMIT >> 20} MiB", field=str(file))
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", field=str(file)) from None
    except UnicodeDecodeError:
        raise UserError("is no UTF-8 text", field=str(file)) from None


def _document(value: Any, file: str, place: int) -> JSON:
    if not isinstance(value, dict):
        raise UserError(f"document {place + 1} is no mapping", field=file, value=value)
    kind = value.get("kind")
    if not isinstance(kind, str) or (kind not in strict.KINDS and kind not in SUPPORTED):
        wanted = ", ".join([*strict.KINDS, *sorted(SUPPORTED.keys() - set(strict.KINDS))])
        raise UserError(f"document {place + 1} is of a kind that is not known here", field=f"{file}: kind", value=kind,
                        remedy=f"one of {wanted}")  # fmt: skip
    metadata = value.get("metadata")
    if kind in SUPPORTED and not (isinstance(metadata, dict) and isinstance(metadata.get("name"), str)):
        raise UserError("is required", field=f"{file}: {kind} metadata.name")
    return value
