"""Tools with their schemas, which of them may or must be called, thinking, and the form of the answer."""

from __future__ import annotations

from typing import Any, Final

from posttrain.llmm.dialects.google_genai import NAME
from posttrain.llmm.dialects.wire import as_object, done, note, own, put, rest
from posttrain.llmm.ir.chat import Format, Thinking, Tool, ToolChoice
from posttrain.llmm.ir.origin import Json


def json_schema(schema: Any) -> Any:
    """Google's `Schema` as a JSON schema: the names of types in lower case, `nullable` as a type."""
    if isinstance(schema, list):
        return [json_schema(each_) for each_ in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: json_schema(value) if key in _NESTED else value for key, value in schema.items() if key != "nullable"}
    if isinstance(out.get("properties"), dict):
        out["properties"] = {name: json_schema(value) for name, value in out["properties"].items()}
    if isinstance(kind := out.get("type"), str):
        out["type"] = [kind.lower(), "null"] if schema.get("nullable") else kind.lower()
    return out


_NESTED = frozenset(("items", "anyOf", "prefixItems", "additionalProperties"))
_DECLARATION = frozenset(("name", "description", "parameters", "parametersJsonSchema"))


def lift_tools(tools: list[Any]) -> tuple[Tool, ...]:
    found: list[Tool] = []
    for index, tool in enumerate(tools):
        functions = as_object(tool, f"tools.{index}").get("functionDeclarations")
        more = {key: value for key, value in tool.items() if key != "functionDeclarations" or not functions}
        start = True
        for function in functions or ():
            found.append(_lift_function(function, start=start))
            start = False
        if more or not tool:
            residual = note(NAME, {NAME: more}, group=start)
            found.append(Tool(type=",".join(more), residual=residual))
    return tuple(found)


def _lift_function(wire: Json, *, start: bool) -> Tool:
    schema, plain = wire.get("parametersJsonSchema"), wire.get("parameters")
    known = _DECLARATION if schema is None else _DECLARATION - {"parameters"}
    residual = note(NAME, rest(NAME, wire, known), group=start)
    if schema is None and plain is not None:
        schema = json_schema(plain)
        residual = note(NAME, residual, parameters=plain)
    return Tool(
        name=wire.get("name"), description=wire.get("description"), parameters=schema, residual=residual
    )  # fmt: skip


def lower_tools(tools: tuple[Tool, ...]) -> list[Json]:
    groups: list[Json] = []
    for tool in tools:
        if tool.type is not None and (tool.residual is None or NAME not in tool.residual):
            continue  # another vendor's own
        out: Json = {} if tool.residual is None else own(NAME, tool.residual)
        if not groups or out.get("~group"):
            groups.append({})
        if tool.type is not None:
            groups[-1].update(done(out))
            continue
        put(out, name=tool.name, description=tool.description)
        if tool.parameters is not None:
            if (raw := out.get("~parameters")) is not None and json_schema(raw) == tool.parameters:
                out["parameters"] = raw
            else:
                out["parametersJsonSchema"] = tool.parameters
        elif tool.free:
            out["parametersJsonSchema"] = {"type": "object", "properties": {"input": {"type": "string"}}}
        groups[-1].setdefault("functionDeclarations", []).append(out if tool.residual is None else done(out))
    return [group for group in groups if group or any(tool.type == "" for tool in tools)]


_MODES: Final = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
_MODE_WORDS: Final = {"auto": "AUTO", "required": "ANY", "named": "ANY", "none": "NONE"}


def lift_choice(wire: Any) -> ToolChoice | None:
    if wire is None:
        return None
    said = as_object(wire, "toolConfig.functionCallingConfig").get("mode")
    mode, names = _MODES.get(str(said)), wire.get("allowedFunctionNames")
    known = {"allowedFunctionNames"} if mode is None else {"mode", "allowedFunctionNames"}
    residual = rest(NAME, wire, known) or {NAME: {}}
    if mode == "required" and names is not None and len(names) == 1:
        mode = "named"
    return ToolChoice(mode=mode, names=None if names is None else tuple(names), residual=residual)  # type: ignore


def lower_choice(choice: ToolChoice) -> Json | None:
    out = own(NAME, choice.residual)
    if choice.mode is None and choice.names is None and (choice.residual is None or NAME not in choice.residual):
        return None
    if choice.mode is not None:
        out["mode"] = _MODE_WORDS[choice.mode]
    put(out, allowedFunctionNames=None if choice.names is None else list(choice.names))
    return done(out)


def lift_thinking(wire: Any) -> Thinking | None:
    if wire is None:
        return None
    level = as_object(wire, "generationConfig.thinkingConfig").get("thinkingLevel")
    usual = isinstance(level, str) and level == level.lower().upper()
    known = {"thinkingBudget", "thinkingLevel"} if usual else {"thinkingBudget"}
    return Thinking(
        effort=str(level).lower() if usual else None, budget=wire.get("thinkingBudget"),
        residual=rest(NAME, wire, known) or {NAME: {}},
    )  # fmt: skip


def lower_thinking(thinking: Thinking, config: Json) -> None:
    out = own(NAME, thinking.residual)
    put(out, thinkingBudget=thinking.budget, thinkingLevel=None if thinking.effort is None else thinking.effort.upper())
    if thinking.enabled is False and thinking.budget is None:
        out["thinkingBudget"] = 0
    if out or (thinking.residual is not None and NAME in thinking.residual):
        config["thinkingConfig"] = done(out)


def lift_format(config: Json, left: Json) -> Format | None:
    """The form of the answer; what of it is no word of the IR is put to `left`."""
    mime, plain, schema = (config.get(key) for key in ("responseMimeType", "responseSchema", "responseJsonSchema"))
    if mime not in (None, "application/json", "text/plain"):
        left["responseMimeType"] = mime
    if schema is None and plain is None:
        if mime not in ("application/json", "text/plain"):
            return None
        return Format(type="json" if mime == "application/json" else "text")
    residual = None if mime == "application/json" else note(NAME, None, mime=mime)
    if schema is None:
        return Format(type="schema", schema=json_schema(plain), residual=note(NAME, residual, schema=plain))
    if plain is not None:
        left["responseSchema"] = plain
    if not isinstance(schema, dict):
        left["responseJsonSchema"] = schema
        return None
    return Format(type="schema", schema=schema, residual=residual)


def lower_format(form: Format, config: Json) -> None:
    notes = own(NAME, form.residual)
    mime = "text/plain" if form.type == "text" else "application/json"
    mime = notes.get("~mime", mime) if form.type == "schema" else mime
    if mime is not None:
        config.setdefault("responseMimeType", mime)
    if form.schema is not None:
        raw = notes.get("~schema")
        same = raw is not None and json_schema(raw) == form.schema
        config["responseSchema" if same else "responseJsonSchema"] = raw if same else form.schema
