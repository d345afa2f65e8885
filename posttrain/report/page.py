"""Draws a `RunReport` as one HTML page that needs nothing from elsewhere."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from posttrain.report.charts import graph_chart, interval_chart, line_chart
from posttrain.report.model import Evaluation, RunReport, Sample, Score, StepView
from posttrain.units import duration

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(report: RunReport, *, samples: int = 24) -> str:
    """The page. Of the samples the first `samples` are shown, those whose verdict changed first."""
    return _TEMPLATES.get_template("page.html.j2").render(
        report=report,
        headline=headline(report),
        scores=_score_chart(report.evaluations),
        tiers=_tier_chart(report.evaluations),
        graph=graph_chart(report.steps),
        curves=_curve_charts(report.steps),
        samples=by_interest(report.samples)[:samples],
        total_samples=len(report.samples),
        timeline=_timeline(report),
        environments=_environments(report.steps),
        gate=report.step("gate"),
        verify=report.step("verify"),
        export=report.step("export"),
        duration=duration,
        moment=_moment,
        brief=_brief,
        pretty=_pretty,
    )


def headline(report: RunReport) -> str:
    """The run in one sentence."""
    if len(report.evaluations) < 2:
        return ""
    before, after = report.evaluations[0].accuracy, report.evaluations[-1].accuracy
    points = 100 * (after.value - before.value)
    apart = "do not overlap" if after.low > before.high or before.low > after.high else "overlap"
    return f"Accuracy {before.value:.1%} → {after.value:.1%} ({points:+.1f} points; the 95 % intervals {apart})"


def by_interest(samples: tuple[Sample, ...]) -> list[Sample]:
    """Samples whose verdict changed first, gains before losses, then those that stayed wrong."""

    def rank(sample: Sample) -> int:
        verdicts = [a.correct for a in sample.answers]
        if len(set(verdicts)) > 1:
            return 0 if verdicts[-1] else 1
        return 3 if verdicts[-1:] == [True] else 2

    ranked = sorted(samples, key=rank)
    gains, losses = ([s for s in ranked if rank(s) == r] for r in (0, 1))
    mixed = [s for pair in zip(gains, losses, strict=False) for s in pair]
    shown = {s.id for s in mixed}
    return mixed + [s for s in ranked if s.id not in shown]


def _score_chart(evaluations: tuple[Evaluation, ...]) -> Any:
    return interval_chart([("accuracy", [(e.name, e.accuracy) for e in evaluations])]) if evaluations else ""


def _tier_chart(evaluations: tuple[Evaluation, ...]) -> Any:
    names = list(dict.fromkeys(tier for e in evaluations for tier in e.tiers))
    known = [t for t in ("easy", "medium", "hard") if t in names] + [
        t for t in names if t not in ("easy", "medium", "hard")
    ]
    groups: list[tuple[str, list[tuple[str, Score]]]] = [
        (tier, [(e.name, e.tiers[tier]) for e in evaluations if tier in e.tiers]) for tier in known
    ]
    return interval_chart(groups) if groups else ""


def _curve_charts(steps: tuple[StepView, ...]) -> list[dict[str, Any]]:
    """One chart for each step's losses together, and one for each other metric."""
    charts = []
    for step in steps:
        losses = [(name, points) for name, points in step.curves.items() if "loss" in name]
        others = [(name, points) for name, points in step.curves.items() if "loss" not in name]
        for series in ([losses] if losses else []) + [[one] for one in others]:
            charts.append({"step": step.name, "names": [name for name, _ in series], "svg": line_chart(series)})
    return charts


def _timeline(report: RunReport) -> list[dict[str, Any]]:
    """Each step's start and length as shares of the run."""
    started = [s.started for s in report.steps if s.started]
    if not started:
        return [{"step": s, "left": 0.0, "width": 0.0} for s in report.steps]
    begin = min(started)
    end = max(s.started + (s.seconds or 0.0) for s in report.steps if s.started)
    whole = max(end - begin, 1e-9)
    return [
        {
            "step": s,
            "left": 100 * ((s.started or begin) - begin) / whole,
            "width": max(100 * (s.seconds or 0.0) / whole, 0.4) if s.started else 0.0,
        }
        for s in report.steps
    ]


def _environments(steps: tuple[StepView, ...]) -> list[dict[str, Any]]:
    """What the steps ran in, those that agree together."""
    found: dict[str, dict[str, Any]] = {}
    for step in steps:
        if step.record:
            facts = {k: step.record[k] for k in ("environment", "source", "host")}
            key = json.dumps(facts, sort_keys=True)
            found.setdefault(key, facts | {"steps": []})["steps"].append(step.name)
    return list(found.values())


def _moment(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y, %H:%M UTC") if seconds else "–"


def _brief(value: Any) -> str:
    """A value for a table: numbers short, digests cut."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.5g}"
    text = str(value)
    head, mark, digest = text.partition("#sha256:")
    return f"{head}#{digest[:12]}…" if mark else text


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
