"""How old a sample is: by its oldest token, and never by one that was not produced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from posttrain.training.selection.staleness import Span, is_ahead, is_stale, staleness

spans_of = st.lists(st.builds(Span, st.integers(0, 9), st.integers(0, 4)), max_size=5)


@given(spans_of, st.integers(0, 9), st.integers(0, 4))
def test_a_sample_is_used_only_if_every_token_of_it_is_within_the_window(spans, version, window):
    tokens = [span.version for span in spans for _ in range(span.tokens)]
    usable = not is_stale(spans, version, window=window) and not is_ahead(spans, version)
    assert usable == all(version - window <= token <= version for token in tokens)


@given(spans_of, st.integers(0, 9))
def test_staleness_is_that_of_the_oldest_and_the_newest_token(spans, version):
    behind = [version - span.version for span in spans for _ in range(span.tokens)]
    assert staleness(spans, version) == ((max(behind), min(behind)) if behind else (0, 0))


def test_a_window_of_zero_is_strictly_on_policy():
    assert not is_stale([Span(3, 5)], 3, window=0)
    assert is_stale([Span(3, 5)], 4, window=0)
    assert is_stale([Span(2, 1), Span(3, 50)], 3, window=0)
