"""Configuration: a dataclass is the schema, OmegaConf merges what a user gives into it.

Invariant: an unknown key or a value of the wrong type is one `UserError` that names the
key by its dotted path, before anything has started.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from posttrain.errors import UserError

C = TypeVar("C")

_WORDS = [
    (r"Value '.*' of type '.*' could not be converted to Integer", "is not a whole number"),
    (r"Value '.*' of type '.*' could not be converted to Float", "is not a number"),
    (r"Value '.*' is not a valid bool", "is neither true nor false"),
    (r"Invalid value assigned: .* is not a ListConfig", "is not a list"),
    (r"Invalid value '.*', expected one of \[(.*)\]", r"is not one of \1"),
    (r"Cannot convert '.*' to string", "is not a text"),
    (r"(Incompatible value 'None' for field|field '.*' is not Optional)", "must not be null"),
    (r"(Invalid type assigned|Merge error): .* is not a subclass of", "is a group of keys"),
]


def _refuse(name: str, *_: str) -> str:
    raise UserError(f"${{oc.env:{name}}} is not read: a configuration is recorded, and a variable may be a secret")


OmegaConf.register_resolver("oc.env", _refuse, replace=True)


def load_yaml(path: Path, *, field: str = "--config") -> dict[str, Any]:
    """The mapping in the YAML file `path`; UserError where there is none."""
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except FileNotFoundError:
        raise UserError("no such file", field=field, value=str(path), remedy="give the path of a YAML file") from None
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError) as problem:
        raise UserError(f"cannot be read: {_first_line(problem)}", field=field, value=str(path)) from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UserError("holds no mapping at its top", field=field, value=str(path))
    return {str(key): value for key, value in loaded.items()}


def json_object(text: str, *, field: str) -> dict[str, Any]:
    """The JSON object that `text` spells; UserError naming `field` for anything else."""
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise UserError(f"is no JSON: {problem}", field=field, value=text) from None
    if not isinstance(value, dict):
        raise UserError("is no JSON object", field=field, value=text)
    return value


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
    with _told(schema, where):
        for layer in layers:
            _check_group(config, layer, where)
            config = OmegaConf.merge(config, layer)
        for item in dotted:
            key, _, text = item.partition("=")
            _make_room(config, key)
            OmegaConf.update(config, key, _value(text, _path(where, key)), merge=True)
        resolved: Any = OmegaConf.to_object(config)
    return resolved


@contextmanager
def _told(schema: type, where: str) -> Iterator[None]:
    """OmegaConf's errors as the user's, with `where` before the key's path."""
    try:
        yield
    except (ConfigKeyError, ConfigAttributeError) as problem:
        raise UserError("unknown key", field=_path(where, problem), remedy=_suggest(schema, problem)) from None
    except MissingMandatoryValue as problem:
        raise UserError("has no value", field=_path(where, problem), remedy="give it one") from None
    except (OmegaConfBaseException, TypeError) as problem:
        raise UserError(
            _mismatch(problem),
            field=_path(where, problem),
            value=getattr(problem, "value", None),
            remedy="see `posttrain config`",
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
    except OmegaConfBaseException as problem:
        raise UserError(_first_line(problem), field=field, value=text) from None


def _make_room(config: Any, key: str) -> None:
    """A mapping of groups (`steps.NAME`) gets a new one when the first of its keys is set."""
    node = config
    for part in key.split(".")[:-1]:
        if not OmegaConf.is_dict(node):
            return
        schema: Any = node._metadata.element_type
        if part not in node:
            if not is_dataclass(schema):
                return  # an entry of a list, or no key at all: the update itself will tell
            node[part] = OmegaConf.structured(schema)
        node = node._get_node(part)


def _path(where: str, problem: Exception | str) -> str:
    key = problem if isinstance(problem, str) else str(getattr(problem, "full_key", None) or "")
    return ".".join(part for part in (where, key) if part) or "configuration"


def _check_group(group: Any, given: Any, where: str) -> None:
    """Refuse a plain value where keys of their own stand, and whatever does not fit in a list of groups.

    Merging would name only what stands above the one, and no index of the other.
    """
    if not isinstance(given, Mapping):
        if not is_dataclass(given):
            remedy = f"its keys: {', '.join(map(str, group))}"
            raise UserError("is a group of keys", field=where or "configuration", value=given, remedy=remedy)
        return
    for key, value in given.items():
        node, path = group._get_node(str(key)), _path(where, str(key))
        if OmegaConf.is_dict(node) and is_dataclass(OmegaConf.get_type(node)):
            if value is not None or not node._is_optional():
                _check_group(node, value, path)
        elif OmegaConf.is_list(node) and isinstance(value, list):
            schema: Any = node._metadata.element_type
            for index, item in enumerate(value if is_dataclass(schema) else ()):
                element = OmegaConf.structured(schema)
                with _told(schema, f"{path}[{index}]"):
                    _check_group(element, item, f"{path}[{index}]")
                    OmegaConf.merge(element, item)


def _mismatch(problem: Exception) -> str:
    """OmegaConf's complaint in words about the value; its own where it is none of the usual ones."""
    said = _first_line(problem)
    for pattern, words in _WORDS:
        if match := re.match(pattern, said):
            return match.expand(words)
    return said


def _suggest(schema: type, problem: OmegaConfBaseException) -> str:
    """The key of the same group, or else of any, that looks most like the wrong one; else the group's keys."""
    group, _, wrong = str(problem.full_key or problem.key).rpartition(".")
    known = _keys(schema)
    siblings = [key for key in known if key.rpartition(".")[0] == group]
    for keys in (siblings, known):
        by_name = {key.rpartition(".")[2]: key for key in keys}
        if near := difflib.get_close_matches(wrong, by_name, n=1, cutoff=0.6):
            return f"did you mean {by_name[near[0]]}?"
    return "known keys: " + ", ".join(siblings[:12]) + ("…" if len(siblings) > 12 else "")


def _keys(schema: type) -> list[str]:
    def walk(node: Any, prefix: str) -> Iterable[str]:
        for key in node:
            yield prefix + str(key)
            child = node._get_node(key)
            if OmegaConf.is_dict(child) and not child._is_missing() and not child._is_none():
                yield from walk(child, f"{prefix}{key}.")

    return list(walk(OmegaConf.structured(schema), ""))


def _first_line(problem: Exception) -> str:
    said = str(problem).removeprefix("UserError raised while resolving interpolation: ")
    return (said.strip().splitlines() or [type(problem).__name__])[0]
