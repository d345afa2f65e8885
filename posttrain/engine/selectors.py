"""Node field selectors, as `argo` takes them: `displayName=ask,phase!=Failed`. Pure."""

from __future__ import annotations

import re
from typing import Any

from posttrain.engine.nodes import Node
from posttrain.errors import UserError

_FIELDS = ("displayName", "templateName", "templateRef.name", "templateRef.template", "phase", "name", "type", "id")


def matcher(selector: str) -> list[tuple[str, str, bool]]:
    """(field, value, whether it must be equal) of each part. Raises UserError."""
    parts: list[tuple[str, str, bool]] = []
    for text in filter(None, (one.strip() for one in selector.split(","))):
        found = re.fullmatch(r"([^=!]+?)\s*(==|=|!=)\s*(.*)", text)
        if not found or not (found[1] in _FIELDS or re.fullmatch(r"inputs\.parameters\.[^.]+\.value", found[1])):
            raise UserError(
                "is no node field selector",
                field="node field selector",
                value=text,
                remedy=f"use FIELD=VALUE with {', '.join(_FIELDS)}",
            )
        parts.append((found[1], found[3], found[2] != "!="))
    return parts


def matches(selector: str, node: Node) -> bool:
    """Whether a node is meant; an empty selector means every node."""
    return all((_field(node, field) == value) is equal for field, value, equal in matcher(selector))


def _field(node: Node, field: str) -> str:
    found = re.fullmatch(r"inputs\.parameters\.([^.]+)\.value", field)
    if found:
        listed = (node.get("inputs") or {}).get("parameters") or []
        return next((one.get("value", "") for one in listed if one["name"] == found[1]), "")
    value: Any = node
    for step in field.split("."):
        value = value.get(step, "") if isinstance(value, dict) else ""
    return str(value)
