"""YAML as Kubernetes reads it: no dates, no numbers to base 60, and a line for every field. `y` and `n` are texts.

Invariant: what `write_documents` wrote, `read_documents` reads as the same, and so does Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from posttrain.engine.manifest.findings import Path

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    pass


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, rule)
        for tag, rule in rules
        if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    ]
    for first, rules in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
    ),
    list("-+0123456789."),
)


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes every text that some reader of YAML takes for something else."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [
            *_Loader.yaml_implicit_resolvers.get(first, []),
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {*_Loader.yaml_implicit_resolvers, *yaml.SafeDumper.yaml_implicit_resolvers}
    }


Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"[yYnN]\Z"), list("yYnN"))  # to kubectl


def _whole_number(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    sign, digits = (-1 if text[0] == "-" else 1), text.lstrip("+-")
    if re.fullmatch(r"0[0-7]+", digits):
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a text", key.start_mark)
        if key.tag != "tag:yaml.org,2002:merge":
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is there twice", key.start_mark)
            seen.add(key.value)
    loader.flatten_mapping(node)
    return {
        _key(loader.construct_object(key, deep=True)): loader.construct_object(value, deep=True)
        for key, value in node.value
    }


def _key(key: Any) -> Any:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key) if isinstance(key, (int, float)) else key


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read_documents(text: str) -> list[Any]:
    """The documents that are not empty. Raises yaml.YAMLError."""
    return [one for one in yaml.load_all(text, Loader=_Loader) if one is not None]


def write_documents(documents: Iterable[Any]) -> str:
    """As a text that `read_documents` reads."""
    return yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=1 << 30, allow_unicode=True)


def lines_of(text: str) -> list[dict[Path, int]]:
    """For each document that is not empty, the line (1-based) of every field by its path."""
    tables: list[dict[Path, int]] = []
    for node in yaml.compose_all(text, Loader=_Loader):
        if node is not None and not (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"):
            table: dict[Path, int] = {(): node.start_mark.line + 1}
            _note(node, (), table, set())
            tables.append(table)
    return tables


def _note(node: yaml.Node, path: Path, table: dict[Path, int], above: set[int]) -> None:
    if id(node) in above:
        return
    inside = above | {id(node)}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(getattr(key, "value", "?")))
            table[below] = key.start_mark.line + 1
            _note(value, below, table, inside)
    elif isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            below = (*path, place)
            table[below] = value.start_mark.line + 1
            _note(value, below, table, inside)
