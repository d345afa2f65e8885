"""The table of docs/llmm.md: every field of every type of every dialect, and what becomes of it.

Found by trying: a value with the field is lifted, its residuals are thrown away, and it is lowered. A field that is
still there is *carried* (it is a word of the IR); one that is not is *residual* (it comes back in its own dialect, and
is listed as lost in another). *Refused* are fields that the lift does not take.

    python -m tests.llmm.dialects.fields     writes the table anew
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from posttrain.errors import UserError
from posttrain.llmm.dialects import dialect
from posttrain.llmm.dialects.crossing import NESTED
from posttrain.llmm.ir.chat import Opaque, Tool
from tests.llmm.dialects.roots import EVENTS, REQUESTS, RESPONSES
from tests.llmm.dialects.sdk import Example, examples

PAGE = Path(__file__).resolve().parents[3] / "docs" / "llmm-fields.md"
TITLES = {
    "openai_chat": "OpenAI Chat Completions (`openai` {openai})",
    "openai_responses": "OpenAI Responses (`openai` {openai})",
    "anthropic_messages": "Anthropic Messages (`anthropic` {anthropic})",
    "google_genai": "Google GenAI (`google-genai` {google-genai})",
}
REFUSED = {
    "google_genai": "keys in snake case (`system_instruction`, `generation_config`, `tool_config`, "
    "`safety_settings`, `cached_content`): they are written in camel case, and the error says so",
}


def stripped(value: Any) -> Any:
    """`value` of the IR without what is in its residuals, but for notes on form."""
    if isinstance(value, tuple):
        return tuple(stripped(each) for each in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changed = {
        name: stripped(old)
        for name in value.__struct_fields__
        if isinstance(old := getattr(value, name), msgspec.Struct | tuple)
    }
    residual = getattr(value, "residual", None)
    if residual is not None:
        foreign = isinstance(value, Opaque) or (isinstance(value, Tool) and value.type is not None)
        changed["residual"] = None if foreign else {name: _form(left) for name, left in residual.items()}
    return msgspec.structs.replace(value, **changed)


def _form(left: dict[str, Any]) -> dict[str, Any]:
    """Notes on form, and the type that marks an entry of a list."""
    kept = {key: {} if key in NESTED else value for key, value in left.items() if key[:1] == "~" and key != "~whole"}
    return kept | ({"type": left["type"]} if "type" in left else {})


def fate(name: str, kind: str, example: Example) -> str:
    """carried, residual or refused."""
    found = _fate(name, kind, example)
    if found == "residual" and name == "google_genai":
        return _fate(name, kind, _in_company(example))
    return found


def _in_company(example: Example) -> Example:
    """Google's types need nothing, so that a field may stand alone: a thought is one of a text, a call has a name."""
    value = copy.deepcopy(example.value)
    here = value
    for key in example.path[:-1]:
        here = here[key]
    if example.field in ("thought", "thoughtSignature"):
        here["text"] = "s"
    elif example.field == "functionCall":
        here["functionCall"]["name"] = "s"
    elif example.type == "FunctionCall":
        here.setdefault("name", "s")
    return Example(example.type, example.field, example.path, value)


def _fate(name: str, kind: str, example: Example) -> str:
    it = dialect(name)
    try:
        if kind == "request":
            out = it.lower_request(stripped(it.lift_request(example.value)))
        elif kind == "response":
            out = it.lower_response(stripped(it.lift_response(example.value)))
        else:
            return _event_fate(it, example)
    except UserError:
        return "refused"
    return "carried" if _at(out, example.path) == _at(example.value, example.path) else "residual"


def _event_fate(it: Any, example: Example) -> str:
    """An event's field is carried where the deltas say it: what is left over then is not in the frame's residual."""
    (frame, *_) = it.lift_stream([example.value])
    left = (frame.residual or {}).get(it.name, {})
    value = _at(example.value, example.path)
    return "carried" if frame.deltas and _at(left, example.path) != value else "residual"


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for key in path:
        if isinstance(key, int):
            if not isinstance(value, list) or key >= len(value):
                return _NOTHING
            value = value[key]
        elif not isinstance(value, dict) or key not in value:
            return _NOTHING
        else:
            value = value[key]
    return value


_NOTHING = object()


@cache
def table(name: str, kind: str) -> dict[str, dict[str, str]]:
    """{type: {field: fate}}; a field is carried where any alternative of it is."""
    roots = {"request": [REQUESTS[name]], "response": [RESPONSES[name]], "event": EVENTS[name]}[kind]
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for example in examples(*roots):
        new = fate(name, kind, example)
        old = found[example.type].get(example.field)
        found[example.type][example.field] = new if old in (None, "residual") else old
    return found


@cache
def render() -> str:
    """The page."""
    lines = [
        "# Every field of every dialect",
        "",
        "Made by `python -m tests.llmm.dialects.fields` from the types of the pinned SDKs, by trying what the dialects",
        "do with a value of each; a test holds this page to it. *Carried*: a word of the IR, which crosses to every",
        "dialect that has one. *Residual*: kept under the dialect's name, comes back in it, listed as lost in a",
        "crossing. *Refused*: not taken, with an error that names the field.",
        "",
    ]
    versions = _versions()
    for name, title in TITLES.items():
        lines += [f"## {title.format(**versions)}", ""]
        lines += [f"Refused: {REFUSED.get(name, 'none')}.", ""]
        shown: dict[str, dict[str, str]] = {}
        for kind, heading in (("request", "Requests"), ("response", "Answers"), ("event", "Events")):
            rows = {kind_: fields for kind_, fields in table(name, kind).items() if shown.get(kind_) != fields}
            if kind == "event":
                rows = {kind_: fields for kind_, fields in rows.items() if kind_ not in shown}
            shown.update(rows)
            if rows:
                lines += [f"### {heading}", "", "| type | carried | residual |", "|---|---|---|"]
                lines += [_row(kind_, fields) for kind_, fields in sorted(rows.items())]
                lines.append("")
    return "\n".join(lines)


def _row(kind: str, fields: dict[str, str]) -> str:
    cells = [", ".join(f for f, fate_ in fields.items() if fate_ == wanted) for wanted in ("carried", "residual")]
    return f"| {kind} | {cells[0]} | {cells[1]} |"


def _versions() -> dict[str, str]:
    """Those that the environments' lock names."""
    lock = (Path(__file__).resolve().parents[3] / "envs" / "dev.txt").read_text()
    return {
        name: found[1] if (found := re.search(rf"^{name}==(\S+)", lock, re.M)) else version(name)
        for name in ("openai", "anthropic", "google-genai")
    }


if __name__ == "__main__":
    PAGE.write_text(render())
