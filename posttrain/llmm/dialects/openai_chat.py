"""OpenAI Chat Completions: requests and answers. Its stream is in `openai_chat_stream`.

A message of the wire is a message of the IR; tool messages that follow each other are joined. An assistant's parts
stand in the order reasoning, text, refusal, calls, which is all that this dialect can say of their order.
Reasoning has no field of the vendor's: `reasoning_content` and `reasoning` are those of vLLM, SGLang and DeepSeek,
`top_k` is vLLM's. Source: the types of the `openai` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.openai_usage import Counts
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
    Logprob,
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
    arguments_text,
)
from posttrain.llmm.ir.origin import Json, Residual

NAME: Final = "openai_chat"
_LISTED: Residual = {NAME: {"type": "text"}}  # a text that came as an entry of a list, with nothing else to it
_SILENT: Residual = {NAME: {"content": None}}  # calls without words
_ROLES = frozenset(("system", "developer", "user"))
_encode = msgspec.json.Encoder().encode
STOPS: dict[str, Stop] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "filter",
    "function_call": "tool_calls",
}
STOP_WORDS: dict[Stop, str] = {
    "end": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "filter": "content_filter",
    "refusal": "content_filter",
}

_SAMPLING = frozenset(
    ("temperature", "top_p", "top_k", "seed", "n", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs")
)
_REQUEST = frozenset(
    (*_SAMPLING, "messages", "model", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "stop",
     "response_format", "reasoning_effort", "stream", "user", "metadata")
)  # fmt: skip


def lift_request(wire: Json) -> ChatRequest:
    """Raises DialectError naming the field that is not of the dialect."""
    if "messages" not in wire:
        raise DialectError("is missing", field="messages", remedy="give a list of {role, content}")
    get, residual = wire.get, rest(NAME, wire, _REQUEST)
    limit = get("max_completion_tokens")
    if limit is None and isinstance(get("max_tokens"), int):
        limit = get("max_tokens")
        residual = note(NAME, residual, max_tokens=limit)
        del residual[NAME]["max_tokens"]
    stop = get("stop")
    if isinstance(stop, str):
        stop, residual = [stop], note(NAME, residual, stop=stop)
    tools, effort = get("tools"), get("reasoning_effort")
    return ChatRequest(
        messages=_lift_messages(as_list(wire["messages"], "messages")),
        model=get("model"),
        tools=None if tools is None else tuple(each(tools, "tools", _lift_tool)),
        tool_choice=_lift_choice(get("tool_choice"), get("parallel_tool_calls")),
        sampling=Sampling(
            max_tokens=limit,
            stop=None if stop is None else tuple(as_list(stop, "stop")),
            **{key: wire[key] for key in wire if key in _SAMPLING},
        ),
        format=_lift_format(get("response_format")),
        thinking=None if effort is None else Thinking(effort=effort),
        stream=get("stream"),
        user=get("user"),
        metadata=get("metadata"),
        residual=residual,
    )


def lower_request(request: ChatRequest) -> Json:
    out = own(NAME, request.residual)
    out["messages"] = _lower_messages(request.messages)
    _lower_sampling(request.sampling, out)
    if request.tools is not None:
        out["tools"] = [wire for tool in request.tools if (wire := _lower_tool(tool)) is not None]
    if request.tool_choice is not None:
        _lower_choice(request.tool_choice, out)
    if request.format is not None:
        out["response_format"] = _lower_format(request.format)
    if request.thinking is not None:
        put(out, reasoning_effort=request.thinking.effort)
    put(out, model=request.model, stream=request.stream, user=request.user, metadata=request.metadata)
    return out if request.residual is None else done(out)


def _lower_sampling(sampling: Sampling, out: Json) -> None:
    said: Json = msgspec.to_builtins(sampling)  # what is set, alone
    if (limit := said.pop("max_tokens", None)) is not None:
        out["max_tokens" if out.get("~max_tokens") is not None else "max_completion_tokens"] = limit
    if (stop := said.pop("stop", None)) is not None:
        text = out.get("~stop")
        out["stop"] = text if stop == (text,) else list(stop)
    out.update(said)


# Messages

_MESSAGE = frozenset(("role", "content", "name"))
_ASSISTANT = frozenset(("role", "content", "name", "tool_calls", "refusal", "reasoning_content", "reasoning",
                        "annotations"))  # fmt: skip
_TOOL_MESSAGE = frozenset(("role", "content", "tool_call_id"))


def _lift_messages(wires: list[Any]) -> tuple[Message, ...]:
    messages: list[Message] = []
    joins = False
    try:
        for wire in wires:
            role = wire.get("role") if type(wire) is dict else as_object(wire, "")
            if role == "tool":
                call, content = wire.get("tool_call_id"), wire.get("content")
                if len(wire) == 3 and type(content) is str and call is not None:
                    result = ToolResult(call=call, content=(Text(text=content),))
                else:
                    result = _lift_result(wire)
                messages.append(Message(role="tool", parts=(result,), joined=joins))
                joins = True
            elif role == "assistant":
                messages.append(lift_assistant(wire))
                joins = False
            else:
                messages.append(_lift_message(wire, role, joins))
                joins = role == "function"
    except DialectError as problem:
        raise problem.within(f"messages.{len(messages)}") from None
    return tuple(messages)


def _lift_message(wire: Json, role: Any, joins: bool) -> Message:
    if role not in _ROLES:
        if role != "function":
            raise DialectError("is no role", field="role", value=role)
        return Message(role="tool", parts=(Opaque(type="function", residual={NAME: wire}),), joined=joins)
    parts = _lift_content(wire.get("content"))
    if len(wire) == 2 and parts:
        return Message(role=role, parts=parts)
    return Message(role=role, parts=parts, name=wire.get("name"), residual=rest(NAME, wire, _MESSAGE))


def _lift_result(wire: Json) -> ToolResult:
    parts: Any = _lift_content(wire.get("content"))
    return ToolResult(call=wire.get("tool_call_id"), content=parts, residual=rest(NAME, wire, _TOOL_MESSAGE))


def lift_assistant(wire: Json) -> Message:
    """An assistant's message, of a request or an answer."""
    get = wire.get
    content, calls = get("content"), get("tool_calls")
    silent = content is None and "content" in wire
    if len(wire) == ("role" in wire) + (silent or type(content) is str) + bool(calls):  # words, calls, or both
        said: list[Part] = [] if content is None else [Text(text=content)]
        if calls:
            said += _lift_calls(calls)
        return Message(role="assistant", parts=tuple(said), residual=_SILENT if silent else None)
    return _lift_unusual(wire, content, calls)


