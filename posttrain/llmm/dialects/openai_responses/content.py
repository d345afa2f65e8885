"""What a message or a tool's result holds: texts with their annotations, refusals, media."""

from __future__ import annotations

from typing import Any

from posttrain.llmm.dialects.openai_responses import NAME
from posttrain.llmm.dialects.wire import absent, as_text, done, each, own, put, rest
from posttrain.llmm.ir.chat import Citation, Media, Opaque, Part, Refusal, Text
from posttrain.llmm.ir.origin import Json, Residual

_LISTED: Residual = {NAME: {"type": "input_text"}}


def lift_content(content: Any, field: str) -> tuple[Part, ...]:
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


def lower_content(parts: tuple[Part, ...]) -> Any:
    if len(parts) == 1 and type(part := parts[0]) is Text and (part.residual is None or NAME not in part.residual):
        return part.text
    return [wire for part in parts if (wire := lower_part(part, "input_text")) is not None]


def lower_part(part: Part, text_type: str) -> Json | None:
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
    return lower_part(part, "output_text")
