"""The model card of a release: what it is, where it came from, what it scored. Pure text over plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What a card tells. `before` and `after` are scores as `posttrain.evaluation.summary.scores` gives them;
    `training` is the record of the step that trained the model; refs are in their string form."""

    name: str
    run: str
    license: str
    base: str
    train: str
    evaluated_on: str
    checkpoint: str
    verdict: str
    before: dict[str, Any]
    after: dict[str, Any]
    training: dict[str, Any]
    difference: tuple[float, float]  # largest and mean, of the load check
    confidence: float


def render(facts: Facts) -> str:
    base_name = facts.base.partition("#")[0].removeprefix("models/")
    lines = [
        "---",
        *([f"license: {facts.license}"] if facts.license else []),
        f"base_model: {base_name}",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "tags: [posttrain]",
        "---",
        "",
        f"# {facts.name}, run {facts.run}",
        "",
        f"Post-trained from `{base_name}` by the step `{facts.training['step']}`.",
        "",
        "## Scores",
        "",
        f"Intervals are at {facts.confidence:.0%} confidence, on {facts.after['rows']} held-out prompts.",
        "",
        "| | accuracy | format rate | mean tokens | cut short |",
        "|---|---|---|---|---|",
        _scores("before", facts.before),
        _scores("after", facts.after),
        "",
        f"Gate: {facts.verdict}",
        "",
        "## Lineage",
        "",
        "| | |",
        "|---|---|",
        f"| base model | `{facts.base}` |",
        f"| training data | `{facts.train}` |",
        f"| evaluation | `{facts.evaluated_on}` |",
        f"| checkpoint | `{facts.checkpoint}` |",
        f"| source | `{facts.training['source']['digest']}` |",
        f"| environment | {facts.training['environment']['name']} `{facts.training['environment']['digest']}` |",
        f"| seed | {facts.training['seed']} |",
        "",
        "The weights were compared with the checkpoint, both computed in float32: log-probabilities differ by at most "
        f"{facts.difference[0]:.2g} and by {facts.difference[1]:.2g} on average.",
        "",
        "## Training configuration",
        "",
        "```json",
        json.dumps(facts.training["config"], indent=2, sort_keys=True),
        "```",
        "",
        "## Use",
        "",
        "```sh",
        "python -m vllm.entrypoints.openai.api_server --model . --served-model-name " + facts.name,
        "```",
    ]
    return "\n".join(lines) + "\n"


def _scores(label: str, scores: dict[str, Any]) -> str:
    accuracy = f"{scores['accuracy']:.1%} ({scores['accuracy_low']:.1%} to {scores['accuracy_high']:.1%})"
    form, length, cut = f"{scores['format_rate']:.1%}", f"{scores['mean_tokens']:.1f}", f"{scores['truncated']:.1%}"
    return f"| {label} | {accuracy} | {form} | {length} | {cut} |"