def _lift_unusual(wire: Json, content: Any, calls: Any) -> Message:
    get, residual = wire.get, rest(NAME, wire, _ASSISTANT)
    parts: list[Part] = []
    for key in ("reasoning_content", "reasoning"):
        thought = get(key)
        if thought is not None and parts:
            residual = kept(NAME, residual, key, thought)
        elif thought is not None:
            form = None if key == "reasoning_content" else {NAME: {"~key": key}}
            parts.append(Reasoning(text=as_text(thought, key), residual=form))
    annotations = get("annotations")
    if content is not None:
        parts.extend(_lift_content(content))
        residual = residual if content != [] else kept(NAME, residual, "content", [])
    if annotations is not None:
        _cite(parts, as_list(annotations, "annotations"))
        if not any(isinstance(part, Text) for part in parts):
            residual = kept(NAME, residual, "annotations", annotations)
    if (refusal := get("refusal")) is not None:
        parts.append(Refusal(text=as_text(refusal, "refusal")))
    if calls is not None:
        parts.extend(_lift_calls(calls))
        if not calls:
            residual = kept(NAME, residual, "tool_calls", [])
    return Message(role="assistant", parts=tuple(parts), name=get("name"), residual=residual)


def _cite(parts: list[Part], annotations: list[Any]) -> None:
    for index, part in enumerate(parts):
        if isinstance(part, Text):
            parts[index] = Text(
                text=part.text, residual=part.residual, citations=tuple(map(_lift_annotation, annotations))
            )
            return


