"""Templates over a row's own values."""

from __future__ import annotations

from typing import Any

from posttrain.errors import UserError


def fill(template: str, values: dict[str, Any], field: str) -> str:
    """`template` with `{name}` replaced by values; UserError naming `field` for a name that no value has."""
    try:
        return template.format_map(values)
    except KeyError as problem:
        known = ", ".join(f"{{{name}}}" for name in values)
        raise UserError(f"{{{problem.args[0]}}} is not known", field=field, value=template,
                        remedy=f"known here: {known}") from None  # fmt: skip
    except (ValueError, IndexError, AttributeError) as problem:
        raise UserError(f"is no template: {problem}", field=field, value=template, remedy="write {{ for a {") from None
