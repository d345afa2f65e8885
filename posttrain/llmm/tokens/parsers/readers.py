"""Readers of calls: the text between a format's markers as calls, or None where it is none.

Each reads one way of writing calls; the source of the way is named. Arguments keep the model's own JSON text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posttrain.llmm.tokens.parsers.events import Call
from posttrain.llmm.tokens.parsers.sections import Schemas


class _Named(msgspec.Struct):
    """Hermes, Qwen, Llama, Mistral, Phi and Cohere name the same three things in these words."""

    name: str | None = None
    tool_name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()
    id: Any = None
    tool_call_id: Any = None

    def call(self) -> Call | None:
        name = self.name or self.tool_name
        if name is None:
            return None
        text = (bytes(self.arguments) or bytes(self.parameters) or b"{}").decode()
        if text.startswith('"'):  # JSON within JSON
            text = msgspec.json.decode(text)
        given = self.id if self.id is not None else self.tool_call_id
        return Call(name, text, None if given is None else str(given)) if is_json(text) else None


_object = msgspec.json.Decoder(_Named).decode
_several = msgspec.json.Decoder(list[_Named]).decode


def json_object(text: str, schemas: Schemas) -> list[Call] | None:
    """`{"name": …, "arguments": {…}}` (NousResearch Hermes, Qwen); several follow each other after `;` (Llama 3)."""
    return _calls(text, lambda inner: [_object(part) for part in _objects(inner)])


def json_list(text: str, schemas: Schemas) -> list[Call] | None:
    """`[{"name": …, "arguments": {…}}, …]` (Mistral before 2411, Phi-4-mini, Cohere's actions)."""
    return _calls(text, _several)


def mistral(text: str, schemas: Schemas) -> list[Call] | None:
    """A list, or `name[ARGS]{…}` with `[TOOL_CALLS]` between calls (Mistral's tokenizer versions 3 and 11)."""
    if text.lstrip().startswith("["):
        return json_list(text, schemas)
    calls = []
    for part in text.split("[TOOL_CALLS]"):
        head, found, arguments = part.partition("[ARGS]")
        name, _, call_id = head.strip().partition("[CALL_ID]")
        if not found or not name or not is_json(arguments):
            return None
        calls.append(Call(name, arguments.strip(), call_id or None))
    return calls


_DEEPSEEK = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)(?:<｜tool▁call▁end｜>|$)", re.DOTALL)
_FENCED = re.compile(r"(?P<name>[^\n]*)\n```json\n(?P<arguments>.*?)\n?```\s*", re.DOTALL)


def deepseek(text: str, schemas: Schemas) -> list[Call] | None:
    """`function<｜tool▁sep｜>name` and a fenced block (V3, R1), or `name<｜tool▁sep｜>{…}` (V3.1)."""
    calls = []
    for head, tail in _DEEPSEEK.findall(text):
        fenced = _FENCED.fullmatch(tail)
        name, arguments = (fenced["name"], fenced["arguments"]) if fenced else (head, tail)
        if not is_json(arguments):
            return None
        calls.append(Call(name.strip(), arguments.strip()))
    return calls or None


_KIMI = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?(.+?):(\d+)\s*<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>",
    re.DOTALL,
)


def kimi(text: str, schemas: Schemas) -> list[Call] | None:
    """`functions.name:0` and its arguments between markers of their own (Kimi K2)."""
    found = _KIMI.findall(text)
    if not found or not all(is_json(arguments) for _, _, arguments in found):
        return None
    return [Call(name, arguments.strip(), f"functions.{name}:{index}") for name, index, arguments in found]


_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)


def glm(text: str, schemas: Schemas) -> list[Call] | None:
    """A name, then `<arg_key>` and `<arg_value>` in turn (GLM 4.5 and later)."""
    name, found, rest = text.partition("<arg_key>")
    name = name.strip()
    if not name or re.search(r"[\s<{]", name):
        return None
    pairs, leftover = _ARGUMENT.findall(found + rest), _ARGUMENT.sub("", found + rest)
    return None if leftover.strip() else [Call(name, _typed(name, pairs, schemas))]


_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>)?\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


def xml_function(text: str, schemas: Schemas) -> list[Call] | None:
    """`<function=name><parameter=key>value</parameter></function>` (Qwen3-Coder, Qwen 3.5, Nemotron)."""
    whole = _FUNCTION.fullmatch(text)
    if whole is None or _PARAMETER.sub("", whole[2]).strip():
        return None
    return [Call(whole[1], _typed(whole[1], _PARAMETER.findall(whole[2]), schemas))]


def pythonic(text: str, schemas: Schemas) -> list[Call] | None:
    """`[f(a=1), g(b="x")]`: a Python list of calls with literal arguments (Llama 4, LFM2)."""
    try:
        body = ast.parse(text.strip(), mode="eval").body
        listed = body.elts if isinstance(body, ast.List) else [body]
        calls = []
        for item in listed:
            if not isinstance(item, ast.Call) or item.args or not isinstance(item.func, ast.Name | ast.Attribute):
                return None
            arguments = {word.arg: ast.literal_eval(word.value) for word in item.keywords if word.arg}
            calls.append(Call(ast.unparse(item.func), msgspec.json.encode(arguments).decode()))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return calls or None


_GEMMA = re.compile(r"\s*call:([^{\s]+)(\{.*\})\s*", re.DOTALL)
_GEMMA_TOKEN = re.compile(r'<\|"\|>(.*?)<\|"\|>|([{,]\s*)([A-Za-z_][\w.-]*)(\s*:)', re.DOTALL)


def gemma(text: str, schemas: Schemas) -> list[Call] | None:
    """`call:name{key:<|"|>text<|"|>,other:1}`: JSON with bare keys and quotes of its own (Gemma 4)."""
    whole = _GEMMA.fullmatch(text)
    if whole is None:
        return None

    def as_json(match: re.Match[str]) -> str:
        if match[3] is not None:
            return f'{match[2]}"{match[3]}"{match[4]}'
        return msgspec.json.encode(match[1]).decode()

    arguments = _GEMMA_TOKEN.sub(as_json, whole[2])
    return [Call(whole[1], arguments)] if is_json(arguments) else None


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _calls(text: str, read: Any) -> list[Call] | None:
    try:
        calls = [named.call() for named in read(text.strip())]
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None
    return None if not calls or None in calls else calls


def _objects(text: str) -> list[str]:
    """Llama 3 puts `;` between calls; a `;` within one call's JSON is no end of it."""
    parts, begun = [], ""
    for part in text.split(";"):
        begun = f"{begun};{part}" if begun else part
        if is_json(begun):
            parts.append(begun)
            begun = ""
    return [*parts, begun] if begun else parts


def _typed(name: str, pairs: Sequence[tuple[str, str]], schemas: Schemas) -> str:
    """Values that are written without quotes, by the tool's schema: text where it says so, else JSON if it is some.
    Around one of the texts that the schema lists, blanks are none of it."""
    properties: Mapping[str, Any] = (schemas.get(name) or {}).get("properties") or {}
    values: dict[str, Any] = {}
    for key, text in pairs:
        schema = properties.get(key.strip()) or {}
        if text.strip() in (schema.get("enum") or ()):
            values[key.strip()] = text.strip()
        elif schema.get("type") == "string" or not is_json(text):
            values[key.strip()] = text
        else:
            values[key.strip()] = msgspec.Raw(text.strip().encode())
    return msgspec.json.encode(values).decode()
