"""Verifiers: whether a completion answers its prompt, by rule and without a model.

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

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from posttrain.errors import UserError
from posttrain.evaluation.judge import START_LIMIT, TIME_LIMIT, judge

__all__ = ["TIME_LIMIT", "AnswerForm", "Verdict", "check", "score"]

LONGEST = 2000  # characters of an answer worth reading; what is longer is no answer
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?:\s*/\s*\d+)?|[-+]?\.\d+")
_PREFIX = "reasoning_gym:"


class Verdict(NamedTuple):
    """`extracted` is what was taken as the answer, None where nothing was found."""

    correct: bool
    well_formed: bool
    extracted: str | None


@dataclass
class AnswerForm:
    """Where the answer stands in a completion: inside the tag `tag`, the `take` ("first", "last" or "only") such pair.

    "only" holds a completion with several pairs to be badly formed. `strict` takes no answer from
    outside of the tag. Raises UserError for values that make no sense.
    """

    tag: str = "answer"
    take: str = "last"
    strict: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][\w-]*", self.tag):
            raise UserError("is no tag name", field="answer.tag", value=self.tag, remedy="write letters, as in answer")
        if self.take not in ("first", "last", "only"):
            raise UserError("is no rule", field="answer.take", value=self.take, remedy="write first, last or only")

    def find(self, completion: str) -> str | None:
        """The text inside the chosen pair of tags, stripped; None where there is no such pair."""
        found = _pair(self.tag).findall(completion)
        if not found or (self.take == "only" and len(found) > 1):
            return None
        text = found[0 if self.take == "first" else -1].strip()
        return text if text and len(text) <= LONGEST else None


@cache
def _pair(tag: str) -> re.Pattern[str]:
    # The inner part holds no opening tag, so that an unclosed one does not swallow the pair behind it.
    return re.compile(rf"<{tag}>((?:(?!<{tag}>).)*?)</{tag}>", re.DOTALL)


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
    extracted = form.find(completion)
    well_formed = extracted is not None
    if extracted is None and not form.strict:
        extracted = _without_tags(verifier, answer, completion)
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
    found = judge("known", name, limit=START_LIMIT)
    if found is None:
        raise UserError("could not be loaded", field="verifier", value=verifier, remedy="see the log")
    if not found:
        raise UserError("reasoning-gym has no such data set", field="verifier", value=verifier)


def _details(metadata: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(metadata, str):
        return metadata
    if not metadata.strip():
        return {}
    try:
        value = json.loads(metadata)
    except json.JSONDecodeError as problem:
        raise UserError(f"is no JSON: {problem}", field="metadata", value=metadata) from None
    if not isinstance(value, dict):
        raise UserError("is no JSON object", field="metadata", value=metadata)
    return value


def _matches(verifier: str, answer: str, details: Mapping[str, Any], extracted: str) -> bool:
    if verifier == "exact":
        left, right = _collapse(answer), _collapse(extracted)
        return left.casefold() == right.casefold() if details.get("ignore_case") else left == right
    if verifier == "numeric":
        return _same_number(answer, extracted, _tolerance(details))
    if verifier == "math":
        return bool(judge("math", answer, extracted))
    entry = {"question": details.get("question", ""), "answer": answer, "metadata": dict(details)}
    return bool(judge("reasoning_gym", verifier.removeprefix(_PREFIX), entry, extracted))


def _tolerance(details: Mapping[str, Any]) -> float:
    value = details.get("tolerance", 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise UserError("is no tolerance", field="metadata.tolerance", value=value, remedy="write a number from 0 up")
    return float(value)


def _without_tags(verifier: str, answer: str, completion: str) -> str | None:
    if verifier == "math":
        return completion[-LONGEST:] or None
    if _number(answer) is not None:
        numbers = _NUMBER.findall(completion[-LONGEST:])
        return numbers[-1].rstrip(",") if numbers else None
    lines = [line.strip() for line in completion.splitlines() if line.strip()]
    return lines[-1] if lines and len(lines[-1]) <= LONGEST else None


def _collapse(text: str) -> str:
    return " ".join(text.split())


def _number(text: str) -> Fraction | None:
    """The number that `text` as a whole spells ("1,234.5", "-3/4", "1e3"), else None."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        return Fraction(text.replace(",", "").replace(" ", ""))
    except (ValueError, ZeroDivisionError):
        # Fraction reads "3/4" and "1e3" but no mixture of the two.
        return None


def _same_number(answer: str, extracted: str, tolerance: float) -> bool:
    expected, given = _number(answer), _number(extracted)
    if expected is None or given is None:
        return False
    return expected == given or (tolerance > 0 and math.isclose(expected, given, rel_tol=tolerance, abs_tol=tolerance))