def _lift_annotation(wire: Json) -> Citation:
    inner = wire.get("url_citation")
    if wire.get("type") != "url_citation" or not isinstance(inner, dict) or len(wire) != 2:
        return Citation(residual={NAME: {"~whole": wire}})
    return Citation(
        url=inner.get("url"), title=inner.get("title"), start=inner.get("start_index"), end=inner.get("end_index"),
        residual=rest(NAME, inner, {"url", "title", "start_index", "end_index"}),
    )  # fmt: skip


def _lower_annotation(citation: Citation) -> Json:
    inner = own(NAME, citation.residual)
    if (whole := inner.get("~whole")) is not None:
        return whole
    put(inner, url=citation.url, title=citation.title, start_index=citation.start, end_index=citation.end)
    return {"type": "url_citation", "url_citation": done(inner)}


def _lift_content(content: Any) -> tuple[Part, ...]:
    if type(content) is str:
        return (Text(text=content),)
    return () if content is None else tuple(each(content, "content", _lift_part))


def _lift_part(wire: Json) -> Part:
    kind = wire.get("type")
    if kind == "text":
        if len(wire) == 2:
            return Text(text=as_text(wire.get("text"), "text"), residual=_LISTED)
        return Text(text=as_text(wire.get("text"), "text"), residual=rest(NAME, wire, {"text"}))
    if kind == "refusal":
        return Refusal(text=as_text(wire.get("refusal"), "refusal"), residual=rest(NAME, wire, {"refusal"}))
    if kind in _MEDIA and isinstance(inner := wire.get(kind), dict):
        read, known = _MEDIA[kind]
        left = rest(NAME, wire, {kind, "type"})
        if beside := rest(NAME, inner, known):
            left = note(NAME, left, inner=beside[NAME])
        return read(inner, left)
    return Opaque(type=str(kind), residual={NAME: wire})


def _lift_image(inner: Json, residual: Residual | None) -> Part:
    url = inner.get("url")
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        head, _, data = url.partition(";base64,")
        return Media(medium="image", type=head[5:], data=data, detail=inner.get("detail"), residual=residual)
    return Media(medium="image", url=url, detail=inner.get("detail"), residual=residual)


def _lift_audio(inner: Json, residual: Residual | None) -> Part:
    form = inner.get("format")
    return Media(
        medium="audio", data=inner.get("data"), type=None if form is None else f"audio/{form}", residual=residual
    )


def _lift_file(inner: Json, residual: Residual | None) -> Part:
    return Media(
        medium="document", data=inner.get("file_data"), file=inner.get("file_id"), name=inner.get("filename"),
        residual=residual,
    )  # fmt: skip


_MEDIA: Final[dict[str, Any]] = {
    "image_url": (_lift_image, {"url", "detail"}),
    "input_audio": (_lift_audio, {"data", "format"}),
    "file": (_lift_file, {"file_data", "file_id", "filename"}),
}


def _lower_media(part: Media) -> Json:
    out = own(NAME, part.residual)
    inner = out.get("~inner", {}).copy()
    if part.medium == "image":
        kind = "image_url"
        url = part.url if part.data is None else f"data:{part.type or 'image/png'};base64,{part.data}"
        put(inner, url=url, detail=part.detail)
    elif part.medium == "audio":
        kind = "input_audio"
        put(inner, data=part.data, format=None if part.type is None else part.type.removeprefix("audio/"))
    else:
        kind = "file"
        put(inner, file_data=part.data, file_id=part.file, filename=part.name)
    out["type"], out[kind] = kind, inner
    return done(out)


