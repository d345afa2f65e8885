"""Parts of a content: texts, thoughts, calls and their results, media."""

from __future__ import annotations

from typing import Any

from posttrain.llmm.dialects.google_genai import NAME
from posttrain.llmm.dialects.wire import as_list, as_object, done, note, object_of, own, put, rest
from posttrain.llmm.ir.chat import Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from posttrain.llmm.ir.origin import Json


def lift_parts(parts: Any, field: str) -> tuple[Part, ...]:
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
        media = lift_parts(parts, "functionResponse.parts")
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


def lower_parts(parts: tuple[Part, ...]) -> list[Json]:
    """What most parts are is written at once, without a look at what they might be."""
    found: list[Json] = []
    part: Any
    for part in parts:
        kind, left = type(part), part.residual
        if left is None or NAME not in left:
            if kind is ToolCall and part.id is not None and part.signature is None and not part.free:
                found.append({"functionCall": {"id": part.id, "name": part.name, "args": object_of(part)}})
                continue
            if kind is Text and part.signature is None:
                found.append({"text": part.text})
                continue
            if kind is ToolResult and part.value is None and part.call is not None and part.name is not None:
                content = part.content
                if len(content) == 1 and type(text := content[0]) is Text:
                    said = {"error" if part.error else "output": text.text}
                    found.append({"functionResponse": {"id": part.call, "name": part.name, "response": said}})
                    continue
        if (wire := _lower_part(part)) is not None:
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
