"""Numbers as people read them."""

from __future__ import annotations

import pytest

from posttrain.errors import UserError
from posttrain.units import count, duration, quantity


def test_durations_read_well() -> None:
    assert [duration(s) for s in (None, 0.42, 59.4, 59.6, 245.0, 3599.6, 7384.0)] == [
        "–", "0.4 s", "59 s", "1 min 00 s", "4 min 05 s", "1 h 00 min", "2 h 03 min",
    ]  # fmt: skip


def test_counts_read_well() -> None:
    assert [count(n) for n in (0, 950, 9999, 41_000, 1_250_000, 3e9)] == ["0", "950", "9999", "41k", "1.25M", "3G"]


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-1", "1e400", "1e999999999Ei", "x", "", None, []])
def test_what_is_no_quantity_is_one_line(text: object) -> None:
    with pytest.raises(UserError, match=r"^cpu: is ") as refused:
        quantity(text, "cpu")
    assert "\n" not in str(refused.value)
