"""A streamed answer: deltas in order, in frames, and the answer that they fold to.

Invariants: a frame holds what one event of the wire said, so that a stream of the same dialect comes back event by
event; a part begins before its deltas and ends after them; `fold` of a whole stream is the answer that would have
been given without streaming.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from posttrain.llmm.ir.chat import (
    ChatResponse,
    Choice,
    Citation,
    Failure,
    Logprob,
    Message,
    Part,
    Reasoning,
    Refusal,
    Stop,
    Text,
    ToolCall,
    Usage,
    arguments_text,
)
from posttrain.llmm.ir.origin import Residual


class _Delta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag=str.lower):
    pass


class Begin(_Delta, frozen=True):
    """The answer begins: what is known of it at once."""

    id: str | None = None
    model: str | None = None
    created: float | None = None
    usage: Usage | None = None
    residual: Residual | None = None  # of the response


class PartBegin(_Delta, frozen=True):
    """Part number `part` of the sample `choice` begins as `value`, to which its deltas are added."""

    value: Part
    part: int
    choice: int = 0


class PartDelta(_Delta, frozen=True):
    """More of a part. `field` text: the text, or a call's arguments; else the field of that name."""

    text: str
    part: int
    choice: int = 0
    field: Literal["text", "summary", "signature"] = "text"


class PartCitation(_Delta, frozen=True):
    """A source for the text of the part."""

    citation: Citation
    part: int
    choice: int = 0


class PartEnd(_Delta, frozen=True):
    """The part is whole; `value` is all of it where the wire says it again, or what its begin could not know."""

    part: int
    choice: int = 0
    value: Part | None = None


class Logprobs(_Delta, frozen=True):
    tokens: tuple[Logprob, ...]
    choice: int = 0


class ChoiceEnd(_Delta, frozen=True):
    """The sample `choice` ended, and why."""

    choice: int = 0
    stop: Stop | None = None
    stop_sequence: str | None = None
    residual: Residual | None = None  # of the choice


class UsageNow(_Delta, frozen=True):
    """Tokens so far: each field that is set stands in the place of an earlier one."""

    usage: Usage


class Also(_Delta, frozen=True):
    """More for the residual of the response."""

    residual: Residual


class Broken(_Delta, frozen=True):
    """The rest of the answer does not come."""

    error: Failure


class End(_Delta, frozen=True):
    """The answer is whole; `response` where the wire says all of it again."""

    response: ChatResponse | None = None


Delta = Begin | PartBegin | PartDelta | PartCitation | PartEnd | Logprobs | ChoiceEnd | UsageNow | Also | Broken | End


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag="frame"):
    """What one event of the wire said; `residual` is the event's."""

    deltas: tuple[Delta, ...] = ()
    residual: Residual | None = None


class Fold:
    """Deltas into an answer, one by one; `response()` is the answer so far."""

    def __init__(self) -> None:
        self._begin = Begin()
        self._parts: dict[int, dict[int, Part]] = {}
        self._fragments: dict[tuple[int, int], dict[str, list[str]]] = {}
        self._citations: dict[tuple[int, int], list[Citation]] = {}
        self._logprobs: dict[int, list[Logprob]] = {}
        self._ends: dict[int, ChoiceEnd] = {}
        self._usage: Usage | None = None
        self._error: Failure | None = None
        self._whole: ChatResponse | None = None

    def add(self, delta: Delta) -> None:
        match delta:
            case PartDelta():
                self._fragments[delta.choice, delta.part].setdefault(delta.field, []).append(delta.text)
            case PartBegin():
                self._parts.setdefault(delta.choice, {})[delta.part] = delta.value
                self._fragments[delta.choice, delta.part] = {}
            case PartEnd():
                if delta.value is not None:
                    self._parts.setdefault(delta.choice, {})[delta.part] = delta.value
                    self._fragments[delta.choice, delta.part] = {}
            case PartCitation():
                self._citations.setdefault((delta.choice, delta.part), []).append(delta.citation)
            case Logprobs():
                self._logprobs.setdefault(delta.choice, []).extend(delta.tokens)
            case ChoiceEnd():
                self._ends[delta.choice] = delta
                self._parts.setdefault(delta.choice, {})
            case UsageNow():
                self._usage = _newer(self._usage, delta.usage)
            case Also():
                self._begin = msgspec.structs.replace(
                    self._begin, residual=_merged(self._begin.residual, delta.residual)
                )
            case Broken():
                self._error = delta.error
            case End():
                self._whole = delta.response
            case Begin():
                self._begin, self._usage = delta, delta.usage

    def part(self, choice: int, part: int) -> Part:
        """One part as it stands."""
        value = self._parts[choice][part]
        for name, pieces in self._fragments[choice, part].items():
            value = _with(value, name, "".join(pieces))
        if citations := self._citations.get((choice, part)):
            value = msgspec.structs.replace(value, citations=tuple(citations))
        return value

    def response(self) -> ChatResponse:
        """The answer so far."""
        if self._whole is not None:
            return self._whole
        begin = self._begin
        choices = tuple(self._choice(index) for index in sorted(self._parts))
        return ChatResponse(
            choices=choices, id=begin.id, model=begin.model, created=begin.created, usage=self._usage,
            error=self._error, residual=begin.residual,
        )  # fmt: skip

    def _choice(self, index: int) -> Choice:
        parts = tuple(self.part(index, part) for part in sorted(self._parts[index]))
        end, logprobs = self._ends.get(index, ChoiceEnd()), self._logprobs.get(index)
        return Choice(
            message=Message(role="assistant", parts=parts), index=index, stop=end.stop,
            stop_sequence=end.stop_sequence, residual=end.residual,
            logprobs=None if logprobs is None else tuple(logprobs),
        )  # fmt: skip


