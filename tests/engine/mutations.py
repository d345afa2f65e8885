"""Manifests with something else in them: real ones changed in their structure, or in their text."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import yaml

from posttrain.engine.manifest.yaml import read_documents

CASES = sorted((Path(__file__).parent / "conformance" / "cases").rglob("*.yaml"))
HOSTILE = [
    "it's", 'say "x"', "a\nb", "a\r\nb", "a\tb", "back\\slash", "$(echo no)", "`echo no`", "${HOME}",
    "; rm -rf /nowhere", "{{", "}}", "{{}}", "{{=", "{{=}}", "{{item}}", "{{=1+1}}", "{{workflow.name}}",
    "{{inputs.parameters.x}}", "{{= {} }}", "ü😀漢", "\u202e", "\x1b[31m", "%s%n", "--", "-", "", " ", "null", "true",
    "1e3", "[1,", "{", "/", "@", "*", "../../etc/passwd", "a" * 5000, "0x7fffffffffffffffff", "-1", "NaN",
    "99999999999999999999", "1s", "{{" * 50, "((((", "a && ", "!", "<b>&", "\ufeff", "é" * 300, "a.b.c", "&x",
    "# no",
]  # fmt: skip
SCALARS = [None, True, False, 0, -1, 1, 2**63, -(2**63), 1.5, 1e300, [], {}, [None], [[]], {"": ""}, [{}], {"a": None}]
TEXTS = [
    "\t", "'", '"', "{{", "}}", ": ", "- ", "&a ", "*a ", "!!binary ", "|\n", "---\n", "\0", "\x85", "%YAML 9.9\n",
    "? ", "? {a: b}\n: c\n",
]  # fmt: skip


def documents_of(file: Path) -> list[Any]:
    return read_documents(file.read_text(encoding="utf-8"))


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a tree."""
    found: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        one = stack.pop()
        for key in list(one) if isinstance(one, dict) else range(len(one)):
            found.append((one, key))
            if isinstance(one[key], (dict, list)):
                stack.append(one[key])
    return found


def change(documents: list[Any], dice: random.Random) -> None:
    """Change one place of a manifest's structure."""
    container, key = dice.choice(places(documents))
    match dice.randrange(16):
        case value if value >= 9 and isinstance(container[key], str):  # something in the midst of a text
            text = container[key]
            place = dice.randrange(len(text) + 1)
            container[key] = text[:place] + dice.choice(HOSTILE) + text[place + dice.choice([0, 0, 0, 1, 3]) :]
        case 0 | 1:
            container[key] = dice.choice(HOSTILE)
        case 2:
            container[key] = copy.deepcopy(dice.choice(SCALARS))
        case 3:
            del container[key]
        case 4:  # a piece of elsewhere
            other, there = dice.choice(places(documents))
            container[key] = copy.deepcopy(other[there])
        case 5:  # a piece of another manifest
            other, there = dice.choice(places(documents_of(dice.choice(CASES))))
            container[key] = copy.deepcopy(other[there])
        case 6 if isinstance(container, dict):
            container[dice.choice(HOSTILE[:12]) if dice.random() < 0.3 else _key(dice)] = container[key]
        case 7 if isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        case _:
            container[key] = {str(key): container[key]} if dice.random() < 0.5 else [container[key]]


def _key(dice: random.Random) -> str:
    """A key that some manifest has."""
    return next(str(key) for _, key in dice.sample(places(documents_of(dice.choice(CASES))), 1))


def mutant(dice: random.Random) -> str | list[Any]:
    """A real manifest with a change or a few, sometimes to its text instead."""
    file = dice.choice(CASES)
    if dice.random() < 0.2:
        text = file.read_text(encoding="utf-8")
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(text) + 1)
            text = text[:place] + dice.choice(TEXTS) + text[place + dice.choice([0, 0, 1, 5]) :]
        return text
    documents = documents_of(file)
    for _ in range(dice.choice([1, 1, 1, 1, 2, 4])):
        if documents:
            change(documents, dice)
    return documents


def shown(source: str | list[Any]) -> str:
    """For a person who wants to see the manifest that broke something."""
    return source if isinstance(source, str) else yaml.safe_dump_all(source, allow_unicode=True)
