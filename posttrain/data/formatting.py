"""From a clean row to a conversation: system prompt, question in its form, answer in its form."""

from __future__ import annotations

import re

from posttrain.contract.digest import digest_value
from posttrain.data.config import Prompt
from posttrain.data.schema import Example, Raw
from posttrain.data.text import units


def to_example(raw: Raw, prompt: Prompt, label: str) -> Example:
    """The example of a clean row; `label` is its source's name. A conversation stays as it is."""
    if raw.messages:
        ends = raw.messages[-1]["role"] == "assistant"
        turns = raw.messages[:-1] if ends else raw.messages
        target = raw.messages[-1]["content"] if ends else _reply(raw, prompt)
        question = "\n".join(m["content"] for m in turns if m["role"] != "system")
    else:
        turns = ({"role": "user", "content": prompt.user.format(question=raw.question)},)
        target, question = _reply(raw, prompt), raw.question
    system = raw.system or prompt.system
    if system and turns[0]["role"] != "system":
        turns = ({"role": "system", "content": system}, *turns)
    return Example(
        id=raw.id or f"{label}-{digest_value([units(question), raw.answer])[7:23]}",
        source=raw.source, question=question, prompt=turns, target=target, answer=raw.answer,
        verifier=raw.verifier, metadata=raw.metadata, tier=raw.tier,
    )  # fmt: skip


def _reply(raw: Raw, prompt: Prompt) -> str:
    reasoning = {"none": "", "column": raw.reasoning, "steps": running_sum(str(raw.metadata.get("expression", "")))}
    return prompt.assistant.format(answer=raw.answer, reasoning=_spaced(reasoning[prompt.reasoning]))


def _spaced(text: str) -> str:
    return f"{text}\n" if text else ""


def running_sum(expression: str) -> str:
    """The steps of a sum from left to right: `12 + 5 - 3` gives `12 + 5 = 17, 17 - 3 = 14`; else nothing."""
    if not re.fullmatch(r"-?\d+( [+-] -?\d+)+", expression):
        return ""
    first, *rest = expression.split(" ")
    total, steps = int(first), []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        result = total + int(term) if sign == "+" else total - int(term)
        steps.append(f"{total} {sign} {term} = {result}")
        total = result
    return ", ".join(steps)
