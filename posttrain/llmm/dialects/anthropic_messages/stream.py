"""The stream of Anthropic Messages: blocks that begin, grow and end one after the other.

An event is a frame. The input of a call grows as JSON text, so that a streamed call has its arguments as text where
the whole message has an object. What a block that the IR has no word for grows by is in its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from posttrain.llmm.dialects.anthropic_messages import NAME
from posttrain.llmm.dialects.anthropic_messages.answers import (
    lift_error,
    lift_response,
    lift_stop,
    lift_usage,
    lower_error,
    lower_response,
    lower_stop,
    lower_usage,
    stop_residual,
)
from posttrain.llmm.dialects.anthropic_messages.blocks import lift_block, lift_citation, lower_blocks, lower_citation
from posttrain.llmm.dialects.wire import done, own
from posttrain.llmm.ir.chat import (
    ChatResponse,
    Choice,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Usage,
    arguments_text,
)
from posttrain.llmm.ir.origin import Json
from posttrain.llmm.ir.stream import (
    Also,
    Begin,
    Broken,
    ChoiceEnd,
    Delta,
    End,
    Frame,
    PartBegin,
    PartCitation,
    PartDelta,
    PartEnd,
    UsageNow,
)

_DELTAS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking",
           "signature_delta": "signature"}  # fmt: skip
_KINDS = {"text": "text_delta", "partial_json": "input_json_delta", "thinking": "thinking_delta"}


class Lifter:
    """Events to frames, one by one."""

    def __init__(self) -> None:
        self._opaque: dict[int, tuple[Json, list[str]]] = {}

    def lift(self, event: Json) -> Frame:
        left = dict(event)
        deltas: list[Delta] = []
        match event:
            case {"type": "message_start", "message": dict(message)}:
                del left["message"]
                deltas, left["~message"] = self._begin(message)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                del left["content_block"]
                value = lift_block(block)
                if isinstance(value, Opaque):
                    self._opaque[index] = block, []
                deltas.append(PartBegin(value=value, part=index))
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                if (lifted := self._delta(delta, index)) is not None:
                    deltas.append(lifted)
                    left["delta"] = {
                        k: v for k, v in delta.items() if k not in ("citation", _DELTAS.get(delta["type"]))
                    }
            case {"type": "content_block_stop", "index": int(index)}:
                deltas.append(PartEnd(part=index, value=self._grown(index)))
            case {"type": "message_delta"}:
                self._end(event, left, deltas)
            case {"type": "message_stop"}:
                deltas.append(End())
            case {"type": "error", "error": error}:
                del left["error"]
                deltas.append(Broken(error=lift_error(error)))
        return Frame(deltas=tuple(deltas), residual={NAME: left})

    def _begin(self, message: Json) -> tuple[list[Delta], Json]:
        whole = lift_response({**message, "content": []})
        ended = {key: message[key] for key in ("stop_reason", "stop_sequence") if message.get(key) is not None}
        kept = {"content": message.get("content"), "stop": whole.choices[0].residual, "ended": ended}
        begin = Begin(id=whole.id, model=whole.model, usage=whole.usage, residual=whole.residual)
        return [begin], {key: value for key, value in kept.items() if value}

    def _delta(self, delta: Json, index: int) -> Delta | None:
        kind = delta.get("type")
        if kind == "citations_delta" and isinstance(delta.get("citation"), dict):
            return PartCitation(citation=lift_citation(delta["citation"]), part=index)
        key = _DELTAS.get(str(kind))
        if key is None or not isinstance(text := delta.get(key), str):
            return None
        if index in self._opaque:
            self._opaque[index][1].append(text)
            return None
        return PartDelta(text=text, part=index, field="signature" if key == "signature" else "text")

    def _grown(self, index: int) -> Part | None:
        block, pieces = self._opaque.pop(index, ({}, []))
        text = "".join(pieces)
        if not text:
            return None
        try:
            return lift_block({**block, "input": msgspec.json.decode(text)})
        except msgspec.DecodeError:  # the stream broke off within it
            return None

    def _end(self, event: Json, left: Json, deltas: list[Delta]) -> None:
        said = event.get("delta") or {}
        more = {k: v for k, v in said.items() if k not in ("stop_reason", "stop_sequence")}
        if more:
            deltas.append(Also(residual={NAME: more}))
        reason, residual = said.get("stop_reason"), stop_residual(said, said.get("stop_reason"))
        left["~stop"] = own(NAME, residual)
        left["~more"] = list(more)
        if "delta" in left:
            del left["delta"]
        else:
            left["~absent"] = ["delta"]
        deltas.append(ChoiceEnd(stop=lift_stop(reason), stop_sequence=said.get("stop_sequence"), residual=residual))
        if (usage := event.get("usage")) is not None:
            del left["usage"]
            deltas.append(UsageNow(usage=lift_usage(usage)))


class Lowerer:
    """Frames to events: one of this dialect to the event that it was, one of another to as many as it takes."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # part -> block
        self._values: dict[int, Part] = {}
        self._open: set[int] = set()
        self._blocks = 0
        self._end = ChoiceEnd(stop="end")
        self._usage = Usage(input=0, output=0)

    def lower(self, frame: Frame) -> list[Json]:
        if frame.residual is not None and NAME in frame.residual:
            return [_own(frame)]
        return [event for delta in frame.deltas for event in self._foreign(delta)]

    def _foreign(self, delta: Delta) -> Iterator[Json]:
        if getattr(delta, "choice", 0) != 0:
            return
        match delta:
            case Begin():
                self._usage = delta.usage or self._usage
                message = ChatResponse(
                    choices=(Choice(message=Message(role="assistant")),), id=delta.id, model=delta.model,
                    usage=self._usage,
                )  # fmt: skip
                yield {"type": "message_start", "message": lower_response(message)}
            case PartBegin():
                yield from self._begin(delta.part, delta.value)
            case PartDelta() if delta.part in self._places:
                yield from self._grow(delta)
            case PartCitation() if delta.part in self._places:
                change = {"type": "citations_delta", "citation": lower_citation(delta.citation)}
                yield {"type": "content_block_delta", "index": self._places[delta.part], "delta": change}
            case PartEnd() if delta.part in self._open:
                if isinstance(delta.value, Reasoning) and delta.value.signature:
                    yield _delta(self._places[delta.part], "signature", delta.value.signature)
                yield from self._close()
            case ChoiceEnd():
                self._end = delta
            case UsageNow():
                self._usage = delta.usage
            case Broken():
                yield {"type": "error", "error": lower_error(delta.error)}
            case End():
                yield from self._close()
                end = {"stop_reason": lower_stop(self._end.stop, None), "stop_sequence": self._end.stop_sequence}
                usage = lower_usage(self._usage)
                usage.setdefault("output_tokens", 0)
                yield {"type": "message_delta", "delta": end, "usage": usage}
                yield {"type": "message_stop"}

    def _begin(self, part: int, value: Part) -> Iterator[Json]:
        if (block := _empty(value)) is None:
            return
        yield from self._close()
        index = self._places[part] = self._blocks
        self._blocks += 1
        self._values[part] = value
        self._open.add(part)
        yield {"type": "content_block_start", "index": index, "content_block": block}
        if isinstance(value, ToolCall) and value.arguments:
            yield _delta(index, "partial_json", arguments_text(value))

    def _grow(self, delta: PartDelta) -> Iterator[Json]:
        value = self._values[delta.part]
        if delta.part not in self._open and not isinstance(value, ToolCall):
            # More of a part after another one began: only a new block can follow here.
            yield from self._begin(delta.part, msgspec.structs.replace(value, text=""))
        index = self._places[delta.part]
        if delta.field == "signature":
            yield _delta(index, "signature", delta.text)
        elif isinstance(value, ToolCall):
            yield _delta(index, "partial_json", delta.text)
        else:
            yield _delta(index, "thinking" if isinstance(value, Reasoning) else "text", delta.text)

    def _close(self) -> Iterator[Json]:
        while self._open:
            part = self._open.pop()
            yield {"type": "content_block_stop", "index": self._places[part]}


