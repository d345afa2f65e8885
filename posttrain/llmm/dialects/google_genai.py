"""Google GenAI, `generateContent`: requests and answers. Its stream is in `google_genai_stream`.

`systemInstruction` is a leading message of the role system. Function calls and responses may come without ids: they
stay without, and are matched by name and order. A function's response `{"output": text}` or `{"error": text}` is a
result of text; any other object is a result's `value`. Usage: the vendor counts thoughts apart from the answer, the
IR as a part of it. Keys are written in camel case, as the SDK writes them. Source: the types of `google-genai`.
"""

from __future__ import annotations

from typing import Any, Final

from posttrain.llmm.dialects.wire import (
    DialectError,
    absent,
    as_list,
    as_object,
    done,
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
    Failure,
    Format,
    Logprob,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Role,
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

NAME: Final = "google_genai"
_SNAKE = ("system_instruction", "generation_config", "tool_config", "safety_settings", "cached_content")
_SAMPLING: Final = {
    "maxOutputTokens": "max_tokens", "temperature": "temperature", "topP": "top_p", "topK": "top_k",
    "candidateCount": "n", "stopSequences": "stop", "seed": "seed", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty", "responseLogprobs": "logprobs", "logprobs": "top_logprobs",
}  # fmt: skip
_CONFIG = frozenset((*_SAMPLING, "responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig"))
_REQUEST = frozenset(("model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"))
STOPS: dict[str, Stop] = {
    "STOP": "end", "MAX_TOKENS": "length", "SAFETY": "filter", "RECITATION": "filter", "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter", "SPII": "filter", "IMAGE_SAFETY": "filter", "IMAGE_PROHIBITED_CONTENT": "filter",
    "IMAGE_RECITATION": "filter", "MODEL_ARMOR": "filter",
}  # fmt: skip
STOP_WORDS: dict[Stop, str] = {"end": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY", "refusal": "SAFETY",
                               "error": "OTHER", "other": "OTHER"}  # fmt: skip


def lift_request(wire: Json) -> ChatRequest:
    """Raises DialectError naming the field that is not of the dialect. `model` may be given beside the vendor's own
    fields: on the wire it is in the path."""
    for key in _SNAKE:
        if key in wire:
            raise DialectError("is written in camel case here", field=key, remedy=f"write {_camel(key)}")
    get, residual = wire.get, rest(NAME, wire, _REQUEST)
    messages: list[Message] = []
    if (system := get("systemInstruction")) is not None:
        lifted = _lift_parts(as_object(system, "systemInstruction").get("parts"), "systemInstruction.parts")
        left = absent(NAME, rest(NAME, system, {"parts"}), system, ("parts",))
        messages.append(Message(role="system", parts=lifted, residual=left))
    if (contents := get("contents")) is None:
        residual = absent(NAME, residual, wire, ("contents",))
    else:
        for index, content in enumerate(as_list(contents, "contents")):
            _lift_content(content, index, messages)
    config, form, thinking, sampling = get("generationConfig"), None, None, Sampling()
    if config is not None:
        left = {key: value for key, value in config.items() if value is None or key not in _CONFIG}
        form = _lift_format(config, left)
        thinking = _lift_thinking(config.get("thinkingConfig"))
        given = {field: config[key] for key, field in _SAMPLING.items() if key in config}
        if given.get("stop") is not None:
            given["stop"] = tuple(given["stop"])
        sampling = Sampling(**given)
        if left or not config:
            residual = kept(NAME, residual, "generationConfig", left)
    choice = get("toolConfig")
    if choice is not None:
        left = {k: v for k, v in choice.items() if v is None or k != "functionCallingConfig"}
        if left or not choice:
            residual = kept(NAME, residual, "toolConfig", left)
        choice = _lift_choice(choice.get("functionCallingConfig"))
    tools = get("tools")
    return ChatRequest(
        messages=tuple(messages), model=get("model"), sampling=sampling, format=form, thinking=thinking,
        tools=None if tools is None else _lift_tools(as_list(tools, "tools")), tool_choice=choice,
        residual=residual,
    )  # fmt: skip


def _camel(key: str) -> str:
    head, *more = key.split("_")
    return head + "".join(word.capitalize() for word in more)


def lower_request(request: ChatRequest) -> Json:
    out = own(NAME, request.residual)
    messages = request.messages
    leading = 0
    while leading < len(messages) and messages[leading].role in ("system", "developer"):
        leading += 1
    if leading:
        system = own(NAME, messages[0].residual)
        parts = [wire for message in messages[:leading] for wire in lower_parts(message.parts)]
        if parts or "parts" not in system:
            system["parts"] = parts
        out["systemInstruction"] = done(system)
    out["contents"] = _lower_messages(messages[leading:])
    config = dict(out.get("generationConfig") or {})
    for key, field in _SAMPLING.items():
        if (value := getattr(request.sampling, field)) is not None:
            config[key] = list(value) if field == "stop" else value
    if request.format is not None:
        _lower_format(request.format, config)
    if request.thinking is not None:
        _lower_thinking(request.thinking, config)
    if config:
        out["generationConfig"] = config
    if request.tools is not None:
        out["tools"] = _lower_tools(request.tools)
    if request.tool_choice is not None and (choice := _lower_choice(request.tool_choice)) is not None:
        out["toolConfig"] = {**(out.get("toolConfig") or {}), "functionCallingConfig": choice}
    put(out, model=request.model)
    return done(out)


# Contents

_ROLES: Final[dict[Any, Role]] = {"user": "user", "model": "assistant"}
_ROLE_WORDS: Final = {"user": "user", "tool": "user", "assistant": "model", "system": "user", "developer": "user"}


def _lift_content(wire: Any, index: int, into: list[Message]) -> None:
    said = as_object(wire, f"contents.{index}").get("role")
    role, parts, residual = lift_message(wire, f"contents.{index}", _ROLES.get(said, "user"))
    if role != "assistant" and any(type(part) is ToolResult for part in parts):
        joined = False
        for run in _runs(parts):
            kind: Role = "tool" if type(run[0]) is ToolResult else "user"
            into.append(Message(role=kind, parts=run, joined=joined, residual=residual))
            joined, residual = True, None
    else:
        into.append(Message(role=role, parts=parts, residual=residual))


def _runs(parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    """Each tool result by itself, and what stands between them."""
    runs: list[tuple[Part, ...]] = []
    for part in parts:
        if type(part) is not ToolResult and runs and type(runs[-1][0]) is not ToolResult:
            runs[-1] = (*runs[-1], part)
        else:
            runs.append((part,))
    return runs


def lift_message(wire: Json, field: str, role: Role) -> tuple[Role, tuple[Part, ...], Residual | None]:
    """A content's parts, with a note on how its role was said."""
    residual = absent(NAME, rest(NAME, wire, {"role", "parts"}), wire, ("role", "parts"))
    if wire.get("role") is not None and _ROLE_WORDS[role] != wire["role"]:
        residual = note(NAME, residual, role=wire["role"])
    return role, _lift_parts(wire.get("parts"), f"{field}.parts"), residual


def _lift_parts(parts: Any, field: str) -> tuple[Part, ...]:
    if parts is None:
        return ()
    return tuple(lift_part(as_object(part, f"{field}.{i}")) for i, part in enumerate(as_list(parts, field)))


def lift_part(wire: Json) -> Part:
    """One part of a content."""
    signature = wire.get("thoughtSignature")
    if isinstance(text := wire.get("text"), str):
        if wire.get("thought") is True:
            left = rest(NAME, wire, {"text", "thought", "thoughtSignature"}) if len(wire) > 2 else None
            return Reasoning(text=text, signature=signature, residual=left)
        left = rest(NAME, wire, {"text", "thoughtSignature"}) if len(wire) > 1 else None
        return Text(text=text, signature=signature, residual=left)
    if isinstance(call := wire.get("functionCall"), dict) and isinstance(call.get("name"), str):
        left = rest(NAME, wire, {"functionCall", "thoughtSignature"})
        beside = rest(NAME, call, {"name", "args", "id"})
        missing = call.get("args") is None
        if beside or missing:
            left = note(NAME, left, inner=beside[NAME] if beside else {}, empty=missing)
        return ToolCall(
            name=call["name"], arguments=call.get("args") or {}, id=call.get("id"), signature=signature, residual=left
        )
    if isinstance(answer := wire.get("functionResponse"), dict):
        return _lift_result(wire, answer)
    for key, address in (("inlineData", "data"), ("fileData", "fileUri")):
        if isinstance(inner := wire.get(key), dict):
            return _lift_media(wire, inner, key, address)
    return Opaque(type=next((key for key in wire if key != "thoughtSignature"), ""), residual={NAME: wire})


def _lift_result(wire: Json, answer: Json) -> Part:
    residual = rest(NAME, wire, {"functionResponse"})
    value, error = answer.get("response"), None
    content: tuple[Any, ...] = ()
    match value:
        case {"output": str(text), **more} if not more:
            value, content = None, (Text(text=text),)
        case {"error": str(text), **more} if not more:
            value, error, content = None, True, (Text(text=text),)
    if (parts := answer.get("parts")) is not None:
        media = _lift_parts(parts, "functionResponse.parts")
        residual = note(NAME, residual, parts=len(parts))
        content = (*content, *media)
    if beside := rest(NAME, answer, {"id", "name", "response", "parts"}):
        residual = note(NAME, residual, inner=beside[NAME])
    if "response" not in answer or answer["response"] is None:
        residual = note(NAME, residual, silent=True)
    return ToolResult(
        call=answer.get("id"), name=answer.get("name"), content=content, value=value, error=error, residual=residual
    )


def _lift_media(wire: Json, inner: Json, key: str, address: str) -> Part:
    residual = rest(NAME, wire, {key, "thoughtSignature"})
    if beside := rest(NAME, inner, {"mimeType", "displayName", address}):
        residual = note(NAME, residual, inner=beside[NAME])
    kind = inner.get("mimeType")
    family = str(kind).partition("/")[0]
    where = {"data" if address == "data" else "url": inner.get(address)}
    if key == "inlineData" and inner.get(address) is None:
        residual = note(NAME, residual, inline=True)
    return Media(
        medium=family if family in ("image", "audio", "video") else "document",  # type: ignore[arg-type]
        type=kind, name=inner.get("displayName"), signature=wire.get("thoughtSignature"), residual=residual, **where,
    )  # fmt: skip


def _lower_messages(messages: tuple[Message, ...]) -> list[Json]:
    found: list[Json] = []
    for message in messages:
        parts = lower_parts(message.parts)
        if message.joined and found and found[-1].get("role") in (_ROLE_WORDS[message.role], "function", None):
            found[-1].setdefault("parts", []).extend(parts)
        else:
            found.append(lower_message(message, parts))
    return found


def lower_message(message: Message, parts: list[Json]) -> Json:
    if message.residual is None:
        return {"role": _ROLE_WORDS[message.role], "parts": parts}
    out = own(NAME, message.residual)
    role = _ROLE_WORDS[message.role]
    if "role" not in out or message.role == "assistant":
        out["role"] = out.get("~role", role)
    if parts or "parts" not in out:
        out["parts"] = parts
    return done(out)


def lower_parts(parts: tuple[Part, ...]) -> list[Json]:
    found: list[Json] = []
    wire: Json | None
    for part in parts:
        kind = type(part)
        wire = _SHORT[kind](part) if kind in _SHORT else _lower_part(part)
        if wire is not None:
            found.append(wire)
    return found


def _lower_part(part: Part) -> Json | None:
    out = own(NAME, part.residual)
    if isinstance(part, Text):
        out["text"] = part.text
    elif isinstance(part, Refusal):
        return {"text": part.text}
    elif isinstance(part, Reasoning):
        if part.text is None:
            return None
        out["text"], out["thought"] = part.text, True
    elif isinstance(part, ToolCall):
        inner = dict(out.get("~inner", {}))
        put(inner, id=part.id)
        inner["name"] = part.name
        arguments = object_of(part)
        if arguments or not out.get("~empty"):
            inner["args"] = arguments
        out["functionCall"] = inner
    elif isinstance(part, ToolResult):
        return _lower_result(part, out)
    elif isinstance(part, Media):
        inner = dict(out.get("~inner", {}))
        put(inner, mimeType=part.type, displayName=part.name)
        if part.data is not None or out.get("~inline"):
            put(inner, data=part.data)
            out["inlineData"] = inner
        else:
            put(inner, fileUri=part.url or part.file)
            out["fileData"] = inner
    else:
        return None if part.residual is None else part.residual.get(NAME)
    put(out, thoughtSignature=part.signature)
    return done(out)


def _short_text(part: Text) -> Json | None:
    usual = part.signature is None and (part.residual is None or NAME not in part.residual)
    return {"text": part.text} if usual else _lower_part(part)


def _short_call(part: ToolCall) -> Json | None:
    id_, left = part.id, part.residual
    if (left is not None and NAME in left) or part.free or part.signature is not None or id_ is None:
        return _lower_part(part)
    return {"functionCall": {"id": id_, "name": part.name, "args": object_of(part)}}


def _short_result(part: ToolResult) -> Json | None:
    content, call, name = part.content, part.call, part.name
    usual = part.residual is None and part.value is None and call is not None and name is not None
    if not usual or len(content) != 1 or type(text := content[0]) is not Text:
        return _lower_part(part)
    said = {"error" if part.error else "output": text.text}
    return {"functionResponse": {"id": call, "name": name, "response": said}}


# What most parts are, without a look at what they might be.
_SHORT: Final[dict[type, Any]] = {Text: _short_text, ToolCall: _short_call, ToolResult: _short_result}


def _lower_result(part: ToolResult, out: Json) -> Json:
    inner = dict(out.get("~inner", {}))
    put(inner, id=part.call, name=part.name)
    texts = [each_.text for each_ in part.content if isinstance(each_, Text)]
    media = [each_ for each_ in part.content if not isinstance(each_, Text)]
    if out.get("~parts") is not None and not media:
        inner["parts"] = lower_parts(part.content[len(part.content) - out["~parts"] :] if out["~parts"] else ())
        texts = texts[: len(part.content) - out["~parts"]]
    elif media:
        inner["parts"] = lower_parts(tuple(media))
    if part.value is not None:
        inner["response"] = part.value
    elif texts or (not media and not out.get("~silent")):
        inner["response"] = {"error" if part.error else "output": "".join(texts)}
    out["functionResponse"] = inner
    return done(out)


# Tools and forms


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


def _lift_tools(tools: list[Any]) -> tuple[Tool, ...]:
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


def _lower_tools(tools: tuple[Tool, ...]) -> list[Json]:
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


def _lift_choice(wire: Any) -> ToolChoice | None:
    if wire is None:
        return None
    said = as_object(wire, "toolConfig.functionCallingConfig").get("mode")
    mode, names = _MODES.get(str(said)), wire.get("allowedFunctionNames")
    known = {"allowedFunctionNames"} if mode is None else {"mode", "allowedFunctionNames"}
    residual = rest(NAME, wire, known) or {NAME: {}}
    if mode == "required" and names is not None and len(names) == 1:
        mode = "named"
    return ToolChoice(mode=mode, names=None if names is None else tuple(names), residual=residual)  # type: ignore


def _lower_choice(choice: ToolChoice) -> Json | None:
    out = own(NAME, choice.residual)
    if choice.mode is None and choice.names is None and (choice.residual is None or NAME not in choice.residual):
        return None
    if choice.mode is not None:
        out["mode"] = _MODE_WORDS[choice.mode]
    put(out, allowedFunctionNames=None if choice.names is None else list(choice.names))
    return done(out)


def _lift_thinking(wire: Any) -> Thinking | None:
    if wire is None:
        return None
    level = as_object(wire, "generationConfig.thinkingConfig").get("thinkingLevel")
    usual = isinstance(level, str) and level == level.lower().upper()
    known = {"thinkingBudget", "thinkingLevel"} if usual else {"thinkingBudget"}
    return Thinking(
        effort=str(level).lower() if usual else None, budget=wire.get("thinkingBudget"),
        residual=rest(NAME, wire, known) or {NAME: {}},
    )  # fmt: skip


def _lower_thinking(thinking: Thinking, config: Json) -> None:
    out = own(NAME, thinking.residual)
    put(out, thinkingBudget=thinking.budget, thinkingLevel=None if thinking.effort is None else thinking.effort.upper())
    if thinking.enabled is False and thinking.budget is None:
        out["thinkingBudget"] = 0
    if out or (thinking.residual is not None and NAME in thinking.residual):
        config["thinkingConfig"] = done(out)


def _lift_format(config: Json, left: Json) -> Format | None:
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


def _lower_format(form: Format, config: Json) -> None:
    notes = own(NAME, form.residual)
    mime = "text/plain" if form.type == "text" else "application/json"
    mime = notes.get("~mime", mime) if form.type == "schema" else mime
    if mime is not None:
        config.setdefault("responseMimeType", mime)
    if form.schema is not None:
        raw = notes.get("~schema")
        same = raw is not None and json_schema(raw) == form.schema
        config["responseSchema" if same else "responseJsonSchema"] = raw if same else form.schema


# Answers

_RESPONSE = frozenset(("candidates", "usageMetadata", "modelVersion", "responseId", "error"))
_CANDIDATE = frozenset(("content", "finishReason", "index", "logprobsResult"))


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    residual = absent(NAME, rest(NAME, wire, _RESPONSE), wire, ("candidates",))
    candidates, usage, error = wire.get("candidates"), wire.get("usageMetadata"), wire.get("error")
    listed = [] if candidates is None else as_list(candidates, "candidates")
    choices = tuple(_lift_candidate(as_object(each_, f"candidates.{i}"), i) for i, each_ in enumerate(listed))
    return ChatResponse(
        choices=choices, id=wire.get("responseId"), model=wire.get("modelVersion"),
        usage=None if usage is None else lift_usage(usage), error=None if error is None else lift_error(error),
        residual=residual,
    )  # fmt: skip


def _lift_candidate(wire: Json, place: int) -> Choice:
    residual = absent(NAME, rest(NAME, wire, _CANDIDATE), wire, ("index", "content"))
    content, message = wire.get("content"), Message(role="assistant")
    if content is not None:
        _, parts, left = lift_message(as_object(content, "candidates.content"), "candidates.content", "assistant")
        message = Message(role="assistant", parts=parts, residual=left)
    reason = wire.get("finishReason")
    stop = lift_stop(reason, message.parts)
    if reason is not None and lower_stop(stop, None) != reason:
        residual = note(NAME, residual, finishReason=reason)
    logprobs, left = _lift_logprobs(wire.get("logprobsResult"))
    if left is not None:
        residual = note(NAME, residual, logprobs=left)
    return Choice(message=message, index=wire.get("index") or place, stop=stop, logprobs=logprobs, residual=residual)


def lift_stop(reason: Any, parts: tuple[Part, ...]) -> Stop | None:
    """This vendor says STOP after calls as well."""
    if reason == "STOP" and any(isinstance(part, ToolCall) for part in parts):
        return "tool_calls"
    return None if reason is None else STOPS.get(reason, "other")


def lower_stop(stop: Stop | None, said: Any) -> Any:
    return recoded(STOPS, STOP_WORDS, stop, said, "other", "STOP")


def _lift_logprobs(wire: Any) -> tuple[tuple[Logprob, ...] | None, Json | None]:
    if not isinstance(wire, dict):
        return None, None
    chosen, top = wire.get("chosenCandidates"), wire.get("topCandidates")
    if chosen is None:
        return None, wire
    left = {k: v for k, v in wire.items() if v is None or k not in ("chosenCandidates", "topCandidates")}
    others: list[Any] = [None] * len(chosen)
    listed: list[Json] = top or []
    plain = all(set(each_) == {"candidates"} and each_["candidates"] is not None for each_ in listed)
    if top is not None and plain and len(listed) == len(chosen):
        others = [tuple(map(_lift_logprob, each_["candidates"])) for each_ in listed]
    elif top is not None:
        left["topCandidates"] = top
    found = tuple(_lift_logprob(one, more) for one, more in zip(chosen, others, strict=True))
    if top == []:
        left["topCandidates"] = []
    return found, left


def _lift_logprob(wire: Json, top: tuple[Logprob, ...] | None = None) -> Logprob:
    residual = absent(NAME, rest(NAME, wire, {"token", "tokenId", "logProbability"}), wire, ("token",))
    return Logprob(
        token=wire.get("token") or "", logprob=wire.get("logProbability"), id=wire.get("tokenId"), top=top,
        residual=residual,
    )  # fmt: skip


def _lower_logprobs(logprobs: tuple[Logprob, ...] | None, left: Json | None) -> Json | None:
    if logprobs is None:
        return left
    out = dict(left or {})
    out["chosenCandidates"] = [_lower_logprob(one) for one in logprobs]
    if logprobs and all(one.top is not None for one in logprobs):
        out["topCandidates"] = [{"candidates": [_lower_logprob(each_) for each_ in one.top or ()]} for one in logprobs]
    return out


def _lower_logprob(one: Logprob) -> Json:
    out = own(NAME, one.residual)
    if "token" not in out:
        out["token"] = one.token
    put(out, logProbability=one.logprob, tokenId=one.id)
    return done(out)


def lower_response(response: ChatResponse) -> Json:
    out = own(NAME, response.residual)
    if response.error is not None:
        out["error"] = lower_error(response.error)
    if response.choices or ("candidates" not in out and response.error is None):
        out["candidates"] = [_lower_candidate(choice) for choice in response.choices]
    put(out, modelVersion=response.model, responseId=response.id)
    if response.usage is not None:
        out["usageMetadata"] = lower_usage(response.usage)
    return done(out)


def _lower_candidate(choice: Choice) -> Json:
    out = own(NAME, choice.residual)
    message = choice.message
    if message.parts or "content" not in out:
        out["content"] = lower_message(message, lower_parts(message.parts))
        if message.parts and "content" in out.get("~absent", ()):
            out["~absent"] = [key for key in out["~absent"] if key != "content"]
    if out.get("index", 0) is not None:
        out["index"] = choice.index
    said = out.get("~finishReason")
    reason = (
        said if said is not None and lift_stop(said, message.parts) == choice.stop else lower_stop(choice.stop, None)
    )
    put(out, finishReason=reason, logprobsResult=_lower_logprobs(choice.logprobs, out.get("~logprobs")))
    return done(out)


_USAGE = frozenset(
    ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount", "cachedContentTokenCount")
)


def lift_usage(wire: Json) -> Usage:
    said, thought = wire.get("candidatesTokenCount"), wire.get("thoughtsTokenCount")
    return Usage(
        input=wire.get("promptTokenCount"), output=None if said is None else said + (thought or 0),
        total=wire.get("totalTokenCount"), cached=wire.get("cachedContentTokenCount"), reasoning=thought,
        residual=rest(NAME, wire, _USAGE) or {NAME: {}},
    )  # fmt: skip


def lower_usage(usage: Usage) -> Json:
    out = own(NAME, usage.residual)
    mine = usage.residual is not None and NAME in usage.residual
    total = usage.total
    if total is None and not mine and usage.input is not None and usage.output is not None:
        total = usage.input + usage.output
    put(
        out, promptTokenCount=usage.input, thoughtsTokenCount=usage.reasoning, totalTokenCount=total,
        candidatesTokenCount=None if usage.output is None else max(0, usage.output - (usage.reasoning or 0)),
        cachedContentTokenCount=usage.cached,
    )  # fmt: skip
    return out


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    code, residual = wire.get("code"), rest(NAME, wire, {"message", "status", "code"})
    return Failure(
        message=str(wire.get("message", "")), type=wire.get("status"), code=None if code is None else str(code),
        residual=note(NAME, absent(NAME, residual, wire, ("message",)), code=code),
    )  # fmt: skip


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    code = out.get("~code")
    put(out, status=error.type, code=code if code is not None and str(code) == error.code else error.code)
    return done(out)
