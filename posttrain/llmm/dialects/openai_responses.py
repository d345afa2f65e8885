"""OpenAI Responses: requests and answers. Its stream is in `openai_responses_stream`.

An item of the wire is a message or a part: what the assistant made (messages, calls, reasoning) is gathered to one
message of the IR until someone else speaks, as a chat template has it; where an item began is a note on its first
part. `instructions` is a leading message of the role system. An item of a tool that the vendor runs is `Opaque`.
Source: the types of the `openai` package.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.openai_chat import lift_logprob, lower_logprob
from posttrain.llmm.dialects.openai_usage import Counts
from posttrain.llmm.dialects.wire import (
    DialectError,
    absent,
    as_object,
    as_text,
    done,
    each,
    kept,
    note,
    own,
    put,
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
    Role,
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

NAME: Final = "openai_responses"
_LISTED: Residual = {NAME: {"type": "input_text"}}
_MINE: Residual = {NAME: {}}  # it came in this dialect, with nothing else to it
_BARE: Residual = {NAME: {"~item": {}, "~string": True}}  # an assistant's text with nothing beside it
_REQUEST = frozenset(
    ("model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "top_logprobs", "stream",
     "previous_response_id", "user", "metadata", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text")
)  # fmt: skip


def lift_request(wire: Json) -> ChatRequest:
    """Raises DialectError naming the field that is not of the dialect."""
    get, residual = wire.get, rest(NAME, wire, _REQUEST)
    messages: list[Message] = []
    if (instructions := get("instructions")) is not None:
        text = Text(text=as_text(instructions, "instructions"))
        messages.append(Message(role="system", parts=(text,), residual={NAME: {"~instructions": True}}))
    given = get("input")
    if isinstance(given, str):
        messages.append(Message(role="user", parts=(Text(text=given),)))
        residual = note(NAME, residual, input=True)
    elif given is None:
        residual = absent(NAME, residual, wire, ("input",))
    else:
        _gathered(each(given, "input", _lift_item), messages)
    effort, form = get("reasoning"), get("text")
    left = None
    if form is not None:
        left = {key: value for key, value in as_object(form, "text").items() if value is None or key != "format"}
        if left or not form:
            residual = kept(NAME, residual, "text", left)
    tools = None if get("tools") is None else tuple(each(get("tools"), "tools", _lift_tool))
    if added := _added(given):
        residual = residual if tools is None else note(NAME, residual, tools=True)
        tools = (*(tools or ()), *added)
    return ChatRequest(
        messages=tuple(messages),
        model=get("model"),
        tools=tools,
        tool_choice=_lift_choice(get("tool_choice"), get("parallel_tool_calls")),
        sampling=Sampling(
            max_tokens=get("max_output_tokens"),
            temperature=get("temperature"),
            top_p=get("top_p"),
            top_logprobs=get("top_logprobs"),
        ),
        format=None if form is None else _lift_format(form.get("format")),
        thinking=None if effort is None else _lift_thinking(as_object(effort, "reasoning")),
        stream=get("stream"),
        previous=get("previous_response_id"),
        user=get("user"),
        metadata=get("metadata"),
        residual=residual,
    )


def lower_request(request: ChatRequest) -> Json:
    out = own(NAME, request.residual)
    messages = request.messages
    if messages and messages[0].role == "system":
        notes = own(NAME, messages[0].residual)
        texts = [part.text for part in messages[0].parts if isinstance(part, Text)]
        if "~instructions" in notes or ("~first" not in notes and len(texts) == len(messages[0].parts)):
            out["instructions"], messages = "".join(texts), messages[1:]
    items: list[Json] = []
    for message in messages:
        _lower_message(message, items)
    out["input"] = items
    if out.get("~input") and len(items) == 1 and items[0].get("role") == "user" and len(items[0]) == 2:
        content = items[0]["content"]
        out["input"] = content if isinstance(content, str) else items
    sampling = request.sampling
    put(
        out, model=request.model, max_output_tokens=sampling.max_tokens, temperature=sampling.temperature,
        top_p=sampling.top_p, top_logprobs=sampling.top_logprobs, stream=request.stream,
        previous_response_id=request.previous, user=request.user, metadata=request.metadata,
    )  # fmt: skip
    if request.tools is not None:
        listed = [tool for tool in request.tools if tool.residual is None or "~added" not in own(NAME, tool.residual)]
        if listed or not request.tools or "~tools" in out:
            out["tools"] = [wire for tool in listed if (wire := _lower_tool(tool)) is not None]
    if request.tool_choice is not None:
        _lower_choice(request.tool_choice, out)
    if request.thinking is not None:
        thought = own(NAME, request.thinking.residual)
        put(thought, effort=request.thinking.effort, summary=request.thinking.summary)
        if thought or (request.thinking.residual is not None and NAME in request.thinking.residual):
            out["reasoning"] = done(thought)
    if request.format is not None:
        out["text"] = {**out.get("text", {}), "format": _lower_format(request.format)}
    return done(out)


# Items

_MESSAGE = frozenset(("role", "content"))
_FROM_TOOLS = frozenset(("mcp_approval_response",))
_FROM_CLIENT = frozenset(("item_reference", "additional_tools", "configuration_update", "compaction_trigger"))


def _gathered(items: Iterable[tuple[Role, tuple[Part, ...], Residual | None]], into: list[Message]) -> None:
    """Messages of lifted items: what the assistant made, up to where someone else speaks, is one."""
    said: list[Part] = []
    answers = False  # whether the message before is a tool's
    for role, parts, residual in items:
        if role == "assistant":
            said += parts
            continue
        if said:
            into.append(Message(role="assistant", parts=tuple(said)))
            said, answers = [], False
        if role == "system" and not into:
            residual = note(NAME, residual, first=True)
        into.append(Message(role=role, parts=parts, joined=answers and role == "tool", residual=residual))
        answers = role == "tool"
    if said:
        into.append(Message(role="assistant", parts=tuple(said)))


def _lift_item(item: Json) -> tuple[Role, tuple[Part, ...], Residual | None]:
    kind = item.get("type", "message" if "role" in item else "item_reference")
    if kind == "function_call":
        return "assistant", (lift_made(item, kind),), None
    if kind in _LIFT_RESULT:
        return "tool", (_lift_result(item, kind),), None
    if kind == "message":
        role = item.get("role")
        if role == "assistant":
            return "assistant", _lift_said(item), None
        if role not in ("user", "system", "developer"):
            raise DialectError("is no role", field="role", value=role)
        residual = rest(NAME, item, _MESSAGE) if len(item) > 2 else None
        return role, _lift_content(item.get("content"), "content"), residual
    part = lift_made(item, kind)
    if kind in _FROM_CLIENT:
        return "user", (part,), None
    return "tool" if kind.endswith("_output") or kind in _FROM_TOOLS else "assistant", (part,), None


def lift_made(item: Json, kind: str) -> Part:
    """A part that is an item of its own: a call, reasoning, or what the IR has no word for."""
    if kind == "function_call" or kind == "custom_tool_call":
        get, text = item.get, "arguments" if kind == "function_call" else "input"
        name, given, call = get("name"), get(text), get("call_id")
        if type(given) is str and type(name) is str:
            usual = len(item) == 4 and call is not None
            left = _MINE if usual else rest(NAME, item, {"type", "name", text, "call_id"}) or _MINE
            return ToolCall(name=name, arguments=given, id=call, free=text == "input", residual=left)
    elif kind == "reasoning":
        return _lift_reasoning(item)
    return Opaque(type=kind, residual={NAME: item})


def _lift_said(item: Json) -> tuple[Part, ...]:
    content = item.get("content")
    if type(content) is str and len(item) == 2:
        return (Text(text=content, residual=_BARE),)
    left = {k: v for k, v in item.items() if k not in ("role", "content")}
    if type(content) is str:
        return (Text(text=content, residual={NAME: {"~item": left, "~string": True}}),)
    parts = list(_lift_content(content, "content"))
    if not parts or not all(isinstance(part, Text | Refusal) for part in parts):
        return (Opaque(type="message", residual={NAME: item}),)
    parts[0] = msgspec.structs.replace(parts[0], residual=note(NAME, parts[0].residual, item=left))
    return tuple(parts)


def _lift_reasoning(item: Json) -> Part:
    summary, content = item.get("summary"), item.get("content")
    residual = rest(NAME, item, {"type", "summary", "content", "encrypted_content"})
    for texts, kind in ((summary, "summary_text"), (content, "reasoning_text")):
        if texts is not None and not all(
            isinstance(each_, dict) and set(each_) == {"type", "text"} and each_["type"] == kind for each_ in texts
        ):
            return Opaque(type="reasoning", residual={NAME: item})
    said = None if content is None else [each_["text"] for each_ in content]
    if said is not None and len(said) != 1:
        residual = note(NAME, residual, lengths=[len(text) for text in said])
    residual = absent(NAME, residual, item, ("summary",))
    return Reasoning(
        text=None if said is None else "".join(said),
        summary=tuple(each_["text"] for each_ in summary) if summary else None,
        encrypted=item.get("encrypted_content"),
        residual=residual,
    )


_LIFT_RESULT: Final = {"function_call_output": False, "custom_tool_call_output": True}


def _lift_result(item: Json, kind: str) -> Part:
    call, output = item.get("call_id"), item.get("output")
    if type(output) is str and len(item) == 3 and call is not None:
        return ToolResult(call=call, free=_LIFT_RESULT[kind], content=(Text(text=output),))
    residual = rest(NAME, item, {"type", "call_id", "output"})
    if output == []:
        residual = kept(NAME, residual, "output", [])
    return ToolResult(
        call=call, free=_LIFT_RESULT[kind], residual=residual,
        content=() if output is None else _lift_content(output, "output"),  # type: ignore[arg-type]
    )  # fmt: skip


def _lift_content(content: Any, field: str) -> tuple[Part, ...]:
    return (Text(text=content),) if type(content) is str else tuple(each(content, field, lift_content_part))


def lift_content_part(wire: Json) -> Part:
    """An entry of a message's or a tool result's content."""
    kind = wire.get("type")
    if kind == "input_text":
        text = as_text(wire.get("text"), "text")
        return Text(text=text, residual=_LISTED if len(wire) == 2 else rest(NAME, wire, {"text"}))
    if kind == "output_text":
        annotations = wire.get("annotations")
        residual = absent(NAME, rest(NAME, wire, {"type", "text", "annotations"}), wire, ("annotations",))
        return Text(
            text=as_text(wire.get("text"), "text"), residual=residual,
            citations=None if annotations is None else tuple(map(lift_annotation, annotations)),
        )  # fmt: skip
    if kind == "refusal":
        refusal = as_text(wire.get("refusal"), "refusal")
        return Refusal(text=refusal, residual=rest(NAME, wire, {"type", "refusal"}))
    if kind == "input_image":
        return _lift_image(wire)
    if kind == "input_file":
        return Media(
            medium="document", data=wire.get("file_data"), url=wire.get("file_url"), file=wire.get("file_id"),
            name=wire.get("filename"), detail=wire.get("detail"),
            residual=rest(NAME, wire, {"type", "file_data", "file_url", "file_id", "filename", "detail"}),
        )  # fmt: skip
    return Opaque(type=str(kind), residual={NAME: wire})


def _lift_image(wire: Json) -> Part:
    url, data, kind = wire.get("image_url"), None, None
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        head, _, data = url.partition(";base64,")
        kind, url = head[5:], None
    return Media(
        medium="image", type=kind, data=data, url=url, file=wire.get("file_id"), detail=wire.get("detail"),
        residual=rest(NAME, wire, {"type", "image_url", "file_id", "detail"}),
    )  # fmt: skip


def lift_annotation(wire: Any) -> Citation:
    if not isinstance(wire, dict) or wire.get("type") != "url_citation":
        return Citation(residual={NAME: {"~whole": wire}})
    return Citation(
        url=wire.get("url"), title=wire.get("title"), start=wire.get("start_index"), end=wire.get("end_index"),
        residual=rest(NAME, wire, {"type", "url", "title", "start_index", "end_index"}),
    )  # fmt: skip


def lower_annotation(citation: Citation) -> Any:
    out = own(NAME, citation.residual)
    if "~whole" in out:
        return out["~whole"]
    out["type"] = "url_citation"
    put(out, url=citation.url, title=citation.title, start_index=citation.start, end_index=citation.end)
    return out


def _lower_message(message: Message, into: list[Json]) -> None:
    role = message.role
    if role == "assistant":
        into.extend(lower_said(message.parts, None))
        return
    if role == "tool" or (len(message.parts) == 1 and isinstance(message.parts[0], Opaque)):
        for part in message.parts:
            if isinstance(part, ToolResult):
                into.append(_lower_result(part))
            elif isinstance(part, Opaque) and part.residual is not None and NAME in part.residual:
                if part.type.startswith("input_"):
                    break
                into.append(part.residual[NAME])
        else:
            return
    out = own(NAME, message.residual)
    out["role"] = role
    if message.parts or "content" not in out:
        out["content"] = _lower_content(message.parts)
    into.append(done(out))


def _lower_content(parts: tuple[Part, ...]) -> Any:
    if len(parts) == 1 and type(part := parts[0]) is Text and (part.residual is None or NAME not in part.residual):
        return part.text
    return [wire for part in parts if (wire := _lower_part(part, "input_text")) is not None]


def _lower_part(part: Part, text_type: str) -> Json | None:
    out = own(NAME, part.residual)
    if isinstance(part, Text):
        out["type"] = out.get("type", text_type)
        out["text"] = part.text
        if out["type"] == "output_text":
            out["annotations"] = [lower_annotation(each_) for each_ in part.citations or ()]
    elif isinstance(part, Refusal):
        out["type"], out["refusal"] = "refusal", part.text
    elif isinstance(part, Media) and part.medium == "image":
        url = part.url if part.data is None else f"data:{part.type or 'image/png'};base64,{part.data}"
        put(out, image_url=url, file_id=part.file, detail=part.detail)
        out["type"] = "input_image"
    elif isinstance(part, Media):
        out["type"] = "input_file"
        put(
            out, file_data=part.data, file_url=part.url, file_id=part.file, filename=part.name, detail=part.detail
        )  # fmt: skip
    else:
        return out or None
    return done(out)


def lower_content_part(part: Part) -> Json | None:
    """A text or a refusal of an answer."""
    return _lower_part(part, "output_text")


def lower_said(parts: tuple[Part, ...], answer: str | None, *, first: int = 0) -> list[Json]:
    """The items of an assistant's message. `answer` is the id of the answer that they belong to, from which items
    without an id get theirs; None in a request, where none is needed. `first` is the number of the first part."""
    items: list[Json] = []
    message: Json | None = None
    for index, part in enumerate(parts, first):
        notes = own(NAME, part.residual)
        if isinstance(part, Text | Refusal):
            head = notes.get("~item")
            fresh = head is not None or message is None
            if fresh or message is None:
                message = _message_item(head, answer, index)
                items.append(message)
            plain = answer is None and head is None and fresh and _alone(parts, index - first)
            if isinstance(part, Text) and (plain or notes.get("~string")):
                message["content"], message = part.text, None
            else:
                message["content"].append(_lower_part(part, "output_text"))
            continue
        message = None
        if (item := lower_made(part, answer, index)) is not None:
            items.append(item)
    return items


def _alone(parts: tuple[Part, ...], index: int) -> bool:
    following = parts[index + 1] if index + 1 < len(parts) else None
    plain = parts[index].residual is None or NAME not in parts[index].residual  # type: ignore[operator]
    return plain and not (isinstance(following, Text | Refusal) and "~item" not in own(NAME, following.residual))


def _message_item(head: Json | None, answer: str | None, index: int) -> Json:
    if head is not None:
        return {"role": "assistant", **head, "content": []}
    if answer is None:
        return {"role": "assistant", "content": []}
    return {"id": f"msg_{answer}_{index}", "type": "message", "role": "assistant", "status": "completed", "content": []}


def lower_made(part: Part, answer: str | None, index: int) -> Json | None:
    """The item of a part that is one of its own; None where this dialect has no word for it."""
    out = own(NAME, part.residual)
    mine = part.residual is not None and NAME in part.residual
    if isinstance(part, ToolCall):
        if part.free:
            out["type"], out["input"] = "custom_tool_call", arguments_text(part)
        else:
            out["type"], out["arguments"] = "function_call", arguments_text(part)
        out["name"] = part.name
        put(out, call_id=part.id)
        if answer is not None and not mine:
            out["id"] = f"{'ctc' if part.free else 'fc'}_{answer}_{index}"
            if not part.free:
                out["status"] = "completed"
        return done(out)
    if isinstance(part, Reasoning):
        out["type"] = "reasoning"
        if not mine:
            out["id"] = f"rs_{answer or 'given'}_{index}"
        out["summary"] = [{"type": "summary_text", "text": text} for text in part.summary or ()]
        if part.text is not None:
            out["content"] = [{"type": "reasoning_text", "text": text} for text in _pieces(part.text, out)]
        put(out, encrypted_content=part.encrypted)
        return done(out)
    return part.residual[NAME] if isinstance(part, Opaque) and mine else None  # type: ignore[index]


def _pieces(text: str, notes: Json) -> list[str]:
    lengths = notes.get("~lengths")
    if lengths is None or sum(lengths) != len(text):
        return [text]
    pieces, start = [], 0
    for length in lengths:
        pieces.append(text[start : start + length])
        start += length
    return pieces


def _lower_result(part: ToolResult) -> Json:
    out = own(NAME, part.residual)
    out["type"] = "custom_tool_call_output" if part.free else "function_call_output"
    put(out, call_id=part.call)
    if part.value is not None and not part.content:
        out["output"] = msgspec.json.encode(part.value).decode()
    elif part.content or "output" not in out:
        out["output"] = _lower_content(part.content) if part.content else ""
    return done(out)


# Tools and forms

_FUNCTION = frozenset(("type", "name", "description", "parameters", "strict"))


def _lift_tool(wire: Json) -> Tool:
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


def _added(given: Any) -> tuple[Tool, ...]:
    """The functions in items that add tools in mid-conversation, where Codex puts all of its own. The item is said
    again as it was; so the note."""
    found: list[Tool] = []
    items = [item for item in given if item.get("type") == "additional_tools"] if isinstance(given, list) else []
    for item in items:
        for tool in item.get("tools") or ():
            for one in tool.get("tools") or () if tool.get("type") == "namespace" else (tool,):
                lifted = _lift_tool(one)
                if lifted.type is None:
                    residual = note(NAME, lifted.residual, added=True)
                    found.append(msgspec.structs.replace(lifted, residual=residual))
    return tuple(found)


def _lower_tool(tool: Tool) -> Json | None:
    out = own(NAME, tool.residual)
    if tool.type is not None:  # a vendor's own: all of it is in the residual, or in another vendor's
        return out or None
    out["type"] = "custom" if tool.free else "function"
    put(out, name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return done(out)


def _lift_choice(wire: Any, parallel: Any) -> ToolChoice | None:
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


def _lower_choice(choice: ToolChoice, out: Json) -> None:
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


def _lift_thinking(wire: Json) -> Thinking:
    residual = rest(NAME, wire, {"effort", "summary"})
    return Thinking(effort=wire.get("effort"), summary=wire.get("summary"), residual=residual or {NAME: {}})


def _lift_format(wire: Any) -> Format | None:
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


def _lower_format(form: Format) -> Json:
    out = own(NAME, form.residual)
    if form.type != "schema":
        out["type"] = "json_object" if form.type == "json" else "text"
        return out
    out["type"] = "json_schema"
    if form.name is None and "name" not in out:
        out["name"] = "answer"
    put(out, schema=form.schema, name=form.name, description=form.description, strict=form.strict)
    return out


# Answers

_RESPONSE = frozenset(
    ("id", "object", "created_at", "model", "output", "usage", "error", "status", "incomplete_details")
)
_ECHO: Final = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
                "incomplete_details": None, "instructions": None, "metadata": {}, "temperature": None,
                "top_p": None}  # fmt: skip


def lift_response(wire: Json) -> ChatResponse:
    """Raises DialectError naming the field that is not of the dialect."""
    residual = rest(NAME, wire, _RESPONSE)
    parts = lift_output(wire.get("output"))
    calls = any(isinstance(part, ToolCall) for part in parts)
    stop = lift_status(wire.get("status"), wire.get("incomplete_details"), calls)
    said = {key: wire[key] for key in ("status", "incomplete_details") if key in wire}
    usual = {"status": lower_status(stop)[0], "incomplete_details": lower_status(stop)[1]}
    if said != usual:
        residual = note(NAME, residual, ended=said)
    residual = absent(NAME, residual, wire, ("object", "created_at", "error"))
    parts, logprobs, place = _take_logprobs(parts)
    usage, error = wire.get("usage"), wire.get("error")
    choice = Choice(
        message=Message(role="assistant", parts=parts), stop=stop, logprobs=logprobs,
        residual=None if place is None else note(NAME, None, logprobs=place),
    )  # fmt: skip
    return ChatResponse(
        choices=(choice,),
        id=wire.get("id"),
        model=wire.get("model"),
        created=wire.get("created_at"),
        usage=None if usage is None else lift_usage(usage),
        error=None if error is None else lift_error(error),
        residual=residual or {NAME: {}},
    )


def lift_output(items: Any) -> tuple[Part, ...]:
    """The parts of an answer's items."""
    return tuple(chain.from_iterable(each(items, "output", _lift_output_item)))


