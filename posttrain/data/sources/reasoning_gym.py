"""Problems that reasoning-gym generates, with the verifier that belongs to them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS

from posttrain.data.config import Source
from posttrain.data.schema import Raw, Rejected
from posttrain.data.sources.template import fill
from posttrain.errors import UserError


def read(source: Source, index: int, where: str, seed: int) -> Iterator[Raw | Rejected]:
    generator = _generator(source, where, seed)
    for number in range(source.size):
        entry = generator[number]
        question, metadata = str(entry["question"]), dict(entry["metadata"])
        shown = fill(source.question, {"question": question} | metadata, f"{where}.question") or question
        yield Raw(
            source=index, place=str(number), question=shown, answer=str(entry["answer"]),
            verifier=f"reasoning_gym:{source.dataset}",
            metadata=metadata | {"question": question},  # some generators' scoring reads it
            tier=source.tier,
        )  # fmt: skip


def _generator(source: Source, where: str, seed: int) -> Any:
    if source.dataset not in DATASETS:
        near = difflib.get_close_matches(source.dataset, DATASETS, n=1)
        remedy = f"did you mean {near[0]}?" if near else "see reasoning_gym's gallery"
        raise UserError("reasoning-gym has no such generator", field=f"{where}.dataset", value=source.dataset,
                        remedy=remedy)  # fmt: skip
    known = {f.name for f in fields(DATASETS[source.dataset][1])} - {"seed", "size"}
    for key in source.parameters:
        if key not in known:
            raise UserError(f"{source.dataset} has no such parameter", field=f"{where}.parameters.{key}",
                            remedy=f"known: {', '.join(sorted(known))}")  # fmt: skip
    try:
        return reasoning_gym.create_dataset(source.dataset, seed=seed, size=source.size, **source.parameters)
    except (AssertionError, TypeError, ValueError) as problem:
        raise UserError(f"{source.dataset} refuses them: {problem}", field=f"{where}.parameters",
                        value=source.parameters) from None  # fmt: skip
