"""By rule: exact, numeric (with units), mathematics, reasoning-gym, regular expression, JSON schema."""

from __future__ import annotations

import re
from typing import Any

from posttrain.errors import UserError
from posttrain.reward.answers import block
from posttrain.reward.model import Finding, Problem, Question, Status
from posttrain.reward.rules import number, same_number, same_text, tolerance_of
from posttrain.reward.score import gym_entry
from posttrain.reward.settings import Lane
from posttrain.reward.verifiers.base import Tools, asked, extract, library, nothing_found, scored

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_LONGEST_JSON = 200_000


class Exact:
    """The text, blanks collapsed; metadata: {"ignore_case": bool}. `answer` may be one of several: {"accept": […]}."""

    lane, usual, prepare = "rules", Lane(concurrency=64), None

    async def version(self, question: Question, tools: Tools) -> str:
        return "1"

    async def verify(self, question: Question, tools: Tools) -> Finding:
        extracted, formed = extract(question)
        if extracted is None:
            return nothing_found()
        accept, ignore = question.metadata.get("accept", []), bool(question.metadata.get("ignore_case"))
        if not isinstance(accept, list) or not all(isinstance(a, str) for a in accept):
            raise Problem(Status.invalid_answer, "metadata.accept is no list of texts")
        right = any(same_text(answer, extracted, ignore_case=ignore) for answer in [question.answer, *accept])
        return scored(float(right), extracted, formed)


class Numeric:
    """The number; metadata: {"tolerance": relative or absolute}. With {"unit": …}, or a unit in the answer, quantities
    are compared: {"unit_required": bool, "absolute": in the answer's unit}."""

    lane, usual, prepare = "quantities", Lane(concurrency=1), "units"

    async def version(self, question: Question, tools: Tools) -> str:
        return library("pint")

    async def verify(self, question: Question, tools: Tools) -> Finding:
        details = question.metadata
        try:
            tolerance = tolerance_of(details)
        except UserError as problem:
            raise Problem(Status.invalid_answer, str(problem)) from None
        quantity = "unit" in details or number(question.answer) is None
        extracted, formed = extract(question)
        if extracted is None:
            return nothing_found()
        if not quantity:
            return scored(float(same_number(question.answer, extracted, tolerance)), extracted, formed)
        unit, absolute = details.get("unit", ""), details.get("absolute", 0.0)
        if not isinstance(unit, str) or isinstance(absolute, bool) or not isinstance(absolute, int | float):
            raise Problem(Status.invalid_answer, "metadata.unit is no text, or metadata.absolute no number")
        required = bool(details.get("unit_required"))
        return await asked(
            tools, "quantity", question.answer, extracted, tolerance, float(absolute), unit, required,
            extracted=extracted, well_formed=formed,
        )  # fmt: skip


class Math:
    """An equal expression, by math-verify."""

    lane, usual, prepare = "math", Lane(concurrency=1), "math"

    async def version(self, question: Question, tools: Tools) -> str:
        return library("math-verify")

    async def verify(self, question: Question, tools: Tools) -> Finding:
        extracted, formed = extract(question)
        if extracted is None:
            return nothing_found()
        return await asked(tools, "math", question.answer, extracted, extracted=extracted, well_formed=formed)


class ReasoningGym:
    """`reasoning_gym:DATASET`: the data set's own score, which may be a part of full marks."""

    lane, usual, prepare = "reasoning_gym", Lane(concurrency=1), "reasoning_gym"

    async def version(self, question: Question, tools: Tools) -> str:
        return library("reasoning-gym")

    async def verify(self, question: Question, tools: Tools) -> Finding:
        name = question.verifier.partition(":")[2]
        if await tools.ask("known", name) is not True:
            raise Problem(Status.not_found, f"reasoning-gym has no data set {name!r}")
        extracted, formed = extract(question)
        if extracted is None:
            return nothing_found()
        entry = gym_entry(question.answer, question.metadata)
        return await asked(tools, "reasoning_gym", name, entry, extracted, extracted=extracted, well_formed=formed)


class Regex:
    """The answer matches `metadata.pattern`, as a whole or, with {"search": true}, somewhere; {"flags": "ims"}."""

    lane, usual, prepare = "patterns", Lane(concurrency=2), "patterns"

    async def version(self, question: Question, tools: Tools) -> str:
        return "1"

    async def verify(self, question: Question, tools: Tools) -> Finding:
        pattern, flags = question.metadata.get("pattern"), question.metadata.get("flags", "")
        if not isinstance(pattern, str):
            raise Problem(Status.invalid_answer, "metadata.pattern is missing")
        if not isinstance(flags, str) or set(flags) - set(_FLAGS):
            raise Problem(Status.invalid_answer, "metadata.flags holds other letters than i, m and s")
        text: str | None
        if question.metadata.get("search"):
            text, formed = question.completion, True
        else:
            text, formed = extract(question)
        if text is None:
            return nothing_found()
        bits = sum(_FLAGS[letter] for letter in set(flags))
        whole = not question.metadata.get("search")
        return await asked(tools, "regex", pattern, bits, whole, text, extracted=text[:2000], well_formed=formed)


class JsonSchema:
    """The answer is JSON that fits `metadata.schema` (draft 2020-12 unless it names another)."""

    lane, usual, prepare = "patterns", Lane(concurrency=2), "patterns"

    async def version(self, question: Question, tools: Tools) -> str:
        return library("jsonschema")

    async def verify(self, question: Question, tools: Tools) -> Finding:
        schema: Any = question.metadata.get("schema")
        if not isinstance(schema, dict | bool):
            raise Problem(Status.invalid_answer, "metadata.schema is no schema")
        text, formed = block(question.completion, ("json",), question.form, longest=_LONGEST_JSON)
        if text is None:
            return nothing_found()
        return await asked(tools, "json_schema", schema, text, extracted=text[:2000], well_formed=formed)