def _lift_calls(wires: Any) -> list[ToolCall]:
    found: list[ToolCall] = []
    try:
        for wire in wires:
            inner, id_ = wire["function"], wire["id"]
            name, text = inner["name"], inner["arguments"]
            usual = len(wire) == 3 and len(inner) == 2 and wire["type"] == "function" and id_ is not None
            if not usual or type(name) is not str or type(text) is not str:
                break
            found.append(ToolCall(name=name, arguments=text, id=id_))
        else:
            return found
    except (LookupError, TypeError):
        pass
    return each(wires, "tool_calls", _lift_call)


def _lift_call(wire: Json) -> ToolCall:
    kind = wire.get("type", "function")
    key, text = ("custom", "input") if kind == "custom" else ("function", "arguments")
    inner = as_object(wire.get(key), key)
    residual = rest(NAME, wire, {"id", "type", key})
    if len(inner) > 2 and (beside := rest(NAME, inner, {"name", text})):
        residual = note(NAME, residual, inner=beside[NAME])
    if "type" not in wire:
        residual = absent(NAME, residual, wire, ("type",))
    return ToolCall(
        name=as_text(inner.get("name"), f"{key}.name"),
        arguments=as_text(inner.get(text), f"{key}.{text}"),
        id=wire.get("id"),
        free=kind == "custom",
        residual=residual,
    )


def lower_call(call: ToolCall) -> Json:
    out = own(NAME, call.residual)
    key, text = ("custom", "input") if call.free else ("function", "arguments")
    out["type"] = key
    out[key] = {"name": call.name, text: arguments_text(call), **out.get("~inner", {})}
    put(out, id=call.id)
    return done(out)


def _lower_content(parts: Sequence[Part]) -> Any:
    """A string where a single text says no more than that; else a list."""
    if len(parts) == 1 and type(part := parts[0]) is Text and _bare(part):
        return part.text
    return [wire for part in parts if (wire := _lower_part(part)) is not None]


def _lower_part(part: Part) -> Json | None:
    if isinstance(part, Text):
        out = own(NAME, part.residual)
        out["type"], out["text"] = "text", part.text
        return out
    if isinstance(part, Media):
        return _lower_media(part)
    if isinstance(part, Refusal):
        out = own(NAME, part.residual)
        out["type"], out["refusal"] = "refusal", part.text
        return out
    if isinstance(part, Opaque):
        return None if part.residual is None else part.residual.get(NAME)
    return None


def _lower_messages(messages: tuple[Message, ...]) -> list[Json]:
    found: list[Json] = []
    for message in messages:
        role, parts = message.role, message.parts
        if role == "assistant":
            found.append(lower_assistant(message))
        elif role == "tool":
            for part in parts:
                if type(part) is ToolResult:
                    found.append(_lower_result(part))
                elif (wire := _lower_part(part)) is not None:
                    found.append(wire)
        elif message.residual is None and message.name is None:
            found.append({"role": role, "content": _lower_content(parts)})
        else:
            out = own(NAME, message.residual)
            out["role"] = role
            if parts or "content" not in out:
                out["content"] = _lower_content(parts)
            put(out, name=message.name)
            found.append(done(out))
    return found


def _lower_result(result: ToolResult) -> Json:
    content, residual, call = result.content, result.residual, result.call
    if residual is None and result.value is None and call is not None and len(content) == 1:
        text = content[0]
        if type(text) is Text and (text.residual is None or NAME not in text.residual):
            return {"role": "tool", "tool_call_id": call, "content": text.text}
    out = own(NAME, residual)
    out["role"] = "tool"
    put(out, tool_call_id=call)
    if result.value is not None and not content:
        out["content"] = msgspec.json.encode(result.value).decode()
    elif content or "content" not in out:
        out["content"] = _lower_content(content) if content else []
    return done(out)


