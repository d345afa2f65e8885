"""Where the answer stands in a completion. Pure; what a model may write never raises here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from posttrain.errors import UserError
from posttrain.reward.rules import NUMBER, number

LONGEST = 2000  # characters of an answer worth reading; what is longer is no answer
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


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

    def find(self, completion: str, *, longest: int = LONGEST) -> str | None:
        """The text inside the chosen pair of tags, stripped; None where there is no such pair."""
        found = _pair(self.tag).findall(completion)
        if not found or (self.take == "only" and len(found) > 1):
            return None
        text = found[0 if self.take == "first" else -1].strip()
        return text if text and len(text) <= longest else None


@cache
def _pair(tag: str) -> re.Pattern[str]:
    # The inner part holds no opening tag, so that an unclosed one does not swallow the pair behind it.
    return re.compile(rf"<{tag}>((?:(?!<{tag}>).)*?)</{tag}>", re.DOTALL)


def taken(verifier: str, answer: str, completion: str, form: AnswerForm) -> tuple[str | None, bool]:
    """What is taken as the answer of a completion, and whether it stood where it should."""
    found = form.find(completion)
    if found is not None or form.strict:
        return found, found is not None
    return _without_tags(verifier, answer, completion), False


def _without_tags(verifier: str, answer: str, completion: str) -> str | None:
    """What a reader would take as the answer of a completion without the tag; None where there is nothing."""
    if verifier == "math":
        return completion[-LONGEST:] or None
    if number(answer) is not None:
        numbers = NUMBER.findall(completion[-LONGEST:])
        return numbers[-1].rstrip(",") if numbers else None
    lines = [line.strip() for line in completion.splitlines() if line.strip()]
    return lines[-1] if lines and len(lines[-1]) <= LONGEST else None


def block(completion: str, languages: tuple[str, ...], form: AnswerForm, *, longest: int) -> tuple[str | None, bool]:
    """Code or data of a completion, and whether it stood where it should: in the last fenced block of one of
    `languages` (or of none), in the tag, else the whole text. None for what is empty or longer than `longest`."""
    inside = form.find(completion, longest=longest)
    text = completion if inside is None else inside
    fenced = [body for language, body in _FENCE.findall(text) if language.lower() in ("", *languages)]
    found = fenced[-1] if fenced else text
    if not found.strip() or len(found) > longest or (form.strict and inside is None):
        return None, False
    return found, bool(fenced) or inside is not None
