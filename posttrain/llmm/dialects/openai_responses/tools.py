"""Tools, which of them may or must be called, reasoning, and the form of the answer."""

from __future__ import annotations

from typing import Any

import msgspec

from posttrain.llmm.dialects.openai_responses import NAME
from posttrain.llmm.dialects.wire import DialectError, as_object, done, note, own, put, rest
from posttrain.llmm.ir.chat import Format, Thinking, Tool, ToolChoice
from posttrain.llmm.ir.origin import Json

_FUNCTION = frozenset(("type", "name", "description", "parameters", "strict"))


def lift_tool(wire: Json) -> Tool:
    kind = wire.get("type")
    if kind == "function":
        get = wire.get
        return Tool(
            name=get("name"), description=get("description"), parameters=get("parameters"), strict=get("strict"),
            residual=rest(NAME, wire, _FUNCTION),
        )  # fmt: skip
    if kind == "custom":
        return Tool(
            name=wire.get("name"), description=wire.get("description"), free=True,
            residual=rest(NAME, wire, {"type", "name", "description"}),
        )  # fmt: skip
    return Tool(type=str(kind), residual={NAME: wire})


def added_tools(given: Any) -> tuple[Tool, ...]:
    """The functions in items that add tools in mid-conversation, where Codex puts all of its own. The item is said
    again as it was; so the note."""
    found: list[Tool] = []
    items = [item for item in given if item.get("type") == "additional_tools"] if isinstance(given, list) else []
    for item in items:
        for tool in item.get("tools") or ():
            for one in tool.get("tools") or () if tool.get("type") == "namespace" else (tool,):
                lifted = lift_tool(one)
                if lifted.type is None:
                    residual = note(NAME, lifted.residual, added=True)
                    found.append(msgspec.structs.replace(lifted, residual=residual))
    return tuple(found)


def lower_tool(tool: Tool) -> Json | None:
    out = own(NAME, tool.residual)
    if tool.type is not None:  # a vendor's own: all of it is in the residual, or in another vendor's
        return out or None
    out["type"] = "custom" if tool.free else "function"
    put(out, name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return done(out)


def lift_choice(wire: Any, parallel: Any) -> ToolChoice | None:
    match wire:
        case None:
            return None if parallel is None else ToolChoice(parallel=parallel)
        case "auto" | "none" | "required":
            return ToolChoice(mode=wire, parallel=parallel)
        case {"type": "function" | "custom" as kind, "name": str(name)} if len(wire) == 2:
            form = {NAME: {"~type": kind}} if kind == "custom" else None
            return ToolChoice(mode="named", names=(name,), parallel=parallel, residual=form)
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)} if len(wire) == 3:
            names = [t["name"] for t in tools if set(t) == {"type", "name"} and t["type"] == "function"]
            if len(names) == len(tools) and all(isinstance(name, str) for name in names):
                return ToolChoice(mode=mode, names=tuple(names), parallel=parallel)
    return ToolChoice(parallel=parallel, residual={NAME: {"tool_choice": wire}})


def lower_choice(choice: ToolChoice, out: Json) -> None:
    notes = own(NAME, choice.residual)
    put(out, parallel_tool_calls=choice.parallel, tool_choice=notes.get("tool_choice"))
    if choice.mode is None:
        return
    if choice.names is None:
        out["tool_choice"] = choice.mode
    elif choice.mode == "named" and len(choice.names) == 1:
        out["tool_choice"] = {"type": notes.get("~type", "function"), "name": choice.names[0]}
    else:
        tools = [{"type": "function", "name": name} for name in choice.names]
        mode = "auto" if choice.mode == "auto" else "required"
        out["tool_choice"] = {"type": "allowed_tools", "mode": mode, "tools": tools}


def lift_thinking(wire: Json) -> Thinking:
    residual = rest(NAME, wire, {"effort", "summary"})
    return Thinking(effort=wire.get("effort"), summary=wire.get("summary"), residual=residual or {NAME: {}})


def lift_format(wire: Any) -> Format | None:
    if wire is None:
        return None
    kind = as_object(wire, "text.format").get("type")
    if kind == "json_schema":
        return Format(
            type="schema", schema=wire.get("schema"), name=wire.get("name"), description=wire.get("description"),
            strict=wire.get("strict"),
            residual=rest(NAME, wire, {"type", "schema", "name", "description", "strict"}),
        )  # fmt: skip
    if kind not in ("text", "json_object"):
        raise DialectError("is no format", field="text.format.type", value=kind)
    return Format(type="text" if kind == "text" else "json", residual=rest(NAME, wire, {"type"}))


def lower_format(form: Format) -> Json:
    out = own(NAME, form.residual)
    if form.type != "schema":
        out["type"] = "json_object" if form.type == "json" else "text"
        return out
    out["type"] = "json_schema"
    if form.name is None and "name" not in out:
        out["name"] = "answer"
    put(out, schema=form.schema, name=form.name, description=form.description, strict=form.strict)
    return out
