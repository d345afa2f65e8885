"""The stream of Google GenAI: each event is an answer whose parts go on from those before.

An event is a frame. Texts that follow each other are one part, thoughts and words apart; a call comes whole. The
usage is that so far. The vendor marks no end: `finish` after the last event.
"""

from __future__ import annotations

from collections.abc import Iterator

from posttrain.llmm.dialects.google_genai import NAME
from posttrain.llmm.dialects.google_genai.answers import (
    lift_error,
    lift_response,
    lift_usage,
    lower_error,
    lower_response,
    lower_stop,
    lower_usage,
)
from posttrain.llmm.dialects.google_genai.parts import lift_part, lower_parts
from posttrain.llmm.dialects.wire import done, own, put
from posttrain.llmm.ir.chat import (
    ChatResponse,
    Choice,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
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
    Logprobs,
    PartBegin,
    PartDelta,
    PartEnd,
    UsageNow,
)

_HEAD = ("responseId", "modelVersion")


class Lifter:
    """Events to frames, one by one; `finish` after the last."""

    def __init__(self) -> None:
        self._begun = False
        self._last: dict[int, Part] = {}  # sample -> the part that is open
        self._count: dict[int, int] = {}
        self._called: set[int] = set()  # samples with a call

    def lift(self, event: Json) -> Frame:
        deltas: list[Delta] = []
        left = dict(event)
        whole = lift_response({**event, "candidates": [], "usageMetadata": None})
        if not self._begun and "error" not in event:
            self._begun = True
            more = {k: v for k, v in event.items() if k not in (*_HEAD, "candidates", "usageMetadata") or v is None}
            more = {key: value for key, value in more.items() if key not in ("usageMetadata", "candidates")}
            deltas.append(Begin(id=whole.id, model=whole.model, residual={NAME: more} if more else None))
            for key in _HEAD:
                if event.get(key) is not None:
                    del left[key]
        if event.get("error") is not None:
            del left["error"]
            deltas.append(Broken(error=lift_error(event["error"])))
        if (candidates := event.get("candidates")) is not None:
            left["candidates"] = [self._candidate(each, place, deltas) for place, each in enumerate(candidates)]
        if (usage := event.get("usageMetadata")) is not None:
            del left["usageMetadata"]
            deltas.append(UsageNow(usage=lift_usage(usage)))
        return Frame(deltas=tuple(deltas), residual={NAME: left})

    def _candidate(self, wire: Json, place: int, deltas: list[Delta]) -> Json:
        left, choice = dict(wire), wire.get("index") or place
        content = wire.get("content")
        if isinstance(content, dict) and content.get("parts"):
            left["content"] = {**content, "parts": [self._part(part, choice, deltas) for part in content["parts"]]}
        whole = lift_response({"candidates": [{**wire, "content": None}]}).choices[0]
        if whole.logprobs is not None:
            del left["logprobsResult"]
            left["~logprobs"] = own(NAME, whole.residual).get("~logprobs")
            deltas.append(Logprobs(tokens=whole.logprobs, choice=choice))
        if (reason := wire.get("finishReason")) is not None:
            stop = "tool_calls" if reason == "STOP" and choice in self._called else whole.stop
            self._close(choice, deltas)
            skip = ("content", "finishReason", "index", "logprobsResult")
            more = {k: v for k, v in wire.items() if k not in skip}
            if lower_stop(stop, None) == reason:
                del left["finishReason"]
            else:
                more["~finishReason"] = reason
            deltas.append(ChoiceEnd(choice=choice, stop=stop, residual={NAME: more} if more else None))
        return left

    def _part(self, wire: Json, choice: int, deltas: list[Delta]) -> Json:
        value, last = lift_part(wire), self._last.get(choice)
        signature = getattr(value, "signature", None)
        if not isinstance(value, Text | Reasoning):
            self._close(choice, deltas)
            part = self._next(choice)
            deltas += [PartBegin(value=value, part=part, choice=choice), PartEnd(part=part, choice=choice)]
            if isinstance(value, ToolCall):
                self._called.add(choice)
            return {"~": "whole"}
        left: Json = {**own(NAME, value.residual), "~": "grown" if signature is None else "signed"}
        if isinstance(value, Reasoning):
            left["~thought"] = True
        if type(last) is not type(value) or own(NAME, value.residual):
            self._close(choice, deltas)
            empty = type(value)(text="", residual=value.residual)
            self._last[choice] = empty
            deltas.append(PartBegin(value=empty, part=self._next(choice), choice=choice))
        part = self._count[choice] - 1
        deltas.append(PartDelta(text=value.text or "", part=part, choice=choice))
        if signature is not None:
            deltas.append(PartDelta(text=signature, part=part, choice=choice, field="signature"))
            self._close(choice, deltas)
        return left

    def _next(self, choice: int) -> int:
        part = self._count.get(choice, 0)
        self._count[choice] = part + 1
        return part

    def _close(self, choice: int, deltas: list[Delta]) -> None:
        if self._last.pop(choice, None) is not None:
            deltas.append(PartEnd(part=self._count[choice] - 1, choice=choice))

    def finish(self) -> Frame:
        """What the end of the stream says: nothing on the wire."""
        deltas: list[Delta] = []
        for choice in list(self._last):
            self._close(choice, deltas)
        return Frame(deltas=(*deltas, End()), residual={NAME: {"~unsaid": True}})


