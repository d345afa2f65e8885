"""The stream of OpenAI Responses: items and parts of items that begin, grow and end, and the whole answer at last.

An event is a frame. The vendor says everything up to four times (deltas, a part's end, an item's end, the answer):
what is said again stays in the event's residual, but for items and the last answer, which are lifted. A part's
number is its item's place and its own in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from posttrain.llmm.dialects.openai_responses import NAME
from posttrain.llmm.dialects.openai_responses.answers import lift_output, lift_response, lower_response
from posttrain.llmm.dialects.openai_responses.content import (
    lift_annotation,
    lift_content_part,
    lower_annotation,
    lower_content_part,
)
from posttrain.llmm.dialects.openai_responses.items import lift_made, lower_made, lower_said
from posttrain.llmm.dialects.wire import done, own
from posttrain.llmm.ir.chat import (
    ChatResponse,
    Choice,
    Failure,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    arguments_text,
)
from posttrain.llmm.ir.origin import Json
from posttrain.llmm.ir.stream import (
    Begin,
    Broken,
    ChoiceEnd,
    Delta,
    End,
    Fold,
    Frame,
    PartBegin,
    PartCitation,
    PartDelta,
    PartEnd,
    UsageNow,
)

_PARTS = 1024  # more contents than an item has
_MADE = ("function_call", "custom_tool_call", "reasoning")
_GROWTH = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.function_call_arguments.delta": "text",
    "response.custom_tool_call_input.delta": "text",
    "response.reasoning_text.delta": "text",
    "response.reasoning_summary_text.delta": "summary",
}
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class Lifter:
    """Events to frames, one by one."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def lift(self, event: Json) -> Frame:
        left = dict(event)
        kind = event.get("type")
        place = _PARTS * (event.get("output_index") or 0)
        part = place + (event.get("content_index") or 0)
        deltas: list[Delta] = []
        match event:
            case {"type": "response.created", "response": dict(response)}:
                whole = lift_response({**response, "output": []})
                if response.get("output") == []:
                    left["response"] = {"~choice": own(NAME, whole.choices[0].residual), "~stop": whole.choices[0].stop}
                    deltas.append(Begin(id=whole.id, model=whole.model, created=whole.created, residual=whole.residual))
                    left["response"]["~more"] = {k: response[k] for k in ("usage", "error") if response.get(k)}
            case {"type": "response.output_item.added", "item": {"type": str(made)} as item} if made in _MADE:
                del left["item"]
                self._begin(place, lift_made(item, made), deltas)
            case {"type": "response.content_part.added", "part": {"type": "output_text" | "refusal"} as wire}:
                del left["part"]
                self._begin(part, lift_content_part(wire), deltas)
            case {"type": str(grown), "delta": str(text)} if grown in _GROWTH and self._knows(grown, place, part):
                del left["delta"]
                where = part if grown in ("response.output_text.delta", "response.refusal.delta") else place
                deltas.append(PartDelta(text=text, part=where, field=_GROWTH[grown]))  # type: ignore[arg-type]
            case {"type": "response.output_text.annotation.added", "annotation": annotation} if part in self._known:
                del left["annotation"]
                deltas.append(PartCitation(citation=lift_annotation(annotation), part=part))
            case {"type": "response.output_item.done", "item": dict(item)}:
                del left["item"]
                for index, value in enumerate(lift_output([item])):
                    self._known.add(place + index)
                    deltas.append(PartEnd(part=place + index, value=value))
            case {"type": "response.completed" | "response.incomplete" | "response.failed", "response": dict(response)}:
                del left["response"]
                whole = lift_response(response)
                if whole.usage is not None:
                    deltas.append(UsageNow(usage=whole.usage))
                if whole.error is not None:
                    deltas.append(Broken(error=whole.error))
                deltas += [ChoiceEnd(stop=whole.choices[0].stop), End(response=whole)]
            case {"type": "error", "message": str(message)}:
                deltas.append(Broken(error=Failure(message=message, code=event.get("code"))))
                del left["message"]
        left["type"] = kind
        return Frame(deltas=tuple(deltas), residual={NAME: left})

    def _begin(self, part: int, value: Part, deltas: list[Delta]) -> None:
        self._known.add(part)
        deltas.append(PartBegin(value=value, part=part))

    def _knows(self, kind: str, place: int, part: int) -> bool:
        return (part if kind in ("response.output_text.delta", "response.refusal.delta") else place) in self._known


