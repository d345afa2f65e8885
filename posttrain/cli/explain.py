"""A resolved configuration as YAML that a person can edit: what each section is for, what was changed. Pure."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import yaml

from posttrain.contract.config import to_plain


def explain(config: Any) -> str:
    """YAML for `--file`. A key that is not at its default says the default in a comment."""
    lines = []
    defaults = type(config)()
    for item in fields(config):
        value, default = getattr(config, item.name), getattr(defaults, item.name)
        if not is_dataclass(value):
            lines += _entry(item.name, value, default, indent=0)
            continue
        lines += ["", *_comment(_purpose(item.name, value))]
        plain, plain_default = to_plain(value), to_plain(default)
        lines.append(f"{item.name}:" if plain else f"{item.name}: {{}}")
        for key, inner in plain.items():
            lines += _entry(key, inner, plain_default.get(key), indent=2)
    return "\n".join(lines).strip()


def _purpose(step: str, config: Any) -> str:
    """The step's summary, and what its Config says of its keys."""
    summary = import_module(f"steps.{step}").SPEC.summary
    written = inspect.getdoc(type(config)) or ""
    generated = written.startswith(f"{type(config).__name__}(")  # the text dataclasses make up
    return summary if generated or not written else f"{summary}\n\n{written}"


def _comment(text: str) -> list[str]:
    lines = [line for part in text.splitlines() for line in (textwrap.wrap(part, 110) or [""])]
    return [f"# {line}".rstrip() for line in lines]


def _entry(key: str, value: Any, default: Any, *, indent: int) -> list[str]:
    dumped = yaml.safe_dump({key: value}, sort_keys=False, width=10_000, allow_unicode=True).rstrip().splitlines()
    if value != default and len(dumped) == 1:
        shown = yaml.safe_dump(default, default_flow_style=True, width=10_000).splitlines()[0]
        dumped[0] += f"  # default: {shown}"
    return [" " * indent + line for line in dumped]