def lower_assistant(message: Message, *, flat: bool = False) -> Json:
    """An assistant's message. Reasoning is written where vLLM reads it; `flat`: texts are joined to one, as an answer
    must have it."""
    residual = message.residual
    out: Json = {} if residual is None else own(NAME, residual)
    out["role"] = "assistant"
    content: list[Part] = []
    calls: list[Json] = []
    part: Any
    for part in message.parts:
        kind = type(part)
        if kind is ToolCall:
            given, id_, left = part.arguments, part.id, part.residual
            if (left is None or NAME not in left) and id_ is not None and not part.free:
                given = given if type(given) is str else _encode(given).decode()
                calls.append({"id": id_, "type": "function", "function": {"name": part.name, "arguments": given}})
            else:
                calls.append(lower_call(part))
        elif kind is Text:
            content.append(part)
            if part.citations is not None:
                out.setdefault("annotations", []).extend(map(_lower_annotation, part.citations))
        elif kind is Reasoning:
            _lower_thought(part, out)
        elif kind is Refusal and _bare(part):
            out["refusal"] = part.text
        elif kind is not ToolResult:
            content.append(part)
    if content:
        flat = flat and all(type(part) is Text and _bare(part) for part in content)
        out["content"] = "".join(part.text for part in content) if flat else _lower_content(content)  # type: ignore
    if calls:
        out["tool_calls"] = calls
    if message.name is not None:
        out["name"] = message.name
    return out if residual is None else done(out)


def _lower_thought(part: Reasoning, out: Json) -> None:
    key = "reasoning_content"
    if part.residual is not None:
        key = part.residual.get(NAME, {}).get("~key", key)
    if part.text is not None:
        before = out.get(key) if isinstance(out.get(key), str) else ""
        out[key] = f"{before}{part.text}"


def _bare(part: Part) -> bool:
    return part.residual is None or NAME not in part.residual


# Tools and forms


_FUNCTION = frozenset(("name", "description", "parameters", "strict"))


def _lift_tool(wire: Json) -> Tool:
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


def _lower_tool(tool: Tool) -> Json | None:
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


def _lift_choice(wire: Any, parallel: Any) -> ToolChoice | None:
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


def _lower_choice(choice: ToolChoice, out: Json) -> None:
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


def _lift_format(wire: Any) -> Format | None:
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


def _lower_format(form: Format) -> Json:
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


# Answers

_RESPONSE = frozenset(("id", "model", "created", "choices", "usage", "object", "error"))
_CHOICE = frozenset(("index", "message", "finish_reason", "logprobs"))


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    residual = rest(NAME, wire, _RESPONSE)
    if wire.get("object") != "chat.completion":
        residual = absent(NAME, residual, wire, ("object",))
        residual = residual if "object" not in wire else note(NAME, residual, object=wire["object"])
    usage, error = wire.get("usage"), wire.get("error")
    choices = wire.get("choices")
    if choices is None:
        residual = absent(NAME, residual, wire, ("choices",))
    return ChatResponse(
        choices=() if choices is None else tuple(each(choices, "choices", _lift_sample)),
        id=wire.get("id"),
        model=wire.get("model"),
        created=wire.get("created"),
        usage=None if usage is None else lift_usage(usage),
        error=None if error is None else lift_error(error),
        residual=residual,
    )


def lower_response(response: ChatResponse) -> Json:
    out = own(NAME, response.residual)
    out["object"] = out.get("~object", "chat.completion")
    out["choices"] = [_lower_sample(choice) for choice in response.choices]
    put(out, id=response.id, model=response.model, created=_whole(response.created))
    if response.usage is not None:
        out["usage"] = lower_usage(response.usage)
    if response.error is not None:
        out["error"] = lower_error(response.error)
    return done(out)


def _whole(seconds: float | None) -> Any:
    return int(seconds) if isinstance(seconds, float) else seconds