def _lift_output_item(item: Json) -> tuple[Part, ...]:
    kind = item.get("type", "message")
    if kind == "message" and item.get("role") == "assistant":
        return _lift_said(item)
    return (_lift_result(item, kind) if kind in _LIFT_RESULT else lift_made(item, str(kind)),)


def _take_logprobs(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], tuple[Logprob, ...] | None, int | None]:
    """Those of the one text that has them: an answer has one sample."""
    found = [i for i, part in enumerate(parts) if isinstance(part, Text) and own(NAME, part.residual).get("logprobs")]
    if len(found) != 1:
        return parts, None, None
    place = found[0]
    mine = own(NAME, parts[place].residual)
    logprobs = tuple(map(lift_logprob, mine.pop("logprobs")))
    part = msgspec.structs.replace(parts[place], residual={NAME: mine} if mine else None)
    return (*parts[:place], part, *parts[place + 1 :]), logprobs, place


def lift_status(status: Any, details: Any, calls: bool) -> Stop | None:
    """Why an answer ended, from its status."""
    if status in ("in_progress", "queued"):
        return None
    if status in (None, "completed"):
        return "tool_calls" if calls else "end"
    if status == "incomplete":
        reason = details.get("reason") if isinstance(details, dict) else None
        return {"max_output_tokens": "length", "content_filter": "filter"}.get(reason, "other")  # type: ignore
    return "error" if status == "failed" else "other"


