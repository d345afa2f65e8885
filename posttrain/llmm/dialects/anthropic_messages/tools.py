"""Tools, which of them may or must be called, thinking, and the form of the answer."""

from __future__ import annotations

from typing import Any, Final

from posttrain.llmm.dialects.anthropic_messages import NAME
from posttrain.llmm.dialects.wire import DialectError, as_object, done, note, own, put, rest
from posttrain.llmm.ir.chat import ChatRequest, Format, Thinking, Tool, ToolChoice
from posttrain.llmm.ir.origin import Json

_TOOL = frozenset(("name", "description", "input_schema", "strict"))


def lift_tool(wire: Json) -> Tool:
    kind = wire.get("type")
    if kind is not None and kind != "custom":
        return Tool(type=str(kind), name=wire.get("name"), residual=rest(NAME, wire, {"name", "type"}) or {NAME: {}})
    name, description, schema = wire.get("name"), wire.get("description"), wire.get("input_schema")
    if len(wire) == 3 and name is not None and description is not None and schema is not None:
        return Tool(name=name, description=description, parameters=schema)
    strict, residual = wire.get("strict"), rest(NAME, wire, _TOOL)
    return Tool(name=name, description=description, parameters=schema, strict=strict, residual=residual)


_TEXT_SCHEMA: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def lower_tool(tool: Tool) -> Json | None:
    out = own(NAME, tool.residual)
    if tool.type is not None:
        if tool.residual is None or NAME not in tool.residual:
            return None
        out["type"] = tool.type
        put(out, name=tool.name)
        return done(out)
    schema = _TEXT_SCHEMA if tool.free else tool.parameters
    if schema is not None:
        out["input_schema"] = schema
    elif tool.residual is None or NAME not in tool.residual:
        out["input_schema"] = {"type": "object", "properties": {}}
    if tool.name is not None:
        out["name"] = tool.name
    if tool.description is not None:
        out["description"] = tool.description
    if tool.strict is not None:
        out["strict"] = tool.strict
    return out if tool.residual is None else done(out)


_MODES: Final = {"auto": "auto", "any": "required", "tool": "named", "none": "none"}
_MODE_WORDS: Final = {"auto": "auto", "required": "any", "named": "tool", "none": "none"}


def lift_choice(wire: Any) -> ToolChoice | None:
    if wire is None:
        return None
    mode = _MODES.get(str(as_object(wire, "tool_choice").get("type")))
    if mode is None:
        raise DialectError("is no choice", field="tool_choice.type", value=wire.get("type"))
    serial, name = wire.get("disable_parallel_tool_use"), wire.get("name") if mode == "named" else None
    known = {"type", "disable_parallel_tool_use"} if name is None else {"type", "disable_parallel_tool_use", "name"}
    return ToolChoice(
        mode=mode,  # type: ignore[arg-type]
        names=None if name is None else (name,),
        parallel=None if serial is None else not serial,
        residual=rest(NAME, wire, known),
    )


def lower_choice(choice: ToolChoice) -> Json:
    out = own(NAME, choice.residual)
    names = choice.names or ()
    mode = choice.mode or "auto"
    if mode == "named" and len(names) > 1:
        mode = "required"
    out["type"] = _MODE_WORDS[mode]
    if mode == "named" and names:
        out["name"] = names[0]
    if choice.parallel is not None:
        out["disable_parallel_tool_use"] = not choice.parallel
    return done(out)


_ENABLED: Final = {"enabled": True, "adaptive": True, "disabled": False}


def lift_thinking(wire: Any, effort: str | None) -> Thinking | None:
    if wire is None:
        return None if effort is None else Thinking(effort=effort)
    kind = as_object(wire, "thinking").get("type")
    left = {key: value for key, value in wire.items() if value is None or key not in ("type", "budget_tokens")}
    residual = note(NAME, None, type=kind)
    if left:
        residual[NAME]["thinking"] = left
    return Thinking(
        enabled=_ENABLED.get(str(kind)), effort=effort, budget=wire.get("budget_tokens"), residual=residual
    )  # fmt: skip


def lower_output(request: ChatRequest, out: Json) -> None:
    thinking, config = request.thinking, out.get("output_config")
    config = {} if config is None else dict(config)
    if thinking is not None:
        put(config, effort=thinking.effort)
        notes = own(NAME, thinking.residual)
        kind = notes.get("~type")
        if kind is None or _ENABLED.get(kind) != thinking.enabled:
            kind = None if thinking.enabled is None else "disabled" if not thinking.enabled else "adaptive"
            if thinking.budget is not None and thinking.enabled is not False:
                kind = "enabled"
        if kind is not None:
            out["thinking"] = {**notes.get("thinking", {}), "type": kind}
            put(out["thinking"], budget_tokens=thinking.budget)
    if request.format is not None and request.format.type == "schema":
        form = own(NAME, request.format.residual)
        form["type"] = "json_schema"
        put(form, schema=request.format.schema)
        config["format"] = form
    if config:
        out["output_config"] = config


def lift_format(wire: Any) -> Format | None:
    if wire is None:
        return None
    if as_object(wire, "output_config.format").get("type") != "json_schema":
        raise DialectError("is no format", field="output_config.format.type", value=wire.get("type"))
    return Format(type="schema", schema=wire.get("schema"), residual=rest(NAME, wire, {"type", "schema"}))