def _lift_sample(wire: Json) -> Choice:
    said = as_object(wire.get("message"), "message")
    try:
        message = lift_assistant(said)
    except DialectError as problem:
        raise problem.within("message") from None
    if missing := [key for key in ("content", "refusal") if key not in said]:
        message = msgspec.structs.replace(message, residual=note(NAME, message.residual, absent=missing))
    reason, residual = wire.get("finish_reason"), rest(NAME, wire, _CHOICE)
    stop = lift_stop(reason)
    if reason is not None and STOP_WORDS.get(stop) != reason:  # type: ignore[arg-type]
        residual = note(NAME, residual, finish_reason=reason)
    logprobs, left = lift_logprobs(wire.get("logprobs"))
    if left is not None:
        residual = note(NAME, residual, logprobs=left)
    residual = absent(NAME, residual, wire, ("index", "finish_reason", "logprobs"))
    return Choice(message=message, index=wire.get("index", 0), stop=stop, logprobs=logprobs, residual=residual)


def lift_stop(reason: Any) -> Stop | None:
    return None if reason is None else STOPS.get(reason, "other")


def lower_stop(stop: Stop | None, said: Any) -> Any:
    return recoded(STOPS, STOP_WORDS, stop, said, "other", "stop")


def lift_logprobs(wire: Any) -> tuple[tuple[Logprob, ...] | None, Json | None]:
    """Those of the content, and what else was there."""
    if not isinstance(wire, dict):
        return None, None
    content = wire.get("content")
    left = {key: value for key, value in wire.items() if value is None or key != "content"}
    found = None if content is None else tuple(map(lift_logprob, content))
    return found, left if left or found is None else None


def lower_logprobs(logprobs: tuple[Logprob, ...] | None, left: Json | None) -> Json | None:
    if logprobs is None and left is None:
        return None
    out = dict(left) if left is not None else {}
    if logprobs is not None:
        out["content"] = [lower_logprob(each_) for each_ in logprobs]
    return out


def lift_logprob(wire: Json) -> Logprob:
    """One token of OpenAI's, with its likeliest others."""
    raw, top = wire.get("bytes"), wire.get("top_logprobs")
    return Logprob(
        token=wire["token"],
        logprob=wire.get("logprob"),
        bytes=None if raw is None else tuple(raw),
        top=None if top is None else tuple(map(lift_logprob, top)),
        residual=rest(NAME, wire, {"token", "logprob", "bytes", "top_logprobs"}),
    )


def lower_logprob(one: Logprob) -> Json:
    out = own(NAME, one.residual)
    out["token"] = one.token
    put(
        out, logprob=one.logprob, bytes=None if one.bytes is None else list(one.bytes),
        top_logprobs=None if one.top is None else [lower_logprob(each_) for each_ in one.top],
    )  # fmt: skip
    return out


def _lower_sample(choice: Choice) -> Json:
    out = own(NAME, choice.residual)
    message = lower_assistant(choice.message, flat=True)
    gone = choice.message.residual.get(NAME, {}).get("~absent", ()) if choice.message.residual else ()
    for key in ("content", "refusal"):
        if key not in message and key not in gone:
            message[key] = None
    out["message"], out["index"] = message, choice.index
    out["finish_reason"] = lower_stop(choice.stop, out.get("~finish_reason"))
    out["logprobs"] = lower_logprobs(choice.logprobs, out.get("~logprobs"))
    return done(out)


_COUNTS: Final = Counts(NAME, "prompt_tokens", "completion_tokens", whole=False)
lift_usage, lower_usage = _COUNTS.lift, _COUNTS.lower


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    code = wire.get("code")
    return Failure(
        message=str(wire.get("message", "")),
        type=wire.get("type"),
        code=None if code is None else str(code),
        residual=absent(NAME, rest(NAME, wire, {"message", "type", "code"}), wire, ("message",)),
    )


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    put(out, type=error.type, code=error.code)
    return done(out)
