"""A tensor that stands for one of a checkpoint and keeps track of which of its elements something is made of.

What loaders do to a checkpoint's tensors before they copy them into parameters is rearranging: narrowing, transposing,
reshaping, joining, picking, casting. `LazyTensor` does all of it by noting where elements come from, and holds none.
Only when it is copied somewhere are elements asked for, as boxes of the checkpoint's tensor.

Invariants: what is asked for covers what is copied (exactly, but for views that no box fits, which get the smallest box
around them); an operation that is not in the tables below is refused with the tensor's name, never carried out on a
guess. That a loader can be watched this way is an idea that vLLM's sharded RDT backend has too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from posttrain.etha.bases import Access, Base, Computed, Copied, Joined, Picked, Stored
from posttrain.etha.strided import region, row_major

aten = torch.ops.aten

VIEWS = {
    aten.alias.default, aten.detach.default, aten.as_strided.default, aten.slice.Tensor, aten.select.int,
    aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.transpose.int, aten.t.default,
    aten.permute.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.expand.default, aten.unfold.default,
}  # fmt: skip
MAKERS = {
    aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.new_empty.default,
    aten.new_zeros.default, aten.new_ones.default, aten.new_full.default,
}  # fmt: skip
FILLERS = {aten.zero_.default, aten.fill_.Scalar}
POINTWISE = {
    aten.neg.default, aten.exp.default, aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor,
    aten.mul.Scalar, aten.add.Scalar, aten.sub.Scalar, aten.div.Scalar, aten.rsub.Scalar,
}  # fmt: skip


class LazyTensor(torch.Tensor):
    """A strided view of `base`, converted to each of `casts` in turn."""

    base: Base
    casts: tuple[torch.dtype, ...]

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(access: Access, name: str, shape: Sequence[int], dtype: torch.dtype) -> LazyTensor:
        """The whole of the checkpoint's tensor `name`."""
        return _dense(Stored(access, tuple(shape), dtype, name), ())

    def need(self, dtypes: tuple[torch.dtype, ...]) -> None:
        """Ask for every element, to be converted to `dtypes`."""
        if self.numel() and self.base.filled is None:
            place = region(self.base.shape, self)
            self.base.need(place.box, (*self.casts, *dtypes))

    def elements(self) -> torch.Tensor:
        """An ordinary tensor: a view of what `Access.read` returns, or a copy where no view will do."""
        if not self.numel():
            return torch.empty(self.shape, dtype=self.dtype)
        if self.base.filled is not None:
            return torch.full(self.shape, self.base.filled, dtype=self.dtype)
        place = region(self.base.shape, self)
        data = place.take(self.base.read(place.box))
        for dtype in self.casts:
            data = data.to(dtype)
        return data

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        if func is aten.copy_.default and isinstance(args[1], cls) and not isinstance(args[0], cls):
            args[1].base.access.copied(args[1], args[0])
            return args[0]
        if func in (aten.cat.default, aten.stack.default):
            return _join(func, *args, **kwargs)
        self = next(each for each in (*args, *kwargs.values()) if isinstance(each, cls))
        if self is args[0]:
            if func in VIEWS:
                return _map(func(self._geometry(), *args[1:], **kwargs), self._view)
            if func in (aten.clone.default, aten._to_copy.default):
                return self._copy(kwargs.get("dtype") or self.dtype, dense=func is aten.clone.default)
            if func is aten._reshape_copy.default:
                return self._copy(self.dtype, dense=True).view(args[1])
            if func in MAKERS:
                return func(self._geometry(), *args[1:], **(kwargs | {"device": kwargs.get("device") or "cpu"}))
            if func in FILLERS and not self.casts and self.numel() == math.prod(self.base.shape):
                self.base.filled = args[1] if len(args) > 1 else 0
                return self
            if func is aten._local_scalar_dense.default:
                return self.base.access.item(self)
            if func in POINTWISE and not any(isinstance(each, torch.Tensor) for each in args[1:]):
                made = func(self._geometry(), *args[1:], **kwargs)
                return _dense(Computed(self.base.access, tuple(made.shape), made.dtype, self, func, args[1:]), ())
            if (picked := _picked(self, func, args, kwargs)) is not None:
                return picked
        if (made := func.decompose(*args, **kwargs)) is not NotImplemented:  # into operations that may be known
            return made
        raise self.base.refused(f"{func} is done to it")

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return f"LazyTensor({self.base.name!r}, shape={tuple(self.shape)}, dtype={self.dtype})"

    def _geometry(self) -> torch.Tensor:
        """On meta, with this shape and these strides, for torch to work out what becomes of them."""
        storage = torch.empty(math.prod(self.base.shape), dtype=self.dtype, device="meta")
        return storage.as_strided(self.shape, self.stride(), self.storage_offset())

    def _view(self, made: torch.Tensor) -> LazyTensor:
        return _lazy(self.base, made.shape, made.stride(), int(made.storage_offset()), made.dtype, self.casts)

    def _copy(self, dtype: torch.dtype, *, dense: bool) -> LazyTensor:
        casts = self.casts if dtype == self.dtype else (*self.casts, dtype)
        if not dense or self.is_contiguous():
            return _lazy(self.base, self.shape, self.stride(), int(self.storage_offset()), dtype, casts)
        return _dense(
            Copied(self.base.access, tuple(self.shape), self.dtype, self), () if dtype == self.dtype else (dtype,)
        )


