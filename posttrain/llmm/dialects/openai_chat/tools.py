"""Tools, which of them may or must be called, and the form of the answer."""

from __future__ import annotations

from typing import Any, Final

from posttrain.llmm.dialects.openai_chat import NAME
from posttrain.llmm.dialects.wire import DialectError, as_list, as_object, done, note, own, put, rest
from posttrain.llmm.ir.chat import Format, Tool, ToolChoice
from posttrain.llmm.ir.origin import Json

_FUNCTION = frozenset(("name", "description", "parameters", "strict"))


def lift_tool(wire: Json) -> Tool:
    kind = wire.get("type")
    inner = wire.get(kind) if kind == "function" or kind == "custom" else None
    if type(inner) is not dict:
        return Tool(type=str(kind), residual={NAME: wire})
    get, custom = inner.get, kind == "custom"
    name, description, schema = get("name"), get("description"), get("parameters")
    plain = len(wire) == 2 and len(inner) == 3 and not custom
    if plain and name is not None and description is not None and schema is not None:
        return Tool(name=name, description=description, parameters=schema)
    residual = rest(NAME, wire, {"type", str(kind)})
    if beside := rest(NAME, inner, {"name", "description"} if custom else _FUNCTION):
        residual = note(NAME, residual, inner=beside[NAME])
    if custom:
        return Tool(name=name, description=description, free=True, residual=residual)
    return Tool(name=name, description=description, parameters=schema, strict=get("strict"), residual=residual)


def lower_tool(tool: Tool) -> Json | None:
    kind, residual = "custom" if tool.free else "function", tool.residual
    if residual is None and tool.type is None and tool.name is not None:
        inner: Json = {"name": tool.name}
        if tool.description is not None:
            inner["description"] = tool.description
        if tool.parameters is not None:
            inner["parameters"] = tool.parameters
        if tool.strict is not None:
            inner["strict"] = tool.strict
        return {"type": kind, kind: inner}
    out = own(NAME, residual)
    if tool.type is not None:  # a vendor's own: all of it is in the residual, or in another vendor's
        return out or None
    inner = out.get("~inner", {}).copy()
    put(inner, name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    out["type"], out[kind] = kind, inner
    return done(out)


def lift_choice(wire: Any, parallel: Any) -> ToolChoice | None:
    if wire is None:
        return None if parallel is None else ToolChoice(parallel=parallel)
    if isinstance(wire, str):
        if wire in ("auto", "none", "required"):
            return ToolChoice(mode=wire, parallel=parallel)  # type: ignore[arg-type]
    elif isinstance(wire, dict):
        kind = wire.get("type")
        inner = wire.get(kind) if isinstance(kind, str) else None
        if kind in ("function", "custom") and len(wire) == 2 and isinstance(inner, dict) and set(inner) == {"name"}:
            form = {NAME: {"~type": kind}} if kind == "custom" else None
            return ToolChoice(mode="named", names=(inner["name"],), parallel=parallel, residual=form)
        if kind == "allowed_tools" and len(wire) == 2 and isinstance(inner, dict) and set(inner) == {"mode", "tools"}:
            names = [_function_name(tool) for tool in as_list(inner["tools"], "tool_choice.allowed_tools.tools")]
            if inner["mode"] in ("auto", "required") and None not in names:
                return ToolChoice(mode=inner["mode"], names=tuple(names), parallel=parallel)  # type: ignore[arg-type]
    return ToolChoice(parallel=parallel, residual={NAME: {"tool_choice": wire}})


def _function_name(wire: Any) -> str | None:
    match wire:
        case {"type": "function", "function": {"name": str(name), **more}, **rest_} if not more and not rest_:
            return name
    return None


def lower_choice(choice: ToolChoice, out: Json) -> None:
    notes = own(NAME, choice.residual)
    put(out, parallel_tool_calls=choice.parallel, tool_choice=notes.get("tool_choice"))
    if choice.mode is None:
        return
    names = choice.names
    if names is None:
        out["tool_choice"] = choice.mode
    elif choice.mode == "named" and len(names) == 1:
        kind = notes.get("~type", "function")
        out["tool_choice"] = {"type": kind, kind: {"name": names[0]}}
    else:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        mode = "auto" if choice.mode == "auto" else "required"
        out["tool_choice"] = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


_FORMATS: Final = {"text": "text", "json_object": "json"}


def lift_format(wire: Any) -> Format | None:
    if wire is None:
        return None
    kind = as_object(wire, "response_format").get("type")
    if kind in _FORMATS:
        return Format(type=_FORMATS[kind], residual=rest(NAME, wire, {"type"}))  # type: ignore[arg-type]
    inner = wire.get("json_schema")
    if kind != "json_schema" or not isinstance(inner, dict):
        raise DialectError("is no format", field="response_format.type", value=kind)
    residual = rest(NAME, wire, {"type", "json_schema"})
    if beside := rest(NAME, inner, {"name", "description", "schema", "strict"}):
        residual = note(NAME, residual, inner=beside[NAME])
    return Format(
        type="schema", schema=inner.get("schema"), name=inner.get("name"), description=inner.get("description"),
        strict=inner.get("strict"), residual=residual,
    )  # fmt: skip


def lower_format(form: Format) -> Json:
    out = own(NAME, form.residual)
    if form.type != "schema":
        out["type"] = "json_object" if form.type == "json" else "text"
        return out
    inner = out.get("~inner", {}).copy()
    if "name" not in inner:
        inner["name"] = "answer"
    put(inner, schema=form.schema, name=form.name, description=form.description, strict=form.strict)
    out["type"], out["json_schema"] = "json_schema", inner
    return done(out)
