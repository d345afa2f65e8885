"""Blocks of content: text with citations, thinking, calls and their results, media."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

import msgspec

from posttrain.llmm.dialects.anthropic_messages import NAME
from posttrain.llmm.dialects.wire import (
    DialectError,
    as_list,
    as_text,
    done,
    each,
    kept,
    note,
    object_of,
    own,
    put,
    rest,
)
from posttrain.llmm.ir.chat import Citation, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from posttrain.llmm.ir.origin import Json, Residual

_LISTED: Residual = {NAME: {"type": "text"}}  # a text that came as a block, with nothing else to it
_USE = frozenset(("type", "id", "name", "input"))
_RESULT = frozenset(("type", "tool_use_id", "content", "is_error"))


def lift_content(content: Any, field: str) -> list[Part]:
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
    parts: Any = () if content is None else tuple(lift_content(content, "content"))
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


def lower_content(parts: tuple[Any, ...]) -> Any:
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
        return {"type": "tool_result", "tool_use_id": call, "content": lower_content(content)}
    out = own(NAME, part.residual)
    out["type"] = "tool_result"
    put(out, tool_use_id=part.call, is_error=part.error)
    if part.value is not None and not part.content:
        out["content"] = msgspec.json.encode(part.value).decode()
    elif part.content:
        out["content"] = lower_content(part.content)
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
