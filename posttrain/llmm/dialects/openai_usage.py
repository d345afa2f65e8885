"""How OpenAI's two interfaces count tokens: alike, in words of their own.

What was read from a cache is a part of what was asked, thoughts are a part of what was sampled.
"""

from __future__ import annotations

from typing import Any

from posttrain.llmm.dialects.wire import done, own, put
from posttrain.llmm.ir.chat import Usage
from posttrain.llmm.ir.origin import Json

_OF_ASKED, _OF_SAMPLED = frozenset(("cached_tokens", "cache_write_tokens")), frozenset(("reasoning_tokens",))
_NOTHING: Json = {}


class Counts:
    """`asked` and `sampled` are the dialect's words (`prompt_tokens`, say); beside each stand its details. `whole`: of
    another's usage all details are given, for the interface always gives them."""

    def __init__(self, name: str, asked: str, sampled: str, *, whole: bool):
        self._name, self._whole, self._asked, self._sampled = name, whole, asked, sampled
        self._of_asked, self._of_sampled = f"{asked}_details", f"{sampled}_details"
        self._known = frozenset((asked, sampled, "total_tokens"))

    def lift(self, wire: Json) -> Usage:
        get, known = wire.get, self._known
        mine = {key: value for key, value in wire.items() if value is None or key not in known}
        read = _taken(mine, self._of_asked, _OF_ASKED)
        thought = _taken(mine, self._of_sampled, _OF_SAMPLED)
        return Usage(
            input=get(self._asked), output=get(self._sampled), total=get("total_tokens"),
            cached=read.get("cached_tokens"), cache_written=read.get("cache_write_tokens"),
            reasoning=thought.get("reasoning_tokens"), residual={self._name: mine},
        )  # fmt: skip

    def lower(self, usage: Usage) -> Json:
        residual = usage.residual
        mine = residual is not None and self._name in residual
        out = own(self._name, residual)
        asked, sampled, total = usage.input, usage.output, usage.total
        if total is None and not mine and asked is not None and sampled is not None:
            total = asked + sampled
        put(out, **{self._asked: asked, self._sampled: sampled, "total_tokens": total})
        read, written, thought = usage.cached, usage.cache_written, usage.reasoning
        if self._whole and not mine:
            read, written, thought = read or 0, written or 0, thought or 0
        _give(out, self._of_asked, cached_tokens=read, cache_write_tokens=written)
        _give(out, self._of_sampled, reasoning_tokens=thought)
        return done(out) if mine else out


def _taken(mine: Json, key: str, words: frozenset[str]) -> Json:
    """The details, which become a note of what the IR has no word for."""
    details: Any = mine.get(key)
    if not isinstance(details, dict):
        return _NOTHING
    del mine[key]
    mine[f"~{key}"] = {word: count for word, count in details.items() if count is None or word not in words}
    return details


def _give(out: Json, key: str, **counts: int | None) -> None:
    said = out.get(f"~{key}")
    inner = dict(said) if said is not None else {}
    put(inner, **counts)
    if inner or said is not None:
        out[key] = inner