def lower_status(stop: Stop | None) -> tuple[str, Json | None]:
    """Status and details of an answer that ended so."""
    if stop == "length":
        return "incomplete", {"reason": "max_output_tokens"}
    if stop == "filter":
        return "incomplete", {"reason": "content_filter"}
    if stop is None:
        return "in_progress", None
    return "failed" if stop == "error" else "completed", None


def lower_response(response: ChatResponse) -> Json:
    """An answer of several samples gives its first."""
    mine = response.residual is not None and NAME in response.residual
    out = own(NAME, response.residual) if mine else dict(_ECHO)
    choice = response.choices[0] if response.choices else Choice(message=Message(role="assistant"))
    out["object"] = "response"
    out["output"] = lower_output(response, choice)
    said: Any = out.get("~ended")
    calls = any(isinstance(part, ToolCall) for part in choice.message.parts)
    if said is not None and lift_status(said.get("status"), said.get("incomplete_details"), calls) == choice.stop:
        out.update(said)
    else:
        out["status"], out["incomplete_details"] = lower_status(choice.stop)
    put(out, id=response.id, model=response.model)
    out["created_at"] = response.created if response.created is not None or mine else 0
    if out["created_at"] is None and (response.residual or {}).get(NAME, {}).get("created_at", 0) == 0:
        del out["created_at"]
    out["error"] = None if response.error is None else lower_error(response.error)
    if response.usage is not None:
        out["usage"] = lower_usage(response.usage)
    return done(out)


