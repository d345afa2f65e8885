"""A resolved configuration as YAML that a person can edit, with what each key is for and what was changed.

What is known of a key stands where it is defined: the docstring of its dataclass, and the comment
behind the field.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import yaml

_FIELD_COMMENT = re.compile(r"^    (\w+):[^#\n]*# (?!type:|noqa)(.+)$", re.MULTILINE)
_COMMENT_COLUMN = 40


def explain(config: Any) -> str:
    """YAML for `--file`: every key, the section's purpose above it, and the default of what differs from it."""
    return "\n".join(_body(config, type(config)(), 0)).strip()


def _body(config: Any, defaults: Any, depth: int) -> Iterator[str]:
    kind: type = type(config)
    comments = _comments(kind)
    for item in fields(config):
        value, default = getattr(config, item.name), getattr(defaults, item.name)
        if is_dataclass(value):
            if depth == 0:
                yield ""
                yield from _purpose(item.name, type(value))
            inner = list(_body(value, default, depth + 1))
            yield "  " * depth + f"{item.name}:" + ("" if inner else " {}")
            yield from inner
        else:
            yield _entry(item.name, value, default, comments.get(item.name, ""), depth)


def _entry(key: str, value: Any, default: Any, comment: str, depth: int) -> str:
    notes = [f"default: {_flow(default)}"] if value != default else []
    notes += [comment] if comment else []
    line = "  " * depth + f"{key}: {_flow(value)}"
    return f"{line:<{_COMMENT_COLUMN}}  # {'; '.join(notes)}" if notes else line


def _flow(value: Any) -> str:
    if isinstance(value, list):
        value = [asdict(item) if is_dataclass(item) and not isinstance(item, type) else item for item in value]
    dumped = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return dumped.removesuffix("...\n").strip()


def _purpose(step: str, config: type) -> Iterator[str]:
    """The step's summary, and what its Config says of its keys, as comments."""
    written = inspect.getdoc(config) or ""
    if written.startswith(f"{config.__name__}("):  # the text that dataclasses make up
        written = ""
    for part in (import_module(f"steps.{step}").SPEC.summary, written):
        text = " ".join(part.split())
        yield from (f"# {line}" for line in textwrap.wrap(text, 110))


@cache
def _comments(config: type) -> dict[str, str]:
    """field -> the comment behind it, those of base classes too."""
    found: dict[str, str] = {}
    for one in reversed(config.__mro__):
        if is_dataclass(one):
            found |= dict(_FIELD_COMMENT.findall(inspect.getsource(one)))
    return found