def _own(frame: Frame) -> Json:
    out = own(NAME, frame.residual)
    ended: list[Part] = []
    for delta in frame.deltas:
        match delta:
            case Begin():
                notes = out["response"]
                choice = Choice(
                    message=Message(role="assistant"), stop=notes["~stop"], residual={NAME: notes["~choice"]}
                )
                whole = ChatResponse(
                    choices=(choice,), id=delta.id, model=delta.model, created=delta.created, residual=delta.residual
                )
                out["response"] = {**lower_response(whole), **notes["~more"]}
            case PartBegin():
                made = isinstance(delta.value, ToolCall | Reasoning)
                key = "item" if out["type"] == "response.output_item.added" else "part"
                out[key] = (
                    lower_made(delta.value, None, 0) if made or key == "item" else lower_content_part(delta.value)
                )
            case PartDelta():
                out["delta"] = delta.text
            case PartCitation():
                out["annotation"] = lower_annotation(delta.citation)
            case PartEnd() if delta.value is not None:
                ended.append(delta.value)
            case End() if delta.response is not None:
                out["response"] = lower_response(delta.response)
            case Broken() if out["type"] == "error":
                out["message"] = delta.error.message
    if out["type"] == "response.output_item.done" and "item" not in out:
        out["item"] = lower_items(tuple(ended))[0]
    return done(out)


def lower_items(parts: tuple[Part, ...]) -> list[Json]:
    """The items of an answer that these parts make."""
    whole = ChatResponse(choices=(Choice(message=Message(role="assistant", parts=parts)),), residual={NAME: {}})
    return lower_response(whole)["output"]


