"""Anthropic Messages: requests and answers. Its stream is in `anthropic_messages_stream`.

`system` is a leading message of the role system; a user's message that holds tool results becomes one message for
each result and one for what stands between them, joined. Usage: the vendor's `input_tokens` leaves out what was
read from or written to the cache, the IR's counts it. Source: the types of the `anthropic` package.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.wire import (
    DialectError,
    absent,
    as_list,
    as_object,
    as_text,
    done,
    each,
    kept,
    note,
    object_of,
    own,
    put,
    recoded,
    rest,
)
from posttrain.llmm.ir.chat import (
    ChatRequest,
    ChatResponse,
    Choice,
    Citation,
    Failure,
    Format,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Sampling,
    Stop,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from posttrain.llmm.ir.origin import Json, Residual

NAME: Final = "anthropic_messages"
MAX_TOKENS = 4096  # this vendor must be told a limit; the one given where no limit was asked for
_LISTED: Residual = {NAME: {"type": "text"}}  # a text that came as a block, with nothing else to it
STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "pause_turn": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "length",
}
STOP_WORDS: dict[Stop, str] = {
    "end": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "pause": "pause_turn",
    "refusal": "refusal",
    "filter": "refusal",
}
_REQUEST = frozenset(
    ("model", "messages", "max_tokens", "system", "tools", "tool_choice", "temperature", "top_p", "top_k",
     "stop_sequences", "stream", "thinking", "output_config", "metadata")
)  # fmt: skip


def lift_request(wire: Json) -> ChatRequest:
    """Raises DialectError naming the field that is not of the dialect."""
    if "messages" not in wire:
        raise DialectError("is missing", field="messages", remedy="give a list of {role, content}")
    get, residual = wire.get, rest(NAME, wire, _REQUEST)
    if "max_tokens" not in wire:  # as a request to count tokens does
        residual = note(NAME, residual, absent=["max_tokens"])
    messages: list[Message] = []
    if (system := get("system")) is not None:
        messages.append(Message(role="system", parts=tuple(_lift_content(system, "system"))))
    _lift_messages(as_list(wire["messages"], "messages"), messages)
    config = get("output_config")
    user, form, effort = None, None, None
    if (metadata := get("metadata")) is not None:
        user = metadata.get("user_id")
        left = {key: value for key, value in metadata.items() if key != "user_id" or value is None}
        if left or user is None:
            residual = kept(NAME, residual, "metadata", left)
    if config is not None:
        effort, form = config.get("effort"), _lift_format(config.get("format"))
        left = {k: v for k, v in config.items() if v is None or k not in ("effort", "format")}
        if left or not config:
            residual = kept(NAME, residual, "output_config", left)
    tools, stop = get("tools"), get("stop_sequences")
    return ChatRequest(
        messages=tuple(messages),
        model=get("model"),
        tools=None if tools is None else tuple(each(tools, "tools", _lift_tool)),
        tool_choice=_lift_choice(get("tool_choice")),
        sampling=Sampling(
            max_tokens=get("max_tokens"),
            temperature=get("temperature"),
            top_p=get("top_p"),
            top_k=get("top_k"),
            stop=None if stop is None else tuple(as_list(stop, "stop_sequences")),
        ),
        format=form,
        thinking=_lift_thinking(get("thinking"), effort),
        stream=get("stream"),
        user=user,
        residual=residual,
    )


def lower_request(request: ChatRequest) -> Json:
    out = own(NAME, request.residual)
    leading = 0
    for message in request.messages:
        if message.role not in ("system", "developer") or _note(message.residual, "~listed"):
            break
        leading += 1
    if leading:
        out["system"] = _lower_content(tuple(part for message in request.messages[:leading] for part in message.parts))
    out["messages"] = _lower_messages(request.messages[leading:])
    sampling = request.sampling
    put(out, temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k)
    if sampling.max_tokens is not None or "max_tokens" not in out:
        out["max_tokens"] = MAX_TOKENS if sampling.max_tokens is None else sampling.max_tokens
    if sampling.stop is not None:
        out["stop_sequences"] = list(sampling.stop)
    if request.tools is not None:
        out["tools"] = [wire for tool in request.tools if (wire := _lower_tool(tool)) is not None]
    if request.tool_choice is not None:
        out["tool_choice"] = _lower_choice(request.tool_choice)
    if request.user is not None:
        out["metadata"] = {**out.get("metadata", {}), "user_id": request.user}
    _lower_output(request, out)
    put(out, model=request.model, stream=request.stream)
    return out if request.residual is None else done(out)


def _note(residual: Residual | None, key: str) -> Any:
    return residual.get(NAME, {}).get(key) if residual is not None else None


# Messages

_MESSAGE = frozenset(("role", "content"))
_USE = frozenset(("type", "id", "name", "input"))
_RESULT = frozenset(("type", "tool_use_id", "content", "is_error"))


def _lift_messages(wires: list[Any], into: list[Message]) -> None:
    count = 0
    try:
        for wire in wires:
            _lift_message(wire if type(wire) is dict else as_object(wire, ""), into)
            count += 1
    except DialectError as problem:
        raise problem.within(f"messages.{count}") from None


def _lift_message(wire: Json, into: list[Message]) -> None:
    role = wire.get("role")
    residual = rest(NAME, wire, _MESSAGE) if len(wire) > 2 else None
    parts = _lift_content(wire.get("content"), "content")
    if role == "assistant":
        into.append(Message(role="assistant", parts=tuple(parts), residual=residual))
    elif role == "user":
        _split(parts, residual, into)
    elif role == "system":
        into.append(Message(role="system", parts=tuple(parts), residual=note(NAME, residual, listed=True)))
    else:
        raise DialectError("is no role", field="role", value=role)


def _split(parts: list[Part], residual: Residual | None, into: list[Message]) -> None:
    """One message for each tool result, and for each run of something else."""
    run: list[Part] = []
    joined = False
    for part in parts:
        if joined and not run and type(part) is ToolResult:
            into.append(Message(role="tool", parts=(part,), joined=True))
            continue
        if type(part) is not ToolResult:
            run.append(part)
            continue
        if run:
            into.append(Message(role="user", parts=tuple(run), joined=joined, residual=residual))
            run, joined, residual = [], True, None
        into.append(Message(role="tool", parts=(part,), joined=joined, residual=residual))
        joined, residual = True, None
    if run or not parts:
        into.append(Message(role="user", parts=tuple(run), joined=joined, residual=residual))


def _lift_content(content: Any, field: str) -> list[Part]:
    if type(content) is str:
        return [Text(text=content)]
    found: list[Part] = []
    try:
        for block in content:
            kind = block["type"]
            if kind == "tool_use" and len(block) == 4:
                name, given, call = block["name"], block["input"], block["id"]
                if type(given) is dict and type(name) is str and call is not None:
                    found.append(ToolCall(name=name, arguments=given, id=call))
                    continue
            elif kind == "tool_result" and len(block) == 3:
                call, text = block["tool_use_id"], block["content"]
                if type(text) is str and call is not None:
                    found.append(ToolResult(call=call, content=(Text(text=text),)))
                    continue
            found.append(_LIFT[kind](block))
    except (LookupError, TypeError, DialectError):  # not all are as they usually are
        return each(content, field, lift_block)
    return found


def lift_block(wire: Json) -> Part:
    """One block of content."""
    return _LIFT.get(wire.get("type"), _lift_opaque)(wire)  # type: ignore[arg-type]


def _lift_opaque(wire: Json) -> Part:
    return Opaque(type=str(wire.get("type")), residual={NAME: wire})


def _lift_text(wire: Json) -> Part:
    text, citations = as_text(wire.get("text"), "text"), None
    if len(wire) == 2:
        return Text(text=text, residual=_LISTED)
    if (listed := wire.get("citations")) is not None:
        citations = tuple(map(lift_citation, as_list(listed, "citations")))
    return Text(text=text, citations=citations, residual=rest(NAME, wire, {"text", "citations"}))


def lift_citation(wire: Json) -> Citation:
    return Citation(
        url=wire.get("url"), title=wire.get("title"), quote=wire.get("cited_text"),
        residual=rest(NAME, wire, {"url", "title", "cited_text"}),
    )  # fmt: skip


def lower_citation(citation: Citation) -> Json:
    out = own(NAME, citation.residual)
    if "type" not in out:
        out["type"], out["encrypted_index"] = "web_search_result_location", ""
        out["title"], out["cited_text"], out["url"] = citation.title, citation.quote or "", citation.url or ""
        return out
    put(out, url=citation.url, title=citation.title, cited_text=citation.quote)
    return out


def _lift_thought(wire: Json) -> Part:
    residual = rest(NAME, wire, {"type", "thinking", "signature"})
    if "signature" not in wire:
        residual = note(NAME, residual, absent=["signature"])
    return Reasoning(
        text=as_text(wire.get("thinking"), "thinking"),
        signature=wire.get("signature") or None,
        residual=residual,
    )


def _lift_redacted(wire: Json) -> Part:
    return Reasoning(encrypted=wire.get("data"), residual=rest(NAME, wire, {"type", "data"}))


def _lift_use(wire: Json) -> Part:
    given = wire.get("input")
    if not isinstance(given, dict):
        return _lift_opaque(wire)
    name = as_text(wire.get("name"), "name")
    return ToolCall(name=name, arguments=given, id=wire.get("id"), residual=rest(NAME, wire, _USE))


def _lift_result(wire: Json) -> Part:
    content, residual = wire.get("content"), rest(NAME, wire, _RESULT)
    if content == []:
        residual = kept(NAME, residual, "content", [])
    parts: Any = () if content is None else tuple(_lift_content(content, "content"))
    return ToolResult(call=wire.get("tool_use_id"), content=parts, error=wire.get("is_error"), residual=residual)


_SOURCES = {"base64": ("media_type", "data"), "url": ("url",), "file": ("file_id",), "text": ("media_type", "data")}


def _lift_media(wire: Json) -> Part:
    source = wire.get("source")
    if not isinstance(source, dict) or (kind := source.get("type")) not in _SOURCES:
        return _lift_opaque(wire)
    image = wire["type"] == "image"
    residual = rest(NAME, wire, {"type", "source"} if image else {"type", "source", "title"})
    if beside := rest(NAME, source, {"type", *_SOURCES[kind]}):
        residual = note(NAME, residual, source=beside[NAME])
    data = source.get("data")
    if kind == "text":
        data = base64.b64encode(str(data).encode()).decode()
        residual = note(NAME, residual, text=True)
    return Media(
        medium="image" if image else "document", type=source.get("media_type"), data=data, url=source.get("url"),
        file=source.get("file_id"), name=None if image else wire.get("title"), residual=residual,
    )  # fmt: skip


_LIFT: Final[dict[str, Callable[[Json], Part]]] = {
    "text": _lift_text,
    "thinking": _lift_thought,
    "redacted_thinking": _lift_redacted,
    "tool_use": _lift_use,
    "tool_result": _lift_result,
    "image": _lift_media,
    "document": _lift_media,
}


_ROLE_WORDS: Final = {"user": "user", "tool": "user", "assistant": "assistant", "system": "system",
                      "developer": "system"}  # fmt: skip


def _lower_messages(messages: tuple[Message, ...]) -> list[Json]:
    found: list[Json] = []
    for message in messages:
        role, parts, residual = _ROLE_WORDS[message.role], message.parts, message.residual
        if message.joined and found and (before := found[-1])["role"] == role:
            said = before["content"]
            if type(said) is str:
                said = before["content"] = [{"type": "text", "text": said}]
            said += lower_blocks(parts)
        elif residual is None:
            found.append({"role": role, "content": _lower_content(parts)})
        else:
            out = own(NAME, residual)
            out["role"], out["content"] = role, _lower_content(parts)
            found.append(done(out))
    return found


def _lower_content(parts: tuple[Any, ...]) -> Any:
    """A string where a single text says no more than that; else blocks."""
    if len(parts) == 1 and type(part := parts[0]) is Text and not part.citations:
        residual = part.residual
        if residual is None or NAME not in residual:
            return part.text
    return lower_blocks(parts)


def lower_blocks(parts: tuple[Part, ...]) -> list[Json]:
    """The blocks of content."""
    return [wire for part in parts if (wire := _LOWER[type(part)](part)) is not None]


def _lower_text(part: Text) -> Json:
    residual = part.residual
    if residual is None or residual is _LISTED:
        out: Json = {"type": "text", "text": part.text}
    else:
        out = own(NAME, residual)
        out["type"], out["text"] = "text", part.text
    if part.citations is not None:
        out["citations"] = [lower_citation(each_) for each_ in part.citations]
    return out


def _lower_thought(part: Reasoning) -> Json | None:
    out = own(NAME, part.residual)
    if part.text is not None:
        out["type"], out["thinking"], out["signature"] = "thinking", part.text, part.signature or ""
    elif part.encrypted is not None:
        out["type"], out["data"] = "redacted_thinking", part.encrypted
    else:
        return None
    return done(out)


def _lower_use(part: ToolCall) -> Json:
    given, residual = object_of(part), part.residual
    if part.id is not None and (residual is None or NAME not in residual):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}
    out = own(NAME, residual)
    out["type"], out["name"], out["input"] = "tool_use", part.name, given
    put(out, id=part.id)
    return done(out)


def _lower_result(part: ToolResult) -> Json:
    call, content = part.call, part.content
    if part.residual is None and part.error is None and part.value is None and call is not None and content:
        text = content[0]
        if len(content) == 1 and type(text) is Text and text.residual is None and text.citations is None:
            return {"type": "tool_result", "tool_use_id": call, "content": text.text}
        return {"type": "tool_result", "tool_use_id": call, "content": _lower_content(content)}
    out = own(NAME, part.residual)
    out["type"] = "tool_result"
    put(out, tool_use_id=part.call, is_error=part.error)
    if part.value is not None and not part.content:
        out["content"] = msgspec.json.encode(part.value).decode()
    elif part.content:
        out["content"] = _lower_content(part.content)
    return done(out)


def _lower_media(part: Media) -> Json | None:
    out = own(NAME, part.residual)
    source = dict(out.get("~source", {}))
    if part.medium not in ("image", "document"):
        return None
    if part.data is not None:
        text = out.get("~text", False)
        source["type"] = "text" if text else "base64"
        source["data"] = base64.b64decode(part.data).decode() if text else part.data
        put(source, media_type=part.type)
    elif part.url is not None:
        source["type"], source["url"] = "url", part.url
    else:
        source["type"] = "file"
        put(source, file_id=part.file)
    out["type"], out["source"] = part.medium, source
    if part.medium == "document":
        put(out, title=part.name)
    return done(out)


def _lower_refusal(part: Refusal) -> Json:
    return {"type": "text", "text": part.text}


def _lower_opaque(part: Opaque) -> Json | None:
    return None if part.residual is None else part.residual.get(NAME)


_LOWER: Final[dict[type, Callable[[Any], Json | None]]] = {
    Text: _lower_text,
    Reasoning: _lower_thought,
    Refusal: _lower_refusal,
    Media: _lower_media,
    ToolCall: _lower_use,
    ToolResult: _lower_result,
    Opaque: _lower_opaque,
}


# Tools and forms

_TOOL = frozenset(("name", "description", "input_schema", "strict"))


def _lift_tool(wire: Json) -> Tool:
    kind = wire.get("type")
    if kind is not None and kind != "custom":
        return Tool(type=str(kind), name=wire.get("name"), residual=rest(NAME, wire, {"name", "type"}) or {NAME: {}})
    name, description, schema = wire.get("name"), wire.get("description"), wire.get("input_schema")
    if len(wire) == 3 and name is not None and description is not None and schema is not None:
        return Tool(name=name, description=description, parameters=schema)
    strict, residual = wire.get("strict"), rest(NAME, wire, _TOOL)
    return Tool(name=name, description=description, parameters=schema, strict=strict, residual=residual)


_TEXT_SCHEMA: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def _lower_tool(tool: Tool) -> Json | None:
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


def _lift_choice(wire: Any) -> ToolChoice | None:
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


def _lower_choice(choice: ToolChoice) -> Json:
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


def _lift_thinking(wire: Any, effort: str | None) -> Thinking | None:
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


def _lower_output(request: ChatRequest, out: Json) -> None:
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


def _lift_format(wire: Any) -> Format | None:
    if wire is None:
        return None
    if as_object(wire, "output_config.format").get("type") != "json_schema":
        raise DialectError("is no format", field="output_config.format.type", value=wire.get("type"))
    return Format(type="schema", schema=wire.get("schema"), residual=rest(NAME, wire, {"type", "schema"}))


# Answers

_RESPONSE = frozenset(("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"))


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    if wire.get("type") == "error":
        return ChatResponse(
            choices=(), error=lift_error(wire.get("error")), residual=rest(NAME, wire, {"type", "error"})
        )
    residual = absent(NAME, rest(NAME, wire, _RESPONSE), wire, ("type", "role", "usage"))
    reason, usage = wire.get("stop_reason"), wire.get("usage")
    choice = Choice(
        message=Message(role="assistant", parts=tuple(_lift_content(wire.get("content"), "content"))),
        stop=lift_stop(reason),
        stop_sequence=wire.get("stop_sequence"),
        residual=stop_residual(wire, reason),
    )
    return ChatResponse(
        choices=(choice,),
        id=wire.get("id"),
        model=wire.get("model"),
        usage=None if usage is None else lift_usage(usage),
        residual=residual,
    )


def stop_residual(wire: Json, reason: Any) -> Residual | None:
    """Notes on how the end was said."""
    residual = absent(NAME, None, wire, ("stop_reason", "stop_sequence"))
    if reason is not None and STOP_WORDS.get(lift_stop(reason)) != reason:  # type: ignore[arg-type]
        residual = note(NAME, residual, stop_reason=reason)
    return residual


def lift_stop(reason: Any) -> Stop | None:
    return None if reason is None else STOPS.get(reason, "other")


def lower_stop(stop: Stop | None, said: Any) -> Any:
    return recoded(STOPS, STOP_WORDS, stop, said, "other", "end_turn")


def lower_response(response: ChatResponse) -> Json:
    """An answer of several samples gives its first."""
    out = own(NAME, response.residual)
    if response.error is not None:
        out["type"], out["error"] = "error", lower_error(response.error)
        return done(out)
    choice = response.choices[0] if response.choices else Choice(message=Message(role="assistant"))
    out["type"], out["role"] = "message", "assistant"
    out["content"] = lower_blocks(choice.message.parts)
    notes = own(NAME, choice.residual)
    out["stop_reason"] = lower_stop(choice.stop, notes.get("~stop_reason"))
    out["stop_sequence"] = choice.stop_sequence
    for key in notes.get("~absent", ()):
        del out[key]
    usage = response.usage
    if usage is not None or "usage" not in out:
        out["usage"] = lower_usage(Usage(input=0, output=0) if usage is None else usage)
    put(out, id=response.id, model=response.model)
    return done(out)


_USAGE = frozenset(("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))


def lift_usage(wire: Json) -> Usage:
    get = wire.get
    fresh, cached, written = get("input_tokens"), get("cache_read_input_tokens"), get("cache_creation_input_tokens")
    details, known = get("output_tokens_details"), _USAGE
    residual = rest(NAME, wire, known)
    reasoning = None
    if isinstance(details, dict):
        reasoning = details.get("thinking_tokens")
        left = {key: value for key, value in details.items() if value is None or key != "thinking_tokens"}
        residual = note(NAME, residual, details=left)
        del residual[NAME]["output_tokens_details"]
    return Usage(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output=get("output_tokens"), cached=cached, cache_written=written, reasoning=reasoning, residual=residual,
    )  # fmt: skip


def lower_usage(usage: Usage) -> Json:
    out = own(NAME, usage.residual)
    cached, written = usage.cached, usage.cache_written
    fresh = None if usage.input is None else max(0, usage.input - (cached or 0) - (written or 0))
    put(
        out, input_tokens=fresh, output_tokens=usage.output, cache_read_input_tokens=cached,
        cache_creation_input_tokens=written,
    )  # fmt: skip
    details = dict(out.get("~details", {}))
    put(details, thinking_tokens=usage.reasoning)
    if details or "~details" in out:
        out["output_tokens_details"] = details
    return done(out)


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    residual = absent(NAME, rest(NAME, wire, {"type", "message"}), wire, ("message",))
    return Failure(message=str(wire.get("message", "")), type=wire.get("type"), residual=residual)


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    put(out, type=error.type or "api_error")
    return done(out)
