"""Requests: the fields beside the items."""

from __future__ import annotations

from posttrain.llmm.dialects.openai_responses import NAME
from posttrain.llmm.dialects.openai_responses.items import gathered, lift_item, lower_message
from posttrain.llmm.dialects.openai_responses.tools import (
    added_tools,
    lift_choice,
    lift_format,
    lift_thinking,
    lift_tool,
    lower_choice,
    lower_format,
    lower_tool,
)
from posttrain.llmm.dialects.wire import (
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
from posttrain.llmm.ir.chat import ChatRequest, Message, Sampling, Text
from posttrain.llmm.ir.origin import Json

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
        gathered(each(given, "input", lift_item), messages)
    effort, form = get("reasoning"), get("text")
    left = None
    if form is not None:
        left = {key: value for key, value in as_object(form, "text").items() if value is None or key != "format"}
        if left or not form:
            residual = kept(NAME, residual, "text", left)
    tools = None if get("tools") is None else tuple(each(get("tools"), "tools", lift_tool))
    if added := added_tools(given):
        residual = residual if tools is None else note(NAME, residual, tools=True)
        tools = (*(tools or ()), *added)
    return ChatRequest(
        messages=tuple(messages),
        model=get("model"),
        tools=tools,
        tool_choice=lift_choice(get("tool_choice"), get("parallel_tool_calls")),
        sampling=Sampling(
            max_tokens=get("max_output_tokens"),
            temperature=get("temperature"),
            top_p=get("top_p"),
            top_logprobs=get("top_logprobs"),
        ),
        format=None if form is None else lift_format(form.get("format")),
        thinking=None if effort is None else lift_thinking(as_object(effort, "reasoning")),
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
        lower_message(message, items)
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
            out["tools"] = [wire for tool in listed if (wire := lower_tool(tool)) is not None]
    if request.tool_choice is not None:
        lower_choice(request.tool_choice, out)
    if request.thinking is not None:
        thought = own(NAME, request.thinking.residual)
        put(thought, effort=request.thinking.effort, summary=request.thinking.summary)
        if thought or (request.thinking.residual is not None and NAME in request.thinking.residual):
            out["reasoning"] = done(thought)
    if request.format is not None:
        out["text"] = {**out.get("text", {}), "format": lower_format(request.format)}
    return done(out)