class Lowerer:
    """Frames to events: one of this dialect to the event that it was, one of another to as many as it takes."""

    def __init__(self) -> None:
        self._sequence = 0
        self._begin = Begin()
        self._fold = Fold()
        self._places: dict[int, int] = {}  # part -> item
        self._open: list[int] = []
        self._error: Failure | None = None

    def lower(self, frame: Frame) -> list[Json]:
        if frame.residual is not None and NAME in frame.residual:
            return [_own(frame)]
        return [self._numbered(event) for delta in frame.deltas for event in self._foreign(delta)]

    def _numbered(self, event: Json) -> Json:
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return event

    def _foreign(self, delta: Delta) -> Iterator[Json]:
        if getattr(delta, "choice", 0) != 0:
            return
        match delta:
            case Begin():
                self._begin = msgspec.structs.replace(delta, residual=None)
                self._fold.add(self._begin)
                for name in ("created", "in_progress"):
                    yield {"type": f"response.{name}", "response": self._response(None)}
            case PartBegin():
                yield from self._close()
                self._places[delta.part] = place = len(self._places)
                self._open.append(delta.part)
                self._fold.add(PartBegin(value=_dated(delta.value, self._begin.id, place), part=place))
                yield from self._start(place)
            case PartDelta() | PartCitation() if delta.part in self._places:
                if delta.part not in self._open and not isinstance(self._part(delta.part), ToolCall):
                    yield from self._foreign(PartBegin(value=_emptied(self._part(delta.part)), part=delta.part))
                yield from self._grow(delta)
            case PartEnd() if delta.part in self._open:
                yield from self._close()
            case ChoiceEnd() | UsageNow():
                self._fold.add(delta)
            case Broken():
                self._error = delta.error
                self._fold.add(delta)
            case End():
                yield from self._close()
                whole = self._response(self._fold.response())
                name = whole["status"] if whole["status"] in ("incomplete", "failed") else "completed"
                yield {"type": f"response.{name}", "response": whole}

    def _part(self, part: int) -> Part:
        return self._fold.part(0, self._places[part])

    def _response(self, folded: ChatResponse | None) -> Json:
        if folded is None:
            folded = ChatResponse(choices=(), id=self._begin.id, model=self._begin.model, created=self._begin.created)
        elif folded.error is not None and folded.choices:
            ended = msgspec.structs.replace(folded.choices[0], stop="error")
            folded = msgspec.structs.replace(folded, choices=(ended,))
        return lower_response(folded)

    def _where(self, place: int) -> Json:
        item = self._item(place)
        return {"item_id": item.get("id"), "output_index": place}

    def _item(self, place: int) -> Json:
        items = lower_said((self._fold.part(0, place),), self._begin.id or "0", first=place)
        return items[0] if items else {}

    def _start(self, place: int) -> Iterator[Json]:
        value, item = self._fold.part(0, place), self._item(place)
        if isinstance(value, Text | Refusal):
            empty = {**item, "status": "in_progress", "content": []}
            yield {"type": "response.output_item.added", "output_index": place, "item": empty}
            part = item["content"][0]
            yield {"type": "response.content_part.added", **self._where(place), "content_index": 0, "part": part}
        elif item:
            if isinstance(value, ToolCall):
                item = {**item, "input" if value.free else "arguments": ""}
            yield {"type": "response.output_item.added", "output_index": place, "item": item}
            if isinstance(value, ToolCall) and value.arguments:
                yield self._grown(value, place, arguments_text(value))

    def _grow(self, delta: PartDelta | PartCitation) -> Iterator[Json]:
        place = self._places[delta.part]
        self._fold.add(msgspec.structs.replace(delta, part=place))
        value = self._fold.part(0, place)
        if isinstance(delta, PartDelta):
            if delta.field == "text":
                yield self._grown(value, place, delta.text)
            elif delta.field == "summary":
                kind = "response.reasoning_summary_text.delta"
                yield {"type": kind, **self._where(place), "summary_index": 0, "delta": delta.text}
            return
        citations = len(value.citations or ()) if isinstance(value, Text) else 0
        yield {
            "type": "response.output_text.annotation.added", **self._where(place), "content_index": 0,
            "annotation_index": citations - 1, "annotation": lower_annotation(delta.citation),
        }  # fmt: skip

    def _grown(self, value: Part, place: int, text: str) -> Json:
        where = self._where(place)
        match value:
            case Text():
                return {
                    "type": "response.output_text.delta", **where, "content_index": 0, "delta": text, "logprobs": []
                }  # fmt: skip
            case Refusal():
                return {"type": "response.refusal.delta", **where, "content_index": 0, "delta": text}
            case ToolCall(free=True):
                return {"type": "response.custom_tool_call_input.delta", **where, "delta": text}
            case ToolCall():
                return {"type": "response.function_call_arguments.delta", **where, "delta": text}
        return {"type": "response.reasoning_text.delta", **where, "content_index": 0, "delta": text}

    def _close(self) -> Iterator[Json]:
        while self._open:
            place = self._places[self._open.pop()]
            value, item, where = self._fold.part(0, place), self._item(place), self._where(place)
            if not item:
                continue
            match value:
                case Text():
                    yield {
                        "type": "response.output_text.done", **where, "content_index": 0, "text": value.text,
                        "logprobs": [],
                    }  # fmt: skip
                case Refusal():
                    yield {"type": "response.refusal.done", **where, "content_index": 0, "refusal": value.text}
                case ToolCall(free=True):
                    yield {"type": "response.custom_tool_call_input.done", **where, "input": arguments_text(value)}
                case ToolCall():
                    kind, text = "response.function_call_arguments.done", arguments_text(value)
                    yield {"type": kind, **where, "name": value.name, "arguments": text}
                case Reasoning() if value.text is not None:
                    yield {"type": "response.reasoning_text.done", **where, "content_index": 0, "text": value.text}
            if isinstance(value, Text | Refusal):
                part = item["content"][0]
                yield {"type": "response.content_part.done", **where, "content_index": 0, "part": part}
            yield {"type": "response.output_item.done", "output_index": place, "item": item}


def _dated(value: Part, answer: str | None, place: int) -> Part:
    """A text or a refusal as an item of its own, as it is streamed."""
    if isinstance(value, Text | Refusal):
        head = {"id": f"msg_{answer or '0'}_{place}", "type": "message", "status": "completed"}
        return msgspec.structs.replace(value, residual={NAME: {"~item": head}})
    return value


def _emptied(value: Any) -> Part:
    return msgspec.structs.replace(value, text="")
