"""Verdicts by rule: whether a completion answers its prompt, in this process and without a model.

Invariants: `score` never raises for anything a model may write, never runs it as code, and ends within
`TIME_LIMIT` seconds of processor time; the same arguments always give the same verdict.

    exact                  the text is the answer's, blanks collapsed; metadata: {"ignore_case": bool}
    numeric                the number is the answer's; metadata: {"tolerance": float}, relative or absolute, default 0
    math                   the expression equals the answer's, by math-verify
    reasoning_gym:DATASET  the data set's own `score_answer` gives full marks; metadata: the entry's `metadata`, plus
                           "question" where the data set's scoring reads it

What is taken as the answer is an `AnswerForm`: what stands between `<answer>` and `</answer>`, the last such
pair by default. A completion without the pair is not well formed. Unless the form is strict it is still read as
a reader would, so that a model's accuracy and its obedience to the format are measured apart: its last number where
the expected answer is a number, else its last line that is not blank (math-verify reads the whole of it).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from posttrain.contract.config import json_object
from posttrain.errors import UserError
from posttrain.reward.answers import AnswerForm, taken
from posttrain.reward.isolated import START_LIMIT, TIME_LIMIT, GaveUp, ask
from posttrain.reward.model import FULL_MARKS
from posttrain.reward.rules import same_number, same_text, tolerance_of

__all__ = ["TIME_LIMIT", "AnswerForm", "Verdict", "check", "score"]

_PREFIX = "reasoning_gym:"


class Verdict(NamedTuple):
    """`extracted` is what was taken as the answer, None where nothing was found."""

    correct: bool
    well_formed: bool
    extracted: str | None


DEFAULT_FORM = AnswerForm()


def score(
    verifier: str,
    answer: str,
    metadata: str | Mapping[str, Any],
    completion: str,
    *,
    form: AnswerForm = DEFAULT_FORM,
) -> Verdict:
    """The verdict on `completion`, whose right answer is `answer`.

    `metadata` is a mapping or its JSON text (empty for none). Raises UserError for an unknown verifier or for
    metadata that cannot be read: mistakes of the data, never of the completion.
    """
    details = _details(metadata)
    _known(verifier)
    extracted, well_formed = taken(verifier, answer, completion, form)
    if extracted is None:
        return Verdict(False, False, None)
    return Verdict(_matches(verifier, answer, details, extracted), well_formed, extracted)


def check(verifier: str, answer: str, metadata: str | Mapping[str, Any]) -> None:
    """Raise UserError where `verifier` is unknown or does not hold the expected answer itself to be right."""
    details = _details(metadata)
    _known(verifier)
    if not _matches(verifier, answer, details, answer.strip()):
        raise UserError(f"{verifier} does not accept the row's own answer", field="answer", value=answer)


@cache
def _known(verifier: str) -> None:
    if verifier in ("exact", "numeric"):
        return
    name = verifier.removeprefix(_PREFIX)
    if verifier != "math" and name == verifier:
        remedy = "known: exact, numeric, math, reasoning_gym:DATASET"
        raise UserError("is no verifier", field="verifier", value=verifier, remedy=remedy)
    try:
        found = ask("known", name, limit=START_LIMIT)
    except GaveUp:
        raise UserError("could not be loaded", field="verifier", value=verifier, remedy="see the log") from None
    if found is not True:
        raise UserError("reasoning-gym has no such data set", field="verifier", value=verifier)


def _details(metadata: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(metadata, str):
        return metadata
    return json_object(metadata, field="metadata") if metadata.strip() else {}


def _matches(verifier: str, answer: str, details: Mapping[str, Any], extracted: str) -> bool:
    if verifier == "exact":
        return same_text(answer, extracted, ignore_case=bool(details.get("ignore_case")))
    if verifier == "numeric":
        return same_number(answer, extracted, tolerance_of(details))
    try:
        if verifier == "math":
            found = ask("math", answer, extracted)
        else:
            found = ask("reasoning_gym", verifier.removeprefix(_PREFIX), gym_entry(answer, details), extracted)
    except GaveUp:
        return False
    return found["reward"] >= FULL_MARKS


def gym_entry(answer: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """What a data set's `score_answer` reads."""
    return {"question": details.get("question", ""), "answer": answer, "metadata": dict(details)}