def fold(frames: Iterable[Frame]) -> ChatResponse:
    """The answer that a stream adds up to."""
    folded = Fold()
    for frame in frames:
        for delta in frame.deltas:
            folded.add(delta)
    return folded.response()


def unfold(response: ChatResponse, size: int = 16) -> list[Frame]:
    """A whole answer as a stream of deltas of at most `size` characters; its fold is the answer again."""
    deltas: list[Delta] = [
        Begin(id=response.id, model=response.model, created=response.created, residual=response.residual)
    ]
    for choice in response.choices:
        for index, part in enumerate(choice.message.parts):
            deltas += _unfolded(part, index, choice.index, size)
        if choice.logprobs is not None:
            deltas.append(Logprobs(tokens=choice.logprobs, choice=choice.index))
        deltas.append(
            ChoiceEnd(
                choice=choice.index, stop=choice.stop, stop_sequence=choice.stop_sequence, residual=choice.residual
            )
        )
    if response.usage is not None:
        deltas.append(UsageNow(usage=response.usage))
    if response.error is not None:
        deltas.append(Broken(error=response.error))
    return [Frame(deltas=(delta,)) for delta in (*deltas, End())]


def _unfolded(part: Part, number: int, choice: int, size: int) -> list[Delta]:
    begin: Part = part
    texts: list[tuple[str, str]] = []
    citations: tuple[Citation, ...] = ()
    match part:
        case Text():
            begin = msgspec.structs.replace(part, text="", citations=None, signature=None)
            texts, citations = [("text", part.text)], part.citations or ()
        case Refusal():
            begin, texts = msgspec.structs.replace(part, text=""), [("text", part.text)]
        case Reasoning(text=str(text)):
            begin, texts = msgspec.structs.replace(part, text="", signature=None), [("text", text)]
        case ToolCall(arguments=str(text)):
            begin, texts = msgspec.structs.replace(part, arguments=""), [("text", text)]
        case ToolCall():
            begin, texts = msgspec.structs.replace(part, arguments=""), [("text", arguments_text(part))]
    deltas: list[Delta] = [PartBegin(value=begin, part=number, choice=choice)]
    for name, text in texts:
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        deltas += [PartDelta(text=piece, part=number, choice=choice, field=name) for piece in pieces]  # type: ignore
    deltas += [PartCitation(citation=each, part=number, choice=choice) for each in citations]
    if isinstance(part, Text | Reasoning) and begin is not part and part.signature is not None:
        deltas.append(PartDelta(text=part.signature, part=number, choice=choice, field="signature"))
    return [*deltas, PartEnd(part=number, choice=choice)]


def _with(value: Part, name: str, more: str) -> Part:
    match value, name:
        case ((Text() | Refusal()), "text"):
            return msgspec.structs.replace(value, text=value.text + more)
        case Reasoning(), "summary":
            return msgspec.structs.replace(value, summary=(*(value.summary or ()), more))
        case Reasoning(), "text":
            return msgspec.structs.replace(value, text=(value.text or "") + more)
        case ToolCall(arguments=str(text)), "text":
            return msgspec.structs.replace(value, arguments=text + more)
        case ToolCall(), "text":
            return msgspec.structs.replace(value, arguments=more)
        case ((Text() | Reasoning() | ToolCall()), "signature"):
            return msgspec.structs.replace(value, signature=(value.signature or "") + more)
    raise ValueError(f"a part of kind {type(value).__name__} takes no {name}")


def _newer(old: Usage | None, new: Usage) -> Usage:
    if old is None:
        return new
    said = {name: value for name in Usage.__struct_fields__ if (value := getattr(new, name)) is not None}
    said["residual"] = _merged(old.residual, new.residual)
    return msgspec.structs.replace(old, **said)


def _merged(old: Residual | None, new: Residual | None) -> Residual | None:
    """Both; the newer one's values stand."""
    if old is None or new is None:
        return new if old is None else old
    return {name: {**old.get(name, {}), **new.get(name, {})} for name in {**old, **new}}
