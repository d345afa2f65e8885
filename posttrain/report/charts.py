"""Charts as inline SVG. Pure: plain data in, markup out; colours are CSS classes of the page.

Every chart has a viewBox and no fixed size, so that it fits the page and prints sharply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from posttrain.report.graph import essential, positions
from posttrain.report.model import Score, StepView
from posttrain.units import duration

Points = Sequence[tuple[float, float]]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) that lie in [low, high]."""
    if not math.isfinite(low) or not math.isfinite(high) or high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def line_chart(series: Sequence[tuple[str, Points]], *, width: int = 640, height: int = 240) -> Markup:
    """Curves over training steps; several share one pair of axes. Points that are no number are left out."""
    drawn = [(name, [(x, y) for x, y in points if math.isfinite(y)]) for name, points in series]
    every = [point for _, points in drawn for point in points]
    if not every:
        return Markup("")
    left, right, top, bottom = 52, 12, 12, 28
    x_low, x_high = _span([x for x, _ in every])
    y_low, y_high = _padded([y for _, y in every])

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - x_low) / (x_high - x_low) * (width - left - right),
            height - bottom - (y - y_low) / (y_high - y_low) * (height - top - bottom),
        )

    parts = []
    for value in ticks(y_low, y_high):
        _, y = at(x_low, value)
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text("tick", left - 8, y + 4, _number(value), "end"))
    for value in ticks(x_low, x_high, 6):
        x, _ = at(value, y_low)
        parts.append(_text("tick", x, height - 8, _number(value), "middle"))
    for index, (name, points) in enumerate(drawn):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in points))
        parts.append(f'<polyline class="curve c{index}" points="{path}"/>')
        if points:
            x, y = at(*points[-1])
            title = f"<title>{escape(name)}: {points[-1][1]:.4g} at {_number(points[-1][0])}</title>"
            parts.append(f'<circle class="dot c{index}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{title}</circle>')
    return _svg(width, height, parts, "curves: " + ", ".join(name for name, _ in drawn))


def interval_chart(groups: Sequence[tuple[str, Sequence[tuple[str, Score]]]], *, width: int = 640) -> Markup:
    """Shares with their intervals, one row each, grouped: [(group, [(evaluation, score), …]), …]."""
    left, right, row, gap = 120, 64, 26, 14
    height = 34 + sum(len(scores) * row + gap for _, scores in groups)

    def at(share: float) -> float:
        return left + min(max(share, 0.0), 1.0) * (width - left - right)

    parts = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = at(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height - 24}"/>')
        parts.append(_text("tick", x, height - 8, f"{value:.0%}", "middle"))
    y = 12.0
    for group, scores in groups:
        middle = y + len(scores) * row / 2
        parts.append(
            f'<text class="label" x="{left - 14}" y="{middle + 4:.1f}" text-anchor="end">{escape(group)}</text>'
        )
        for index, (name, score) in enumerate(scores):
            centre = y + row / 2
            title = f"<title>{escape(name)}: {score.value:.1%} ({score.low:.1%} to {score.high:.1%})</title>"
            ends = f'x1="{at(score.low):.1f}" x2="{at(score.high):.1f}" y1="{centre:.1f}" y2="{centre:.1f}"'
            dot = f'<circle class="dot" cx="{at(score.value):.1f}" cy="{centre:.1f}" r="6"/>'
            parts.append(f'<g class="c{index}">{title}<line class="whisker" {ends}/>{dot}</g>')
            parts.append(_text("value", at(score.high) + 10, centre + 4, f"{score.value:.1%}"))
            y += row
        y += gap
    return _svg(width, height, parts, "scores with their intervals")


def graph_chart(steps: Sequence[StepView]) -> Markup:
    """The workflow: one box a step, coloured by its phase, with its time."""
    box, tall, across, down, margin = 128, 50, 156, 72, 6
    waits_for = {step.name: step.waits_for for step in steps}
    place = positions(waits_for)
    top = min((row for _, row in place.values()), default=0.0)

    def corner(name: str) -> tuple[float, float]:
        column, row = place[name]
        return margin + column * across, margin + (row - top) * down

    width = 2 * margin + max((c for c, _ in place.values()), default=0) * across + box
    height = 2 * margin + (max((row for _, row in place.values()), default=0.0) - top) * down + tall
    parts = []
    for source, target in essential(waits_for):
        (x1, y1), (x2, y2) = corner(source), corner(target)
        x1, y1, y2 = x1 + box, y1 + tall / 2, y2 + tall / 2
        turn = x2 - (across - box)  # an edge over several columns keeps its row until the last gap
        bend = (turn + x2) / 2
        parts.append(
            f'<path class="edge" d="M{x1:.0f},{y1:.0f} H{turn:.0f} '
            f'C{bend:.0f},{y1:.0f} {bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"/>'
        )
    for step in steps:
        x, y = corner(step.name)
        detail = duration(step.seconds) if step.seconds is not None else step.phase.lower()
        title = f"<title>{escape(step.name)}: {escape(step.phase)} {escape(step.message)}</title>"
        outline = f'<rect x="{x:.0f}" y="{y:.0f}" width="{box}" height="{tall}" rx="8"/>'
        name = _text("name", x + box / 2, y + 21, step.name, "middle")
        time = _text("time", x + box / 2, y + 38, detail, "middle")
        parts.append(f'<g class="node {escape(step.phase.lower())}">{title}{outline}{name}{time}</g>')
    return _svg(width, height, parts, "the workflow's graph")


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str], label: str) -> Markup:
    body = "".join(parts)
    # Everything a user wrote was escaped where it was put in.
    return Markup(
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" role="img" '
        f'aria-label="{escape(label)}">{body}</svg>'
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = _span(values)
    pad = 0.06 * (high - low)
    return (max(0.0, low - pad) if low >= 0 else low - pad), high + pad


def _number(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