def lower_output(response: ChatResponse, choice: Choice) -> list[Json]:
    parts = choice.message.parts
    if choice.logprobs is not None:
        place = own(NAME, choice.residual).get("~logprobs")
        if place is None:
            place = next((i for i, part in enumerate(parts) if isinstance(part, Text)), None)
        if place is not None and place < len(parts):
            more = {NAME: {**own(NAME, parts[place].residual), "logprobs": list(map(lower_logprob, choice.logprobs))}}
            marked = msgspec.structs.replace(parts[place], residual=more)
            parts = (*parts[:place], marked, *parts[place + 1 :])
    items: list[Json] = []
    start = 0
    for index, part in enumerate(parts):
        if isinstance(part, ToolResult):
            items.extend(lower_said(parts[start:index], response.id or "0", first=start))
            items.append(_lower_result(part))
            start = index + 1
    return items + lower_said(parts[start:], response.id or "0", first=start)


_COUNTS: Final = Counts(NAME, "input_tokens", "output_tokens", whole=True)
lift_usage, lower_usage = _COUNTS.lift, _COUNTS.lower


def lift_error(wire: Any) -> Failure:
    if not isinstance(wire, dict):
        return Failure(message=str(wire), residual={NAME: {"~whole": wire}})
    residual = absent(NAME, rest(NAME, wire, {"code", "message"}), wire, ("message",))
    return Failure(message=str(wire.get("message", "")), code=wire.get("code"), residual=residual)


def lower_error(error: Failure) -> Any:
    out = own(NAME, error.residual)
    if "~whole" in out:
        return out["~whole"]
    out["message"] = error.message
    put(out, code=error.code or error.type)
    return done(out)
