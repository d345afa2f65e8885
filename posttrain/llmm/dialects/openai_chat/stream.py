"""The stream of OpenAI Chat Completions: chunks with a delta for each sample.

A chunk is a frame. Parts are numbered as the whole message has them (reasoning 0, text 1, refusal 2, calls from 3), so
that the fold is the message whatever came first. A part ends when another one of its sample begins, or with the
sample. An empty text begins no part: vendors open with one even where only calls follow.
"""

from __future__ import annotations

from posttrain.llmm.dialects.openai_chat import NAME
from posttrain.llmm.dialects.openai_chat.answers import (
    STOP_WORDS,
    lift_error,
    lift_stop,
    lift_usage,
    lower_error,
    lower_stop,
    lower_usage,
    whole_seconds,
)
from posttrain.llmm.dialects.openai_chat.logprobs import lift_logprobs, lower_logprobs
from posttrain.llmm.dialects.wire import as_list, done, own, put
from posttrain.llmm.ir.chat import Part, Reasoning, Refusal, Text, ToolCall, arguments_text
from posttrain.llmm.ir.origin import Json
from posttrain.llmm.ir.stream import (
    Begin,
    Broken,
    ChoiceEnd,
    Delta,
    End,
    Frame,
    Logprobs,
    PartBegin,
    PartDelta,
    PartEnd,
    UsageNow,
)

_HEAD = ("id", "model", "created")
_TEXTS: dict[str, tuple[int, Part]] = {
    "reasoning_content": (0, Reasoning(text="")),
    "reasoning": (0, Reasoning(text="", residual={NAME: {"~key": "reasoning"}})),
    "content": (1, Text(text="")),
    "refusal": (2, Refusal(text="")),
}
_CALLS = 3


class Lifter:
    """Chunks to frames, one by one; `finish` after the last."""

    def __init__(self) -> None:
        self._head: Json | None = None
        self._open: dict[int, int | None] = {}  # sample -> the part that takes deltas
        self._known: set[tuple[int, int]] = set()

    def lift(self, chunk: Json) -> Frame:
        deltas: list[Delta] = []
        left = dict(chunk)
        if (error := left.pop("error", None)) is not None:
            deltas.append(Broken(error=lift_error(error)))
        if self._head is None and "choices" in chunk:
            self._head = {key: chunk.get(key) for key in _HEAD}
            more = {k: v for k, v in chunk.items() if k not in (*_HEAD, "choices", "usage", "object", "obfuscation")}
            deltas.append(Begin(**self._head, residual={NAME: more} if more else None))
        for key in _HEAD:
            if self._head is not None and key in left and left[key] == self._head[key]:
                del left[key]
        if self._head is not None and (missing := [key for key in _HEAD if key not in chunk]):
            left["~absent"] = missing
        if chunk.get("object") == "chat.completion.chunk":
            del left["object"]
        else:
            left["~object"] = chunk.get("object")
        if chunk.get("choices") is not None:
            left["choices"] = [self._choice(each, deltas) for each in as_list(chunk["choices"], "choices")]
        if (usage := left.get("usage")) is not None:
            del left["usage"]
            deltas.append(UsageNow(usage=lift_usage(usage)))
        return Frame(deltas=tuple(deltas), residual={NAME: left})

    def _choice(self, wire: Json, deltas: list[Delta]) -> Json:
        left, index = dict(wire), wire.get("index", 0)
        said = wire.get("delta")
        if isinstance(said, dict):
            left["delta"] = self._delta(said, index, deltas)
        logprobs, more = lift_logprobs(wire.get("logprobs"))
        if logprobs is not None:
            deltas.append(Logprobs(tokens=logprobs, choice=index))
            left["logprobs"] = more
        if (reason := wire.get("finish_reason")) is not None:
            stop = lift_stop(reason)
            self._end(index, deltas)
            deltas.append(ChoiceEnd(choice=index, stop=stop))
            if STOP_WORDS.get(stop) == reason:  # type: ignore[arg-type]
                del left["finish_reason"]
        return left

    def _delta(self, said: Json, index: int, deltas: list[Delta]) -> Json:
        left = dict(said)
        for key, (part, empty) in _TEXTS.items():
            if isinstance(text := said.get(key), str) and text:
                self._begin(index, part, empty, deltas)
                deltas.append(PartDelta(text=text, part=part, choice=index))
                del left[key]
        if said.get("tool_calls"):
            left["tool_calls"] = [self._call(each, index, deltas) for each in said["tool_calls"]]
        return left

    def _call(self, wire: Json, index: int, deltas: list[Delta]) -> Json:
        left, inner = dict(wire), dict(wire.get("function") or {})
        part = _CALLS + wire.get("index", 0)
        if (index, part) not in self._known:
            self._begin(index, part, ToolCall(name=inner.get("name") or "", id=wire.get("id"), arguments=""), deltas)
            for where, key in ((left, "id"), (inner, "name")):
                if where.get(key):
                    del where[key]
        if text := inner.get("arguments"):
            deltas.append(PartDelta(text=text, part=part, choice=index))
            del inner["arguments"]
        if wire.get("function") is not None:
            left["function"] = inner
        return left

    def _begin(self, choice: int, part: int, value: Part, deltas: list[Delta]) -> None:
        if (choice, part) in self._known:
            return
        self._end(choice, deltas)
        self._known.add((choice, part))
        self._open[choice] = part
        deltas.append(PartBegin(value=value, part=part, choice=choice))

    def _end(self, choice: int, deltas: list[Delta]) -> None:
        if (part := self._open.get(choice)) is not None:
            deltas.append(PartEnd(part=part, choice=choice))
            self._open[choice] = None

    def finish(self) -> Frame:
        """What the end of the stream says: nothing on the wire."""
        deltas: list[Delta] = []
        for choice in list(self._open):
            self._end(choice, deltas)
        return Frame(deltas=(*deltas, End()), residual={NAME: {"~unsaid": True}})


