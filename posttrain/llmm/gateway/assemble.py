"""Sampled ids of one call to an answer: deltas as pieces come, facts for the history when they are all there. Pure.

Invariants: the deltas of a stream fold to the same answer as all pieces at once; the ids that are kept are the
engine's, whatever the text makes of them. Counts of tokens are those of the ids: nobody's usage block is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from posttrain.llmm import ir
from posttrain.llmm.gateway.engine import Piece, TokenLogprob
from posttrain.llmm.ir import stream as flow
from posttrain.llmm.tokens.codec import TextStream
from posttrain.llmm.tokens.history import Sampled
from posttrain.llmm.tokens.messages import schemas, tool_call
from posttrain.llmm.tokens.model import ChatModel
from posttrain.llmm.tokens.parsers import Call, Event, ReasoningDelta, TextDelta, parser_for
from posttrain.llmm.tokens.parsers.formats import AnyParser
from posttrain.llmm.tokens.parsers.sections import held_back


class UntilStop:
    """Text up to the first of some stop texts, which may lie across pieces, or within a token."""

    def __init__(self, stops: Sequence[str]):
        self._stops, self._rest = tuple(stop for stop in stops if stop), ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        if self.found is not None or not self._stops:
            return "" if self.found is not None else text
        self._rest += text
        places = [(self._rest.find(stop), stop) for stop in self._stops if stop in self._rest]
        if places:
            place, self.found = min(places)
            return self._rest[:place]
        keep = held_back(self._rest, self._stops)
        said, self._rest = self._rest[: len(self._rest) - keep], self._rest[len(self._rest) - keep :]
        return said

    def finish(self) -> str:
        return "" if self.found is not None else self._rest


@dataclass
class _Sample:
    text: TextStream
    stop: UntilStop
    parser: AnyParser
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    policy: tuple[tuple[int, int, int], ...] = ()
    finish: str | None = None
    stop_reason: int | str | None = None
    calls: int = 0
    part: int = -1
    kind: type[Event] | None = None  # of the part that is open


class Assembler:
    """One call. `policy` is the version of the weights where the engine does not tell."""

    def __init__(
        self, model: ChatModel, request: ir.ChatRequest, *, response: str, name: str, created: float, thinking: bool,
        prompt_tokens: int, policy: int = -1,
    ):  # fmt: skip
        self._model, self._request, self._policy = model, request, policy
        self._head = flow.Begin(
            id=response, model=name, created=created, usage=ir.Usage(input=prompt_tokens, output=0, total=prompt_tokens)
        )
        self._prompt_tokens = prompt_tokens
        self._free = {tool.name for tool in request.tools or () if tool.free}
        none = request.tool_choice is not None and request.tool_choice.mode == "none"
        known = schemas(request)

        def sample() -> _Sample:
            parser = parser_for(model.format, thinking=thinking, tools=bool(known) and not none, schemas=known)
            return _Sample(model.codec.stream(), UntilStop(request.sampling.stop or ()), parser)

        self._fold = flow.Fold()
        self._samples = [sample() for _ in range(request.sampling.n or 1)]

    def begin(self) -> list[flow.Delta]:
        return self._folded([self._head])

    def take(self, pieces: Sequence[Piece]) -> list[flow.Delta]:
        """What the pieces add to the answer."""
        deltas: list[flow.Delta] = []
        for piece in pieces:
            sample = self._samples[piece.index]
            ids = piece.token_ids or []
            sample.ids += ids
            content = piece.logprobs.content or [] if piece.logprobs is not None else []
            sample.logprobs += [entry.logprob for entry in content]
            if piece.weight_versions:
                sample.policy = tuple((self._number(s.version), s.start, s.end) for s in piece.weight_versions)
            if piece.finish_reason is not None:
                sample.finish, sample.stop_reason = piece.finish_reason, piece.stop_reason
            visible = [token for token in ids if token not in self._model.ends]
            text = sample.stop.feed(sample.text.feed(visible))
            if text:
                deltas += self._say(piece.index, sample, sample.parser.feed(text))
            if content and self._request.sampling.logprobs:
                shown = tuple(self._logprob(entry, top=True) for entry in content)
                deltas.append(flow.Logprobs(tokens=shown, choice=piece.index))
        return self._folded(deltas)

    def finish(self) -> list[flow.Delta]:
        """The end of every sample, and of the answer."""
        deltas: list[flow.Delta] = []
        for index, sample in enumerate(self._samples):
            rest = sample.stop.feed(sample.text.finish()) + sample.stop.finish()
            events = [*(sample.parser.feed(rest) if rest else []), *sample.parser.finish()]
            deltas += self._say(index, sample, events)
            deltas += self._end_part(index, sample)
            deltas.append(self._end(index, sample))
        return self._folded([*deltas, flow.UsageNow(usage=self.usage), flow.End()])

    def response(self) -> ir.ChatResponse:
        """The answer so far."""
        return self._fold.response()

    def _folded(self, deltas: list[flow.Delta]) -> list[flow.Delta]:
        for delta in deltas:
            self._fold.add(delta)
        return deltas

    @property
    def usage(self) -> ir.Usage:
        output = sum(len(sample.ids) for sample in self._samples)
        return ir.Usage(input=self._prompt_tokens, output=output, total=self._prompt_tokens + output)

    @property
    def whole(self) -> bool:
        """Whether the engine has said of every sample why it ended."""
        return all(sample.finish not in (None, "abort") for sample in self._samples)

    def sampled(self) -> list[Sampled]:
        """The facts, a sample each."""
        return [
            Sampled(
                tuple(sample.ids), tuple(sample.logprobs) if len(sample.logprobs) == len(sample.ids) else None,
                sample.policy or (((self._policy, 0, len(sample.ids)),) if sample.ids else ()),
            )
            for sample in self._samples
        ]  # fmt: skip

    def _say(self, index: int, sample: _Sample, events: Sequence[Event]) -> Iterator[flow.Delta]:
        for event in events:
            if isinstance(event, Call):
                yield from self._end_part(index, sample)
                sample.part, sample.calls = sample.part + 1, sample.calls + 1
                call = tool_call(event, free=event.name in self._free)
                empty = ir.ToolCall(name=call.name, arguments="", id=call.id, free=call.free)
                yield flow.PartBegin(value=empty, part=sample.part, choice=index)
                yield flow.PartDelta(text=str(call.arguments), part=sample.part, choice=index)
                yield flow.PartEnd(part=sample.part, choice=index)
                continue
            if sample.kind is not type(event):
                yield from self._end_part(index, sample)
                sample.part, sample.kind = sample.part + 1, type(event)
                empty_part = ir.Text(text="") if isinstance(event, TextDelta) else ir.Reasoning(text="")
                yield flow.PartBegin(value=empty_part, part=sample.part, choice=index)
            assert isinstance(event, TextDelta | ReasoningDelta)
            yield flow.PartDelta(text=event.text, part=sample.part, choice=index)

    def _end_part(self, index: int, sample: _Sample) -> Iterator[flow.Delta]:
        if sample.kind is not None:
            sample.kind = None
            yield flow.PartEnd(part=sample.part, choice=index)

    def _end(self, index: int, sample: _Sample) -> flow.ChoiceEnd:
        if sample.finish == "length":
            return flow.ChoiceEnd(choice=index, stop="length")
        text = sample.stop.found or (sample.stop_reason if isinstance(sample.stop_reason, str) else None)
        if text is not None:
            return flow.ChoiceEnd(choice=index, stop="stop_sequence", stop_sequence=text)
        return flow.ChoiceEnd(choice=index, stop="tool_calls" if sample.calls else "end")

    def _number(self, version: str | int) -> int:
        """A version's number: engines give a label, which a trainer sets to one. One that is none tells nothing."""
        return int(version) if str(version).isdecimal() else self._policy

    def _logprob(self, entry: TokenLogprob, *, top: bool) -> ir.Logprob:
        text = self._model.codec.token_text(entry.token_id)
        wanted = self._request.sampling.top_logprobs or 0
        others = tuple(self._logprob(other, top=False) for other in entry.top_logprobs[:wanted]) if top else None
        return ir.Logprob(token=text, logprob=entry.logprob, id=entry.token_id, bytes=tuple(text.encode()), top=others)
