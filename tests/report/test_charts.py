"""Charts: what is drawn is what was given, and nothing a model wrote becomes markup."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from posttrain.report.charts import graph_chart, interval_chart, line_chart, ticks
from posttrain.report.model import Score, StepView

FINITE = st.floats(-1e12, 1e12, allow_nan=False)


@given(FINITE, st.floats(1e-6, 1e12))
def test_ticks_are_few_lie_inside_and_are_evenly_apart(low: float, span: float) -> None:
    high = low + span
    if high <= low:
        return
    found = ticks(low, high)
    assert len(found) <= 11
    margin = 1e-6 * max(abs(low), abs(high), 1e-6)
    assert all(low - margin <= t <= high + margin for t in found)
    gaps = [b - a for a, b in pairwise(found)]
    assert all(math.isclose(g, gaps[0], rel_tol=1e-3, abs_tol=margin) for g in gaps)


@given(st.floats(1e-9, 1e9))
def test_what_a_tick_reads_as_is_where_it_stands(span: float) -> None:
    drawn = ElementTree.fromstring(line_chart([("learning_rate", [(0, 0.0), (1, span)])]))
    shown = [
        float((text.text or "").replace(",", "")) for text in drawn.iter("text") if text.get("text-anchor") == "end"
    ]
    meant = ticks(0.0, 1.06 * span)
    assert len(shown) == len(meant)
    assert all(math.isclose(s, m, rel_tol=1e-3) for s, m in zip(shown, meant, strict=True))


@given(st.lists(st.tuples(FINITE, st.floats(-1e12, 1e12) | st.just(math.nan) | st.just(math.inf)), max_size=30))
def test_any_curve_gives_well_formed_markup_within_its_box(points: list[tuple[float, float]]) -> None:
    drawn = line_chart([("loss", points)])
    if not any(math.isfinite(y) for _, y in points):
        assert drawn == ""
        return
    root = ElementTree.fromstring(drawn)
    shown = root.find("polyline").get("points").split()  # type: ignore[union-attr]
    assert len(shown) == sum(math.isfinite(y) for _, y in points)
    for pair in shown:
        x, y = map(float, pair.split(","))
        assert -0.1 <= x <= 640.1 and -0.1 <= y <= 240.1


def test_the_mark_of_a_score_lies_within_its_whisker_and_scores_keep_their_order() -> None:
    chart = interval_chart([("accuracy", [("baseline", Score(0.1, 0.05, 0.2)), ("candidate", Score(0.6, 0.5, 0.7))])])
    groups = ElementTree.fromstring(chart).findall("g")
    places = []
    for group in groups:
        line, dot = group.find("line"), group.find("circle")
        assert line is not None and dot is not None
        low, centre, high = (float(v) for v in (line.get("x1"), dot.get("cx"), line.get("x2")))  # type: ignore[arg-type]
        assert low < centre < high
        places.append(centre)
    assert places == sorted(places)


def test_a_name_that_is_markup_is_shown_as_text() -> None:
    name = "<script>alert(1)</script>"
    steps = [StepView(name, "Failed", message=name), StepView("b", "Succeeded", seconds=1.0, waits_for=(name,))]
    for drawn in (
        graph_chart(steps),
        line_chart([(name, [(0, 1), (1, 2)])]),
        interval_chart([(name, [(name, Score(0.5, 0.4, 0.6))])]),
    ):
        assert "<script" not in drawn
        ElementTree.fromstring(drawn)
