"""Level `tokens`: ids with spans, log-probabilities and the policy's versions. This is the fact; messages are a view.

Invariants: spans tile the ids; the loss mask is 1 exactly on the spans that may be trained on, which are those
that the policy sampled; `logprobs` has one entry for each id, of the sampling policy, 0 where the mask is 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from posttrain.llmm.ir.completion import Span, tiles


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", tag="tokens"):
    """T ids. `tokenizer` is the digest of the tokenizer that they belong to."""

    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    logprobs: tuple[float, ...] | None = None
    tokenizer: str | None = None

    def __len__(self) -> int:
        return len(self.ids)


def loss_mask(tokens: Tokens) -> list[int]:
    """[T], 1 where a loss may be taken."""
    mask = [0] * len(tokens.ids)
    for span in tokens.spans:
        if span.trainable:
            mask[span.start : span.end] = [1] * (span.end - span.start)
    return mask


def policy_versions(tokens: Tokens) -> list[tuple[int, int, int]]:
    """(version, start, end) of the sampled tokens, in order; neighbours of one version are joined."""
    return joined(
        (-1 if span.policy is None else span.policy, span.start, span.end)
        for span in tokens.spans
        if span.trainable and span.end != span.start
    )


def joined(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(version, start, end) in order, neighbours of one version as one."""
    found: list[tuple[int, int, int]] = []
    for version, start, end in spans:
        if found and found[-1][0] == version and found[-1][2] == start:
            found[-1] = (version, found[-1][1], end)
        else:
            found.append((version, start, end))
    return found


def wrong(tokens: Tokens) -> str | None:
    """Which invariant is broken; None where all hold."""
    if not tiles(tokens.spans, len(tokens.ids)):
        return "spans do not tile the ids"
    if any(span.trainable and span.author != "policy" for span in tokens.spans):
        return "a span may be trained on that the policy did not sample"
    if tokens.logprobs is not None:
        if len(tokens.logprobs) != len(tokens.ids):
            return f"{len(tokens.logprobs)} log-probabilities for {len(tokens.ids)} ids"
        if any(value and not kept for value, kept in zip(tokens.logprobs, loss_mask(tokens), strict=True)):
            return "a log-probability stands on a token that was not sampled"
    return None
