"""What a message holds beside calls: texts with their annotations, refusals, media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from posttrain.llmm.dialects.openai_chat import NAME
from posttrain.llmm.dialects.wire import as_text, done, each, note, own, put, rest
from posttrain.llmm.ir.chat import Citation, Media, Opaque, Part, Refusal, Text
from posttrain.llmm.ir.origin import Json, Residual

_LISTED: Residual = {NAME: {"type": "text"}}  # a text that came as an entry of a list, with nothing else to it


def cite(parts: list[Part], annotations: list[Any]) -> None:
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


def lower_annotation(citation: Citation) -> Json:
    inner = own(NAME, citation.residual)
    if (whole := inner.get("~whole")) is not None:
        return whole
    put(inner, url=citation.url, title=citation.title, start_index=citation.start, end_index=citation.end)
    return {"type": "url_citation", "url_citation": done(inner)}


def lift_content(content: Any) -> tuple[Part, ...]:
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


def lower_content(parts: Sequence[Part]) -> Any:
    """A string where a single text says no more than that; else a list."""
    if len(parts) == 1 and type(part := parts[0]) is Text and bare(part):
        return part.text
    return [wire for part in parts if (wire := lower_part(part)) is not None]


def lower_part(part: Part) -> Json | None:
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


def bare(part: Part) -> bool:
    return part.residual is None or NAME not in part.residual
