"""The order of the stages. Pure: rows in, rows out; reading and writing are elsewhere.

    raw rows -> clean -> conversation -> tokens -> exact duplicates -> near duplicates -> tiers
             -> evaluation -> decontamination -> validation -> training

The evaluation set is chosen first and the rest is decontaminated against it, so that the other sets have
their exact sizes. Every row that came in is in one of the sets, left over, removed or rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from posttrain.data import decontaminate, dedup, formatting, split, tiers
from posttrain.data.clean import clean, content_of
from posttrain.data.config import ROOT, DataConfig
from posttrain.data.schema import Example, Raw, Rejected, Removed
from posttrain.data.tiers import PassRate
from posttrain.data.tokens import CountTokens
from posttrain.data.track import Track, untracked
from posttrain.errors import UserError


@dataclass
class Sound:
    """What cleaning leaves. `read` counts the rows of each source."""

    examples: list[Example] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    read: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return len(self.examples) + len(self.rejected)


@dataclass
class Sets:
    """The three sets, the sound rows that no set asked for, and those that were removed."""

    train: list[Example]
    validation: list[Example]
    evaluation: list[Example]
    left_over: list[Example]
    removed: list[Removed]


def sound(
    rows: Iterable[Raw | Rejected], config: DataConfig, count_tokens: CountTokens | None, context_length: int = 0
) -> Sound:
    """Clean the rows and make conversations of them. `context_length` 0: no limit but the configured one."""
    result, ids = Sound(), Counter[str]()
    kept: list[tuple[Raw, Example]] = []
    for row in rows:
        result.read[row.source] += 1
        neat = clean(row, config.limits) if isinstance(row, Raw) else row
        if isinstance(neat, Rejected):
            result.rejected.append(neat)
            continue
        example = formatting.to_example(neat, config.prompt, config.sources[row.source].label)
        ids[example.id] += 1
        if ids[example.id] > 1:
            if neat.id:
                result.rejected.append(_reject(neat, "duplicate_id", f"another row has the id {neat.id}"))
                continue
            example = replace(example, id=f"{example.id}-{ids[example.id]}")
        kept.append((neat, example))
    limit = config.limits.tokens or context_length
    counts = (
        count_tokens([example.messages(with_target=True) for _, example in kept], open_ended=False)
        if count_tokens
        else [0] * len(kept)
    )
    for (raw, example), tokens in zip(kept, counts, strict=True):
        if limit and tokens > limit:
            detail = f"{tokens} tokens where {limit} are allowed"
            result.rejected.append(_reject(raw, "too_many_tokens", detail))
        else:
            result.examples.append(replace(example, tokens=tokens))
    return result


def divide(
    examples: list[Example], config: DataConfig, seed: int, *, count_tokens: CountTokens | None = None,
    pass_rate: PassRate | None = None, track: Track = untracked,
) -> Sets:  # fmt: skip
    """The sets. Raises UserError naming the key where too few rows are left for what was asked."""
    removed: list[Removed] = []
    into = [source.into for source in config.sources]

    def distinct(rows: list[Example]) -> list[Example]:
        if config.dedup.exact:
            rows, gone = dedup.exact(rows)
            removed.extend(gone)
        if config.dedup.near and rows:
            rows, gone = dedup.near(rows, config.dedup, track)
            removed.extend(gone)
        return rows

    # Apart, so that a question of both is taken from training (below) and not from the evaluation.
    fixed = distinct([example for example in examples if into[example.source] == "evaluation"])
    others = distinct([example for example in examples if into[example.source] != "evaluation"])
    graded = tiers.assign([*fixed, *others], config.tiers, pass_rate)

    evaluation, rest = _choose("evaluation", graded, config, seed)
    spare = [example for example in rest if into[example.source] == "evaluation"]
    rest = [example for example in rest if into[example.source] != "evaluation"]
    if config.decontamination.enabled:
        rest, gone = decontaminate.decontaminate(rest, evaluation, config.decontamination)
        removed.extend(gone)
    validation, rest = _choose("validation", rest, config, seed)
    spare += [example for example in rest if into[example.source] == "validation"]
    rest = [example for example in rest if into[example.source] != "validation"]
    train, left_over = _take("train", rest, config.split.train or max(len(rest), 1), seed)
    if count_tokens:
        prompts = [example.messages(with_target=False) for example in evaluation]
        counts = count_tokens(prompts, open_ended=True)
        evaluation = [replace(e, tokens=tokens) for e, tokens in zip(evaluation, counts, strict=True)]
    return Sets(train, validation, evaluation, [*left_over, *spare], removed)


def _choose(name: str, rows: list[Example], config: DataConfig, seed: int) -> tuple[list[Example], list[Example]]:
    """The set `name` and the other rows.

    It comes from the sources that go `into` it, at most as many rows as are asked for; without such a source,
    exactly as many from those to split.
    """
    own = {index for index, source in enumerate(config.sources) if source.into == name}
    of = own or {index for index, source in enumerate(config.sources) if source.into == "split"}
    eligible = [example for example in rows if example.source in of]
    count = getattr(config.split, name)
    chosen, unchosen = _take(name, eligible, max(1, min(count, len(eligible))) if own else count, seed)
    return chosen, [*unchosen, *(example for example in rows if example.source not in of)]


def _take(name: str, rows: list[Example], count: int, seed: int) -> tuple[list[Example], list[Example]]:
    if count > len(rows):
        raise UserError(
            f"only {len(rows)} different rows are left for it", field=f"{ROOT}.split.{name}", value=count,
            remedy="ask for fewer, or give larger sources",
        )  # fmt: skip
    return split.take(rows, count, seed)


def _reject(raw: Raw, reason: str, detail: str) -> Rejected:
    return Rejected(raw.source, raw.place, reason, detail, content_of(raw))
