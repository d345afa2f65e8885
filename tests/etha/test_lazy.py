"""A lazy tensor has the elements that an ordinary one would have, and asks for no other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from posttrain.errors import UserError
from posttrain.etha.bases import Refused
from posttrain.etha.boxes import union
from posttrain.etha.lazy import LazyTensor
from posttrain.etha.slices import Box, Want
from posttrain.etha.wants import _Learning, _Loading

Operation = Callable[[Tensor], Tensor]


@st.composite
def cut(draw: st.DrawFn, shape: tuple[int, ...]) -> Operation:
    """One that no box is too coarse for."""
    dim = draw(st.integers(0, len(shape) - 1))
    start = draw(st.integers(0, shape[dim] - 1))
    length = draw(st.integers(1, shape[dim] - start))
    order = draw(st.permutations(range(len(shape))))
    return draw(
        st.sampled_from(
            [
                lambda t: t.narrow(dim, start, length),
                lambda t: t[(slice(None),) * dim + (slice(start, start + length),)],
                lambda t: t.chunk(2, dim)[0],
                lambda t: t.split(length, dim)[-1],
                lambda t: t.select(dim, start).unsqueeze(dim),
                lambda t: t.unbind(dim)[start].unsqueeze(0),
                lambda t: t.permute(order).contiguous(),
                lambda t: t.transpose(0, dim),
                lambda t: t.unsqueeze(dim).expand(*t.shape[:dim], 2, *t.shape[dim:]),
                lambda t: t.to(torch.float64).clone(),
                lambda t: t.index_select(dim, torch.tensor([start, 0, start])),
                lambda t: t.repeat_interleave(2, dim),
                lambda t: torch.cat([t.narrow(dim, start, length), t.narrow(dim, 0, 1)], dim),
                lambda t: torch.stack([t, t], dim),
            ]
        )
    )


@st.composite
def reshaped(draw: st.DrawFn, shape: tuple[int, ...]) -> Operation:
    split = draw(st.integers(0, len(shape) - 1))
    factor = draw(st.sampled_from([n for n in range(1, shape[split] + 1) if shape[split] % n == 0]))
    apart = (*shape[:split], factor, shape[split] // factor, *shape[split + 1 :])
    merge = draw(st.integers(0, max(0, len(shape) - 2)))
    merged = (*shape[:merge], math.prod(shape[merge : merge + 2]), *shape[merge + 2 :])
    return draw(
        st.sampled_from([lambda t: t.reshape(apart), lambda t: t.reshape(merged), lambda t: t.flatten(), lambda t: -t])
    )


def follow(data: st.DataObject, *kinds: Callable[[tuple[int, ...]], st.SearchStrategy[Operation]]) -> None:
    """Do some operations to a tensor and to lazy ones that stand for it."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    whole = torch.arange(1, math.prod(shape) + 1, dtype=torch.float32).view(shape)
    learning = _Learning("Model")
    made: Tensor = whole
    lazy: Tensor = LazyTensor.of(learning, "w", shape, torch.float32)
    operations: list[Operation] = []
    for _ in range(data.draw(st.integers(1, 5))):
        if not 0 < made.numel() < 2000:
            break
        operation = data.draw(data.draw(st.sampled_from(kinds))(tuple(made.shape)))
        made, lazy = operation(made), operation(lazy)
        operations.append(operation)
        assert (lazy.shape, lazy.dtype) == (made.shape, made.dtype)
    torch.empty_like(made, device="meta").copy_(lazy)

    wants = learning.wants("w", torch.float32)
    boxes = [want.box for want in wants]
    asked = torch.cat([whole[box.index()].flatten() for box in boxes])
    needed = made.abs().unique()
    assert len(asked) == len(asked.unique()), "an element is asked for twice"
    assert set(needed.tolist()) <= set(asked.tolist())
    if reshaped not in kinds:
        assert len(needed) == len(asked), "an element is asked for that is not needed"
    again: Tensor = LazyTensor.of(
        _Loading("Model", {want: whole[want.box.index()].clone() for want in wants}), "w", shape, torch.float32
    )
    for operation in operations:
        again = operation(again)
    found = torch.zeros_like(made)
    found.copy_(again)
    assert torch.equal(found, made)


@given(st.data())
def test_what_is_cut_is_asked_for_exactly(data: st.DataObject) -> None:
    follow(data, cut)


@given(st.data())
def test_what_is_reshaped_on_the_way_has_all_that_it_needs(data: st.DataObject) -> None:
    follow(data, cut, reshaped)


def test_an_operation_that_is_not_known_is_refused_by_name() -> None:
    lazy = LazyTensor.of(_Learning("SomeModel"), "model.w", (4, 4), torch.float32)
    for operation in (torch.sin, lambda t: t.cumsum(0), lambda t: t @ t, lambda t: t[0].zero_(), lambda t: t.flip(0)):
        with pytest.raises(Refused, match=r"SomeModel loads model\.w: aten\.\w+"):
            operation(lazy)


def test_an_element_that_was_not_asked_for_is_an_error_and_no_zero() -> None:
    want = Want("model.w", Box((0, 0), (2, 4)), "float32")
    lazy = LazyTensor.of(_Loading("SomeModel", {want: torch.ones(2, 4)}), "model.w", (4, 4), torch.float32)
    torch.empty(2, 4).copy_(lazy[:2])
    with pytest.raises(UserError, match=r"SomeModel loads model\.w\[1:3, 0:4\]"):
        torch.empty(2, 4).copy_(lazy[1:3])


@pytest.mark.parametrize(
    ("stored", "parameter", "sent"),
    [
        ("float32", "bfloat16", "bfloat16"), ("bfloat16", "float32", "bfloat16"), ("bfloat16", "float16", "float16"),
        ("float16", "bfloat16", "bfloat16"), ("int64", "int32", "int64"), ("float32", "float32", "float32"),
    ],
)  # fmt: skip
def test_what_is_sent_has_all_that_the_parameter_keeps_and_no_more_bytes(
    stored: str, parameter: str, sent: str
) -> None:
    learning = _Learning("Model")
    lazy = LazyTensor.of(learning, "w", (2, 2), getattr(torch, stored))
    torch.empty(2, 2, dtype=getattr(torch, parameter), device="meta").copy_(lazy)
    assert [want.format for want in learning.wants("w", getattr(torch, stored))] == [sent]


@given(st.integers(1, 3).flatmap(lambda d: st.lists(st.tuples(*[st.tuples(st.integers(0, 3), st.integers(1, 3))] * d))))
def test_boxes_are_made_disjoint_without_loss(given_boxes: list[tuple[tuple[int, int], ...]]) -> None:
    boxes = [Box(tuple(a for a, _ in each), tuple(a + n for a, n in each)) for each in given_boxes]
    elements = lambda box: product(*map(range, *box))  # noqa: E731
    counted: dict[tuple[int, ...], int] = defaultdict(int)
    for box in union(boxes):
        for element in elements(box):
            counted[element] += 1
    assert set(counted) == {element for box in boxes for element in elements(box)}
    assert set(counted.values()) <= {1}