class Lowerer:
    """Frames to events: one of this dialect to the event that it was, one of another to as many as it takes."""

    def __init__(self) -> None:
        self._head: Json = {}
        self._fold = Fold()
        self._calls: set[tuple[int, int]] = set()  # calls that are not whole yet
        self._texts: dict[tuple[int, int], bool] = {}  # whether it is a thought
        self._ends: list[ChoiceEnd] = []
        self._usage: Json | None = None

    def lower(self, frame: Frame) -> list[Json]:
        if frame.residual is not None and NAME in frame.residual:
            return [] if "~unsaid" in frame.residual[NAME] else [_own(frame)]
        return [{**event, **self._head} for delta in frame.deltas for event in self._foreign(delta)]

    def _foreign(self, delta: Delta) -> Iterator[Json]:
        match delta:
            case Begin():
                put(self._head, modelVersion=delta.model, responseId=delta.id)
            case PartBegin(value=ToolCall()):
                self._fold.add(delta)
                self._calls.add((delta.choice, delta.part))
            case PartBegin(value=(Text() | Refusal() | Reasoning()) as value):
                self._texts[delta.choice, delta.part] = isinstance(value, Reasoning)
                if value.text:
                    yield _event(delta.choice, lower_parts((value,)))
            case PartBegin():
                yield _event(delta.choice, lower_parts((delta.value,)))
            case PartDelta() if (delta.choice, delta.part) in self._texts:
                thought = {"thought": True} if self._texts[delta.choice, delta.part] else {}
                if delta.field != "signature":
                    yield _event(delta.choice, [{"text": delta.text, **thought}])
                else:
                    yield _event(delta.choice, [{"text": "", "thoughtSignature": delta.text, **thought}])
            case PartDelta() if (delta.choice, delta.part) in self._calls:
                self._fold.add(delta)
            case ChoiceEnd():
                yield from self._called(delta.choice)
                self._ends.append(delta)
            case UsageNow():
                self._usage = lower_usage(delta.usage)
            case Broken():
                yield {"error": lower_error(delta.error)}
            case End():
                yield from self._last()

    def _called(self, choice: int) -> Iterator[Json]:
        """The calls of a sample: their arguments may have come in turns, and this vendor gives a call whole."""
        parts = sorted(part for sample, part in self._calls if sample == choice)
        if parts:
            yield _event(choice, lower_parts(tuple(self._fold.part(choice, part) for part in parts)))
        self._calls -= {(choice, part) for part in parts}

    def _last(self) -> Iterator[Json]:
        for choice in sorted({sample for sample, _ in self._calls}):
            yield from self._called(choice)
        last: Json = {"candidates": []}
        for end in self._ends:
            content = {"role": "model", "parts": []}
            reason = lower_stop(end.stop, None)
            last["candidates"].append({"content": content, "finishReason": reason, "index": end.choice})
        put(last, usageMetadata=self._usage)
        yield last


def _event(choice: int, parts: list[Json]) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": choice}]}


def _own(frame: Frame) -> Json:
    out = own(NAME, frame.residual)
    spoken: dict[int, list[PartBegin | PartDelta]] = {}
    for delta in frame.deltas:
        match delta:
            case Begin():
                put(out, responseId=delta.id, modelVersion=delta.model)
            case UsageNow():
                out["usageMetadata"] = lower_usage(delta.usage)
            case Broken():
                out["error"] = lower_error(delta.error)
            case PartBegin() | PartDelta():
                spoken.setdefault(delta.choice, []).append(delta)
    if out.get("candidates"):
        out["candidates"] = [
            _candidate(wire, wire.get("index") or place, spoken.get(wire.get("index") or place, []), frame)
            for place, wire in enumerate(out["candidates"])
        ]
    return done(out)


def _candidate(wire: Json, choice: int, spoken: list[PartBegin | PartDelta], frame: Frame) -> Json:
    out = dict(wire)
    content = wire.get("content")
    if isinstance(content, dict) and content.get("parts"):
        said = iter(spoken)
        out["content"] = {**content, "parts": [_refilled(part, said) for part in content["parts"]]}
    for delta in frame.deltas:
        if isinstance(delta, ChoiceEnd) and delta.choice == choice and "finishReason" not in wire:
            out["finishReason"] = lower_stop(delta.stop, None)
        if isinstance(delta, Logprobs) and delta.choice == choice:
            residual = None if wire["~logprobs"] is None else {NAME: {"~logprobs": wire["~logprobs"]}}
            one = Choice(message=Message(role="assistant"), logprobs=delta.tokens, residual=residual)
            out["logprobsResult"] = lower_response(ChatResponse(choices=(one,)))["candidates"][0]["logprobsResult"]
    return done(out)


def _refilled(left: Json, said: Iterator[PartBegin | PartDelta]) -> Json:
    """A part from what was left of it and from the deltas that took the rest."""
    if left["~"] == "whole":
        begin = next(each for each in said if isinstance(each, PartBegin))
        return lower_parts((begin.value,))[0]
    texts = (each.text for each in said if isinstance(each, PartDelta))
    out = {**left, "text": next(texts)}
    if left["~"] == "signed":
        out["thoughtSignature"] = next(texts)
    if "~thought" in left:
        out["thought"] = True
    return done(out)
