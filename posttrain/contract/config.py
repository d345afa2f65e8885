"""Configuration: a dataclass is the schema, OmegaConf merges what a user gives into it.

Invariant: an unknown key or a value of the wrong type is one `UserError` that names the
key by its dotted path, before anything has started.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from posttrain.errors import UserError

C = TypeVar("C")


def load_yaml(path: Path, *, field: str = "--config") -> dict[str, Any]:
    """The mapping in the YAML file `path`; UserError where there is none."""
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except FileNotFoundError:
        raise UserError("no such file", field=field, value=str(path), remedy="give the path of a YAML file") from None
    except (YAMLError, OmegaConfBaseException, OSError) as problem:
        raise UserError(f"cannot be read: {_first_line(problem)}", field=field, value=str(path)) from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UserError("holds no mapping at its top", field=field, value=str(path))
    return loaded


def resolve(schema: type[C], *layers: dict[str, Any], overrides: Iterable[str] = (), where: str = "") -> C:
    """An instance of the dataclass `schema`: its defaults, then `layers`, then `a.b=c` overrides.

    `where` is put before the key's path in an error. The dataclass's own `__post_init__` may
    raise UserError for values that are of the right type and still make no sense.
    """
    assert is_dataclass(schema)
    config = OmegaConf.structured(schema)
    dotted = list(overrides)
    for item in dotted:
        if "=" not in item:
            raise UserError("is no override", field=item, remedy="write KEY=VALUE, as in sft.learning_rate=1e-4")
    try:
        for layer in layers:
            config = OmegaConf.merge(config, layer)
        for item in dotted:
            key, _, text = item.partition("=")
            OmegaConf.update(config, key, _value(text, _path(where, key)), merge=True)
        return OmegaConf.to_object(config)  # type: ignore[return-value]
    except (ConfigKeyError, ConfigAttributeError) as problem:
        raise UserError("unknown key", field=_path(where, problem), remedy=_suggest(schema, problem)) from None
    except (OmegaConfBaseException, TypeError) as problem:
        value = getattr(problem, "value", None)
        raise UserError(
            _first_line(problem), field=_path(where, problem), value=value, remedy="see `posttrain config`"
        ) from None


def to_plain(config: Any) -> dict[str, Any]:
    """The JSON form of a resolved configuration."""
    return OmegaConf.to_container(OmegaConf.create(asdict(config)), resolve=True)  # type: ignore[return-value]


def _value(text: str, field: str) -> Any:
    """The value that an override spells, as YAML."""
    try:
        return OmegaConf.from_dotlist([f"value={text}"]).value
    except YAMLError as problem:
        why = _first_line(problem)
        raise UserError(f"is no YAML: {why}", field=field, value=text, remedy="put it in quotes") from None


def _path(where: str, problem: Exception | str) -> str:
    key = problem if isinstance(problem, str) else str(getattr(problem, "full_key", None) or "")
    return ".".join(part for part in (where, key) if part) or "configuration"


def _suggest(schema: type, problem: OmegaConfBaseException) -> str:
    known = _keys(schema)
    near = difflib.get_close_matches(str(problem.full_key or problem.key), known, n=1, cutoff=0.6)
    return (
        f"did you mean {near[0]}?"
        if near
        else "known keys: " + ", ".join(known[:12]) + ("…" if len(known) > 12 else "")
    )


def _keys(schema: type) -> list[str]:
    def walk(node: Any, prefix: str) -> Iterable[str]:
        for key in node:
            yield prefix + str(key)
            child = node._get_node(key)
            if OmegaConf.is_dict(child) and not child._is_missing() and not child._is_none():
                yield from walk(child, f"{prefix}{key}.")

    return list(walk(OmegaConf.structured(schema), ""))


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
