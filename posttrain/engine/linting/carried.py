"""What this engine does not carry: refused before anything starts, each by the name of its field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from posttrain.engine.fields import CARRIED, HARMLESS, REFUSED, VALUES, children, field_of
from posttrain.engine.manifest import Finding, Manifest
from posttrain.engine.manifest.findings import Path
from posttrain.engine.manifest.strict import models

_ELSEWHERE = "run it on Argo"


def not_carried(manifest: Manifest) -> list[Finding]:
    """A finding for every field of the manifest that the engine refuses."""
    model = getattr(models(), manifest.kind)
    return [manifest.finding(path, message) for path, message in _walk(model, manifest.document, ())]


def _walk(model: type[BaseModel], value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if not isinstance(value, dict):
        return
    for name, one in value.items():
        if name == "status" or not _known(model, name):
            continue
        below = (*path, name)
        field = field_of(model.__name__, name)
        allowed = VALUES.get((model.__name__, name))
        if allowed and one not in allowed[0]:
            yield below, f"{name}: {one!r} is not carried by this engine ({allowed[1]}): {_ELSEWHERE}"
        elif field.state == REFUSED and one not in HARMLESS.get(name, ()):
            yield below, f"{name} is not carried by this engine ({field.why}): {_ELSEWHERE}"
        elif field.state == CARRIED:
            yield from _below(model, name, one, below)


def _known(model: type[BaseModel], name: str) -> bool:
    return any((info.alias or key) == name for key, info in model.model_fields.items())


def _below(model: type[BaseModel], name: str, value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    types = children(model, name)
    if not types:
        return
    if isinstance(value, list):
        for place, one in enumerate(value):
            if isinstance(one, list):  # the groups of a steps template
                for inner, step in enumerate(one):
                    yield from _walk(types[0], step, (*path, place, inner))
            else:
                yield from _walk(types[0], one, (*path, place))
    elif isinstance(value, dict) and _maps(model, name):
        for key, one in value.items():
            yield from _walk(types[0], one, (*path, key))
    else:
        yield from _walk(types[0], value, path)


def _maps(model: type[BaseModel], name: str) -> bool:
    """Whether the field is a mapping of names to things of its type."""
    annotation = next(info.annotation for key, info in model.model_fields.items() if (info.alias or key) == name)
    return any(get_origin(one) is dict for one in (annotation, *get_args(annotation)))
