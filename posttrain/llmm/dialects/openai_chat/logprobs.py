"""Log-probabilities as both of OpenAI's interfaces write them."""

from __future__ import annotations

from typing import Any

from posttrain.llmm.dialects.openai_chat import NAME
from posttrain.llmm.dialects.wire import own, put, rest
from posttrain.llmm.ir.chat import Logprob
from posttrain.llmm.ir.origin import Json


def lift_logprobs(wire: Any) -> tuple[tuple[Logprob, ...] | None, Json | None]:
    """Those of the content, and what else was there."""
    if not isinstance(wire, dict):
        return None, None
    content = wire.get("content")
    left = {key: value for key, value in wire.items() if value is None or key != "content"}
    found = None if content is None else tuple(map(lift_logprob, content))
    return found, left if left or found is None else None


def lower_logprobs(logprobs: tuple[Logprob, ...] | None, left: Json | None) -> Json | None:
    if logprobs is None and left is None:
        return None
    out = dict(left) if left is not None else {}
    if logprobs is not None:
        out["content"] = [lower_logprob(each_) for each_ in logprobs]
    return out


def lift_logprob(wire: Json) -> Logprob:
    """One token of OpenAI's, with its likeliest others."""
    raw, top = wire.get("bytes"), wire.get("top_logprobs")
    return Logprob(
        token=wire["token"],
        logprob=wire.get("logprob"),
        bytes=None if raw is None else tuple(raw),
        top=None if top is None else tuple(map(lift_logprob, top)),
        residual=rest(NAME, wire, {"token", "logprob", "bytes", "top_logprobs"}),
    )


def lower_logprob(one: Logprob) -> Json:
    out = own(NAME, one.residual)
    out["token"] = one.token
    put(
        out, logprob=one.logprob, bytes=None if one.bytes is None else list(one.bytes),
        top_logprobs=None if one.top is None else [lower_logprob(each_) for each_ in one.top],
    )  # fmt: skip
    return out