def _delta(index: int, key: str, text: str) -> Json:
    change = {"type": "signature_delta" if key == "signature" else _KINDS[key], key: text}
    return {"type": "content_block_delta", "index": index, "delta": change}


def _empty(value: Part) -> Json | None:
    match value:
        case Text() | Refusal():
            return {"type": "text", "text": value.text}
        case Reasoning():
            return {"type": "thinking", "thinking": value.text or "", "signature": ""}
        case ToolCall():
            return {"type": "tool_use", "id": value.id, "name": value.name, "input": {}}
    return None


def _own(frame: Frame) -> Json:
    out = own(NAME, frame.residual)
    for delta in frame.deltas:
        match delta:
            case Begin():
                kept = out["~message"]
                choice = Choice(message=Message(role="assistant"), residual=kept.get("stop"))
                whole = ChatResponse(
                    choices=(choice,), id=delta.id, model=delta.model, usage=delta.usage, residual=delta.residual
                )
                out["message"] = {**lower_response(whole), **kept.get("ended", {}), "content": kept.get("content", [])}
            case PartBegin():
                out["content_block"] = lower_blocks((delta.value,))[0]
            case PartDelta():
                out["delta"] = {**out["delta"], _DELTAS[out["delta"]["type"]]: delta.text}
            case PartCitation():
                out["delta"] = {**out["delta"], "citation": lower_citation(delta.citation)}
            case Also():
                out["delta"] = {key: delta.residual[NAME][key] for key in out["~more"]}
            case ChoiceEnd():
                notes = out["~stop"]
                said = dict(out.get("delta") or {})
                said["stop_reason"] = lower_stop(delta.stop, notes.get("~stop_reason"))
                said["stop_sequence"] = delta.stop_sequence
                for key in notes.get("~absent", ()):
                    del said[key]
                out["delta"] = said
            case UsageNow():
                out["usage"] = lower_usage(delta.usage)
            case Broken():
                out["error"] = lower_error(delta.error)
    return done(out)