class Lowerer:
    """Frames to chunks: one of this dialect to the chunk that it was, one of another to a chunk for each delta."""

    def __init__(self, *, usage: bool = True) -> None:
        """`usage` False leaves the chunk with the usage out, as for a client that did not ask for it."""
        self._head: Json = {}
        self._keys: dict[tuple[int, int], str] = {}
        self._calls: dict[tuple[int, int], int] = {}
        self._usage = usage

    def lower(self, frame: Frame) -> list[Json]:
        if frame.residual is not None and NAME in frame.residual:
            return [] if "~unsaid" in frame.residual[NAME] else [self._own(frame)]
        return self._foreign(frame)

    def _own(self, frame: Frame) -> Json:
        out = own(NAME, frame.residual)
        choices = {each.get("index", 0): _copied(each) for each in out.get("choices") or ()}
        for delta in frame.deltas:
            match delta:
                case Begin():
                    self._head = {"id": delta.id, "model": delta.model, "created": delta.created}
                case UsageNow():
                    out["usage"] = lower_usage(delta.usage)
                case Broken():
                    out["error"] = lower_error(delta.error)
                case ChoiceEnd():
                    choices[delta.choice].setdefault("finish_reason", lower_stop(delta.stop, None))
                case Logprobs():
                    left = choices[delta.choice].get("logprobs")
                    choices[delta.choice]["logprobs"] = lower_logprobs(delta.tokens, left)
                case PartBegin() | PartDelta():
                    self._fill(delta, choices[delta.choice]["delta"])
        if choices:
            out["choices"] = list(choices.values())
        out = {**self._head, **out}
        if (kind := out.get("~object", "chat.completion.chunk")) is not None:
            out["object"] = kind
        return done(out)

    def _fill(self, delta: PartBegin | PartDelta, said: Json) -> None:
        if delta.part < _CALLS:
            if isinstance(delta, PartDelta):
                said[self._keys[delta.choice, delta.part]] = delta.text
            else:
                self._place(delta)
            return
        call = next(each for each in said["tool_calls"] if each.get("index", 0) == delta.part - _CALLS)
        if isinstance(delta, PartDelta):
            call["function"]["arguments"] = delta.text
        elif isinstance(delta.value, ToolCall):
            put(call, id=delta.value.id or None)
            if delta.value.name:
                call["function"]["name"] = delta.value.name

    def _place(self, delta: PartBegin) -> None:
        value = delta.value
        key = "reasoning_content" if isinstance(value, Reasoning) else "refusal"
        key = "content" if isinstance(value, Text) else own(NAME, value.residual).get("~key", key)
        self._keys[delta.choice, delta.part] = key

    def _foreign(self, frame: Frame) -> list[Json]:
        chunks: list[Json] = []
        logprobs: dict[int, Json | None] = {
            delta.choice: lower_logprobs(delta.tokens, {"refusal": None})
            for delta in frame.deltas
            if isinstance(delta, Logprobs)
        }
        for delta in frame.deltas:
            match delta:
                case Begin():
                    self._head = {"id": delta.id, "model": delta.model, "created": whole_seconds(delta.created)}
                    chunks.append(self._chunk(0, {"role": "assistant", "content": ""}))
                case UsageNow() if self._usage:
                    chunks.append({**self._chunk(0, {}), "choices": [], "usage": lower_usage(delta.usage)})
                case Broken():
                    chunks.append({"error": lower_error(delta.error)})
                case ChoiceEnd():
                    chunks.append(self._chunk(delta.choice, {}, lower_stop(delta.stop, None)))
                case PartBegin() | PartDelta():
                    if (said := self._said(delta)) is not None:
                        chunks.append(self._chunk(delta.choice, said))
                        chunks[-1]["choices"][0]["logprobs"] = logprobs.pop(delta.choice, None)
        for choice, left in logprobs.items():
            chunks.append(self._chunk(choice, {}))
            chunks[-1]["choices"][0]["logprobs"] = left
        return chunks

    def _said(self, delta: PartBegin | PartDelta) -> Json | None:
        place = delta.choice, delta.part
        if isinstance(delta, PartDelta):
            if delta.field == "signature":
                return None
            if (number := self._calls.get(place)) is not None:
                return {"tool_calls": [{"index": number, "function": {"arguments": delta.text}}]}
            return {self._keys[place]: delta.text} if place in self._keys else None
        value = delta.value
        if isinstance(value, ToolCall):
            number = self._calls[place] = sum(choice == delta.choice for choice, _ in self._calls)
            inner = {"name": value.name, "arguments": arguments_text(value) if value.arguments else ""}
            return {"tool_calls": [{"index": number, "id": value.id, "type": "function", "function": inner}]}
        if not isinstance(value, Text | Reasoning | Refusal):
            return None
        self._place(delta)
        return {self._keys[place]: value.text} if value.text else None

    def _chunk(self, choice: int, said: Json, reason: str | None = None) -> Json:
        choices = [{"index": choice, "delta": said, "logprobs": None, "finish_reason": reason}]
        return {**self._head, "object": "chat.completion.chunk", "choices": choices}


def _copied(choice: Json) -> Json:
    """A choice whose delta can be filled while the frame stays as it is."""
    copy = dict(choice)
    if isinstance(choice.get("delta"), dict):
        copy["delta"] = said = dict(choice["delta"])
        if said.get("tool_calls"):
            said["tool_calls"] = [
                {**call, "function": dict(call["function"])} if call.get("function") is not None else dict(call)
                for call in said["tool_calls"]
            ]
    return copy