def _lazy(
    base: Base, shape: Sequence[int], stride: Sequence[int], offset: int, dtype: torch.dtype,
    casts: tuple[torch.dtype, ...],
) -> LazyTensor:  # fmt: skip
    made = torch.Tensor._make_wrapper_subclass(
        LazyTensor, tuple(shape), strides=tuple(stride), storage_offset=offset, dtype=dtype, device=torch.device("cpu")
    )
    made.base, made.casts = base, casts
    return made


def _dense(base: Base, casts: tuple[torch.dtype, ...]) -> LazyTensor:
    return _lazy(base, base.shape, row_major(base.shape), 0, (base.dtype, *casts)[-1], casts)


def _map(made: Any, function: Callable[[torch.Tensor], LazyTensor]) -> Any:
    return function(made) if isinstance(made, torch.Tensor) else type(made)(map(function, made))


def _join(func: Any, tensors: Sequence[torch.Tensor], dim: int = 0) -> LazyTensor:
    lazy = next(each for each in tensors if isinstance(each, LazyTensor))
    if not all(isinstance(each, LazyTensor) for each in tensors):
        raise lazy.base.refused("it is joined to a tensor that is in no checkpoint")
    if func is aten.stack.default:
        tensors = [each.unsqueeze(dim) for each in tensors]
    made = torch.cat([torch.empty(each.shape, dtype=each.dtype, device="meta") for each in tensors], dim)
    parts = tuple(each for each in tensors if each.numel())
    return _dense(Joined(lazy.base.access, tuple(made.shape), made.dtype, dim % made.dim(), parts), ())  # type: ignore[arg-type]


def _picked(self: LazyTensor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LazyTensor | None:
    """What picking whole slices along one dimension by their numbers makes; None for another operation."""
    if func is aten.index_select.default:
        dim, index = args[1], args[2]
    elif func is aten.index.Tensor and sum(each is not None for each in args[1]) == 1:
        dim, index = next((d, each) for d, each in enumerate(args[1]) if each is not None)
    elif func is aten.repeat_interleave.self_int:
        dim = args[2] if len(args) > 2 else kwargs.get("dim")
        index = None if dim is None else torch.arange(self.shape[dim]).repeat_interleave(args[1])
    else:
        return None
    if index is None or isinstance(index, LazyTensor) or index.dim() != 1 or index.is_meta:
        return None
    dim %= self.dim()
    index = index.nonzero()[:, 0] if index.dtype == torch.bool else index % self.shape[dim]
    shape = list(self.shape)
    shape[dim] = len(index)
    return _dense(Picked(self.base.access, tuple(shape), self.dtype, self, dim, tuple(index.tolist())), ())
